"""Automatic differentiation: `backward` and `grad` over the history that `apply` records."""

# imported for their effect: they attach to the op table
from tinytorch import (
    decompositions as _decompositions,  # noqa: F401
    gradients as _gradients,  # noqa: F401
)
from tinytorch.absent import names_of
from tinytorch.autograd.checkpoint import checkpoint
from tinytorch.autograd.engine import backward, grad
from tinytorch.autograd.function import Function
from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tinytorch.autograd.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from tinytorch.state import is_grad_enabled

__all__ = [
    "Function",
    "backward",
    "checkpoint",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]

__getattr__ = names_of("torch.autograd")  # names of PyTorch's that are not here
