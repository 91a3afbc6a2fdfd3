"""oneDNN's recurrent layers in a captured graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

aten = torch.ops.aten


def rnn_layer(*args: Any) -> tuple[Tensor, ...]:
    """A layer of an LSTM with the workspace that its backward reads.

    The kernel makes the workspace only where gradients are on, and graphs run where they are off.
    What it is given has no gradients: autograd would keep the workspace as long as any result.

    Its fake form makes an empty workspace, and memory that is kept for the backward would not be
    counted: a fake one has the bytes that the kernel makes for zeros of these shapes.
    """
    given = [x.detach() if isinstance(x, Tensor) else x for x in args]
    with torch.enable_grad():
        results: tuple[Tensor, ...] = aten.mkldnn_rnn_layer.default(*given)
    *others, workspace = results
    if isinstance(workspace, FakeTensor) and not _has_open_dims(given):
        return (*others, workspace.new_empty(_workspace_bytes(given)))
    return results


def _has_open_dims(args: Sequence[Any]) -> bool:
    """Whether a size is a symbol."""
    return any(isinstance(n, torch.SymInt) for x in args if isinstance(x, Tensor) for n in x.shape)


def _workspace_bytes(args: Sequence[Any]) -> int:
    with unset_fake_temporarily(), torch.enable_grad():
        zeros = [torch.zeros(x.shape, dtype=x.dtype) if isinstance(x, Tensor) else x for x in args]
        workspace: Tensor = aten.mkldnn_rnn_layer.default(*zeros)[-1]
        return workspace.numel()


rnn_layer.is_pure = True  # type: ignore[attr-defined]


def keep_workspaces(module: torch.fx.GraphModule) -> None:
    """Make the recurrent layers of a graph save what their backward needs."""
    found = module.graph.find_nodes(op="call_function", target=aten.mkldnn_rnn_layer.default)
    for node in found:
        node.target = rnn_layer
    if found:
        module.recompile()
