"""oneDNN's recurrent layers in a captured graph."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch import Tensor

aten = torch.ops.aten


def rnn_layer(*args: Any) -> tuple[Tensor, ...]:
    """A layer of an LSTM with the workspace that its backward reads.

    The kernel makes the workspace only where gradients are on, and graphs run where they are off.
    """
    with torch.enable_grad():
        results: tuple[Tensor, ...] = aten.mkldnn_rnn_layer.default(*args)
    return results


rnn_layer.is_pure = True  # type: ignore[attr-defined]


def keep_workspaces(module: torch.fx.GraphModule) -> None:
    """Make the recurrent layers of a graph save what their backward needs."""
    found = module.graph.find_nodes(op="call_function", target=aten.mkldnn_rnn_layer.default)
    for node in found:
        node.target = rnn_layer
    if found:
        module.recompile()
