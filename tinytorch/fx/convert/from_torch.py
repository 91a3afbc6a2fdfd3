"""`from_torch`: a PyTorch model as a TinyTorch Module."""

from __future__ import annotations

import operator
from typing import Any

from torch import nn

from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.convert.aten_module import AtenModule, UnsupportedAtenError, is_write
from tinytorch.fx.convert.support import Support

REASONS_SHOWN = 10


def from_torch(model: nn.Module, inputs: Any) -> AtenModule:
    """The forward of a PyTorch model, in its present mode, as a TinyTorch Module.

    It runs on every backend, can be traced, compiled and trained; its parameters share memory with
    the model's, and so do its buffers, which it writes as the model does. Gradients stop where the
    model stops them. It is called like the model or with all tensors in a row, which have the
    shapes and dtypes of `inputs`, and returns a flat tuple of tensors.

    Args:
        inputs: a dict of keyword arguments, or a tuple of positional ones.

    Raises:
        ModelError: it is no module, or its inputs are of another floating-point type.
        CaptureError: the model cannot be exported, or writes a tensor that has a history where none
            is recorded.
        UnsupportedAtenError: it has operators that TinyTorch has not; the message lists them.

    >>> import torch, tinytorch
    >>> model = from_torch(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> [y.shape for y in model(tinytorch.ones(4, 3))]
    [(4, 2)]
    """
    captured = capture_forward(model, inputs, decompose=True)
    support = Support()
    nodes = [
        node
        for node in captured.graph.nodes
        if node.op == "call_function" and node.target is not operator.getitem
    ]
    refused = [n for n in nodes if not is_write(n) and not support.is_node_supported({}, n)]
    if refused:
        lines = [f"  {node.name}: {support.reasons[node]}" for node in refused[:REASONS_SHOWN]]
        raise UnsupportedAtenError(
            f"{len(refused)} of {len(nodes)} operators cannot be taken over; "
            f"torch.compile(model, backend='tinytorch') leaves those to PyTorch:\n"
            + "\n".join(lines)
        )
    return AtenModule(captured, tuple(inputs) if isinstance(inputs, dict) else ())
