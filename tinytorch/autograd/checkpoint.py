"""`checkpoint`: compute again instead of remembering."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinytorch import ops
from tinytorch.autograd.engine import grad, leaves_of
from tinytorch.autograd.function import Function
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.random import default_generator
from tinytorch.state import grad_mode, is_recording

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


class _Checkpoint(Function):
    @staticmethod
    def forward(
        ctx: Any, function: Any, random_state: Any, out: Tensor, count: int, *tensors: Any
    ) -> Tensor:
        ctx.function, ctx.random_state = function, random_state
        ctx.args, ctx.captured = tensors[:count], tensors[count:]
        ctx.save_for_backward(*filter(is_tensor, tensors))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        differentiable = is_recording()
        state = default_generator.get_state()
        default_generator.set_state(ctx.random_state)
        parts = [(_part if differentiable else _leaf)(a) for a in ctx.args]
        kept = [p.history.edges if differentiable and _wanted(p) else None for p in parts]
        try:
            with grad_mode(True):
                out = ctx.function(*parts)
        finally:
            default_generator.set_state(state)
        wanted = [*filter(_wanted, parts), *ctx.captured]
        for part, edges in zip(parts, kept, strict=True):
            if edges:  # the gradients end here, at the part; what it was taken from is not captured
                part.history.edges = (None,)
        found = iter(grad(out, wanted, g, create_graph=differentiable, allow_unused=True))
        for part, edges in zip(parts, kept, strict=True):
            if edges:
                part.history.edges = edges
        return None, None, None, None, *[next(found) if _wanted(p) else None for p in parts], *found


def _wanted(argument: Any) -> bool:
    return is_tensor(argument) and argument.requires_grad


def _leaf(argument: Any) -> Any:
    """The same values without their history, so that backward stops here."""
    return argument.detach().requires_grad_() if _wanted(argument) else argument


def _part(argument: Any) -> Any:
    """The same values with their history, through an op of its own."""
    if not _wanted(argument):
        return argument
    return apply(ops.reshape, argument, shape=argument.shape)


def checkpoint(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """`function(*args)`, of which only the arguments are remembered; backward runs it again.

    Random numbers are drawn again as they were. Parameters that the function uses without taking
    them as arguments get their gradients as well. The gradients can be differentiated again.

    Source: T. Chen et al., "Training deep nets with sublinear memory cost", 2016.

    Args:
        function: takes `args` and returns one Tensor.

    Raises:
        TypeError: it returns something else.
    """
    if not is_recording():
        return function(*args)
    random_state = default_generator.get_state()
    leaves = [_leaf(a) for a in args]
    out = function(*leaves)  # recorded only to see which parameters it uses
    if not is_tensor(out):
        raise TypeError(f"checkpoint: the function must return a Tensor, not {type(out)}")
    captured = [t for t in leaves_of(out) if all(t is not leaf for leaf in leaves)]
    value = wrap(out._data, out.meta)
    del out
    return _Checkpoint.apply(function, random_state, value, len(args), *args, *captured)
