"""`checkpoint`: compute again instead of remembering."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinytorch import ops
from tinytorch.autograd.engine import captured_by, grad
from tinytorch.autograd.function import Function
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.history import Record, write_clock
from tinytorch.random import default_generator
from tinytorch.state import grad_mode, is_recording

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


class _Checkpoint(Function):
    @staticmethod
    def forward(
        ctx: Any, function: Any, random_state: Any, outs: Any, counts: Any, *tensors: Any
    ) -> Any:
        count, is_tuple = counts
        ctx.function, ctx.random_state = function, random_state
        ctx.args, ctx.captured = tensors[:count], tensors[count:]
        ctx.save_for_backward(*[t for t in tensors if is_tensor(t) and t._data is not None])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[o for o in outs if is_tensor(o) and not o.requires_grad])
        return outs if is_tuple else outs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        differentiable = is_recording()
        state = default_generator.get_state()
        default_generator.set_state(ctx.random_state)
        parts = [(_part if differentiable else _leaf)(a) for a in ctx.args]
        try:
            with grad_mode(True):
                outs = _listed(ctx.function(*parts))
        finally:
            default_generator.set_state(state)
        wanted = [*filter(_wanted, parts), *ctx.captured]
        sources = [t.history or t for t in wanted]
        ends = [source for source in sources if type(source) is Record]
        kept = [record.edges for record in ends]
        hooks = [source.hooks for source in sources]
        pairs = [(o, g) for o, g in zip(outs, gradients, strict=True) if g is not None]
        try:
            for record in ends:  # what these were computed from is not the function's
                record.edges = (None,) * len(record.edges)
            for source in sources:  # hooks wait for the whole gradient, of which this is a part
                source.hooks = None
            given = [o for o, _ in pairs], wanted, [g for _, g in pairs]
            found = iter(grad(*given, True, differentiable, allow_unused=True))
        finally:
            for record, edges in zip(ends, kept, strict=True):
                record.edges = edges
            for source, of_source in zip(sources, hooks, strict=True):
                source.hooks = of_source
        return None, None, None, None, *[next(found) if _wanted(p) else None for p in parts], *found


def _listed(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


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


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, of which only the arguments are remembered; backward runs it again.

    Random numbers are drawn again as they were. Tensors that the function uses without taking them
    as arguments, such as parameters, get their gradients as well. The gradients can be
    differentiated again.

    Source: T. Chen et al., "Training deep nets with sublinear memory cost", 2016.

    Args:
        function: takes `args` and returns a Tensor, or a tuple with one.

    Raises:
        TypeError: it returns something else.
    """
    if not is_recording():
        return function(*args)
    random_state = default_generator.get_state()
    leaves = [_leaf(a) for a in args]
    write_clock.write()  # so that what was recorded before can be told from the function's
    start = write_clock.now
    out = function(*leaves)  # recorded only to see which tensors it uses
    tensors = [o for o in _listed(out) if is_tensor(o)]
    if not tensors:
        raise TypeError(f"checkpoint: the function must return a Tensor, not {type(out)}")
    captured = [t for t in captured_by(tensors, start) if all(t is not leaf for leaf in leaves)]
    values = tuple([_value(o) for o in _listed(out)])
    counts = len(args), isinstance(out, tuple)
    del out, tensors
    return _Checkpoint.apply(function, random_state, values, counts, *args, *captured)


def _value(result: Any) -> Any:
    """The values of a result without their history, and whether it has a gradient."""
    if not is_tensor(result):
        return result
    value = wrap(result._data, result.meta)
    value._requires_grad = result.requires_grad
    return value
