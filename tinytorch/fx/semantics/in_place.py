"""Functions of a gradient that can be written over it."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

#: The functional form, and the one that writes into the tensor given as `grad_input`.
GRADIENT_WRITERS: dict[Any, Any] = {
    aten.gelu_backward.default: aten.gelu_backward.grad_input,
    aten.sigmoid_backward.default: aten.sigmoid_backward.grad_input,
    aten.tanh_backward.default: aten.tanh_backward.grad_input,
    aten.threshold_backward.default: aten.threshold_backward.grad_input,
}
FUNCTIONAL = {writer: function for function, writer in GRADIENT_WRITERS.items()}
