"""`checkpoint`: compute again instead of remembering."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinytorch.autograd.engine import backward as run_backward
from tinytorch.autograd.function import Function
from tinytorch.dispatch import is_tensor
from tinytorch.random import default_generator
from tinytorch.state import grad_mode

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *args: Any) -> Tensor:
        ctx.function, ctx.args = function, args
        ctx.random_state = default_generator.get_state()
        ctx.save_for_backward(*filter(is_tensor, args))
        return function(*args)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        state = default_generator.get_state()
        default_generator.set_state(ctx.random_state)
        leaves = [_leaf(a) for a in ctx.args]
        try:
            with grad_mode(True):
                out = ctx.function(*leaves)
        finally:
            default_generator.set_state(state)
        run_backward(out, g)
        return None, *[getattr(leaf, "grad", None) for leaf in leaves]


def _leaf(argument: Any) -> Any:
    """The same values without their history, so that backward stops here."""
    if not is_tensor(argument) or not argument.requires_grad:
        return argument
    return argument.detach().requires_grad_()


def checkpoint(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """`function(*args)`, of which only the arguments are remembered; backward runs it again.

    Random numbers are drawn again as they were. Parameters that the function uses without taking
    them as arguments get their gradients as well, if at least one argument requires a gradient.

    Source: T. Chen et al., "Training deep nets with sublinear memory cost", 2016.

    Args:
        function: takes `args` and returns one Tensor.
    """
    return _Checkpoint.apply(function, *args)
