"""`Function`: an op of the user's own, with its own gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinytorch import ops
from tinytorch.absent import names_of
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.errors import AutogradError, ShapeError
from tinytorch.history import Record
from tinytorch.op import Op
from tinytorch.state import grad_mode, is_recording

if TYPE_CHECKING:
    from tinytorch.dtypes import TensorMeta
    from tinytorch.tensor import Tensor


class Context:
    """Carries what `forward` saves to `backward`.

    Attributes:
        saved_tensors: what `save_for_backward` was given.
        needs_input_grad: for each argument of `forward`, whether its gradient is wanted.
        materialize_grads: whether the gradient of a result that was not used is zeros, not None.
        non_differentiable: what `mark_non_differentiable` was given.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Tensor, ...] = ()
        self.materialize_grads = True
        self.non_differentiable: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors; backward then notices if one was overwritten in place."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *results: Tensor) -> None:
        """Say which results of `forward` require no gradient; those of integers never do."""
        self.non_differentiable = results

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether `backward` is given zeros, not None, for a result that was not used."""
        self.materialize_grads = value

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Refuse a `forward` that writes into its arguments.

        Raises:
            AutogradError: always.
        """
        raise AutogradError(
            "mark_dirty: a Function cannot write into its arguments; compute a new tensor, return "
            "it, and leave mark_dirty out"
        )


class Function:
    """A computation with a gradient given by hand. Derive, write both methods, call `apply`.

        class Cube(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return g * 3 * x * x

        y = Cube.apply(x)

    `forward` runs without recording. It may return a tuple of tensors; `backward` is then given a
    gradient for each. With a `setup_context(ctx, inputs, output)`, `forward` is not given `ctx`.
    `backward` returns one gradient for each argument of `forward` (None for those that have none);
    if it is made of differentiable functions it can itself be differentiated.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """The result, or a tuple of several. Override."""
        raise NotImplementedError("a Function needs a forward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what `backward` needs, for a `forward` without `ctx`. Override, or leave it out."""

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        """Gradients for the arguments of forward, given that of each result. Override."""
        raise NotImplementedError("a Function needs a backward(ctx, g)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and record that `backward` is its gradient.

        Raises:
            AutogradError: an argument by keyword requires a gradient, which only those by position
                can get.
            TypeError: forward returns neither a Tensor nor a tuple with one.
        """
        for name, value in kwargs.items():
            if is_tensor(value) and value.requires_grad and is_recording():
                raise AutogradError(
                    f"{cls.__name__}.apply: {name!r} requires a gradient, and only arguments by "
                    f"position get one; pass it by position, or {name}.detach()"
                )
        needs = tuple(is_tensor(a) and a.requires_grad for a in args)
        ctx = Context(needs)
        with grad_mode(False):
            if cls.setup_context is Function.setup_context:
                out = cls.forward(ctx, *args, **kwargs)
            else:
                out = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, out)
        outs = out if isinstance(out, tuple) else (out,)
        if not any(map(is_tensor, outs)):
            raise TypeError(f"{cls.__name__}.forward must return a Tensor, not {type(out)}")
        results = tuple([wrap(o._data, o.meta) if is_tensor(o) else o for o in outs])
        if is_recording() and any(needs):
            _record(cls, ctx, args, outs, results)
        return results if isinstance(out, tuple) else results[0]


def _record(
    cls: type[Function],
    ctx: Context,
    args: tuple[Any, ...],
    outs: tuple[Any, ...],
    results: tuple[Any, ...],
) -> None:
    """Give the results that can have a gradient their history.

    That of the only result is the record of the call; each of several has one of its own, whose
    gradient goes to the record of the call as its part of a `_PartGradients`.

    Args:
        outs: what `forward` returned, in a tuple.
        results: the same, as new tensors.
    """
    differentiable = [
        is_tensor(o)
        and o.dtype.is_floating_point
        and all(o is not t for t in ctx.non_differentiable)
        for o in outs
    ]
    made = {id(o): i for i, o in enumerate(outs) if is_tensor(o) and all(o is not a for a in args)}
    saved_outs = tuple([made.get(id(t)) for t in ctx.saved_tensors])
    single = len(outs) == 1
    saves_output = single and 0 in saved_outs
    metas = tuple([getattr(o, "meta", None) for o in outs])
    call = Record(
        op=_op_of(cls, len(args), saves_output),
        params={"ctx": ctx, "results": metas, "saved": saved_outs},
        edges=tuple(
            (a.history or a) if needed else None
            for a, needed in zip(args, ctx.needs_input_grad, strict=True)
        ),
        inputs=ctx.saved_tensors,
        metas=tuple(getattr(a, "meta", None) for a in args),
        meta=next(filter(None, metas)),
        output=outs[0]._data if saves_output else None,
    )
    for i, result in enumerate(results):
        if differentiable[i]:
            result.requires_grad = True
            result.history = call if single else _part_of(call, i)


class _PartGradients:
    """The gradients of several results, which the walk of a backward adds up; None for 0."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Tensor | None, ...]) -> None:
        self.parts = parts

    def __add__(self, other: _PartGradients) -> _PartGradients:
        pairs = zip(self.parts, other.parts, strict=True)
        return _PartGradients(
            tuple([b if a is None else a if b is None else a + b for a, b in pairs])
        )


def _part_of(call: Record, position: int) -> Record:
    """The history of one of several results of a call."""
    metas = call.params["results"]

    def gradients(g: Tensor, record: Record, output: Tensor | None, _: int) -> _PartGradients:
        return _PartGradients(tuple([g if i == position else None for i in range(len(metas))]))

    op = _row(call.op.name, 1)
    op.vjps = (gradients,)
    meta = metas[position]
    return Record(op, {}, (call,), (), (meta,), meta)


def _op_of(cls: type[Function], arguments: int, saves_output: bool) -> Op:
    """The row of a call of a Function."""
    op = _row(cls.__name__, arguments)

    def shared(g: Tensor, record: Record, output: Tensor | None, position: int) -> Any:
        return _gradients(cls, record, g, output)

    def part(gradients: Any, record: Record, output: Tensor | None, position: int) -> Any:
        return gradients[position]

    op.vjps, op.shared_vjp, op.saves_output = (part,) * arguments, shared, saves_output
    return op


def _row(name: str, arguments: int) -> Op:
    """A row outside of the table: only autograd ever sees it."""

    def no_rule(*_: Any) -> Any:
        raise AssertionError("a Function is not dispatched")

    inputs = " ".join(f"arg{i}" for i in range(arguments))
    return Op(name, inputs, "function", no_rule, no_rule, no_rule)


def _gradients(
    cls: type[Function], record: Record, g: Any, output: Tensor | None
) -> tuple[Any, ...]:
    """What `backward` returns, checked, in the dtypes of the arguments.

    Args:
        g: the gradient of the result, or a `_PartGradients`.
        output: the only result, if `forward` saved it: with its history, which `forward` could not
            know.
    """
    ctx = record.params["ctx"]
    saved = ctx.saved_tensors
    given = g.parts if type(g) is _PartGradients else (g,)
    if ctx.materialize_grads:
        metas = record.params["results"]
        given = tuple([_or_zeros(part, m) for part, m in zip(given, metas, strict=True)])
    places = record.params["saved"]
    ctx.saved_tensors = tuple(
        [
            t if place is None else _result(record, place, t) if output is None else output
            for t, place in zip(saved, places, strict=True)
        ]
    )
    try:
        result = cls.backward(ctx, *given)
    finally:
        ctx.saved_tensors = saved  # the result's history holds ctx: no circle
    gradients = result if isinstance(result, tuple) else (result,)
    taken = len(record.edges)
    if len(gradients) > taken and all(extra is None for extra in gradients[taken:]):
        gradients = gradients[:taken]  # of arguments of forward that had their default
    if len(gradients) != taken:
        raise AutogradError(
            f"{cls.__name__}.backward returned {len(gradients)} gradients, forward took "
            f"{taken} arguments"
        )
    for i, (gradient, meta) in enumerate(zip(gradients, record.metas, strict=True)):
        if gradient is not None and meta is not None and gradient.shape != meta.shape:
            raise ShapeError(
                f"{cls.__name__}.backward returned a gradient of shape {gradient.shape} for "
                f"argument {i} of shape {meta.shape}"
            )
    return tuple(
        gradient if gradient is None or meta is None else gradient.to(meta.dtype)
        for gradient, meta in zip(gradients, record.metas, strict=True)
    )


def _or_zeros(g: Tensor | None, meta: TensorMeta | None) -> Tensor | None:
    if g is not None or meta is None:
        return g
    return apply(ops.full, shape=meta.shape, value=meta.dtype.zero, dtype=meta.dtype)


def _result(call: Record, position: int, saved: Tensor) -> Tensor:
    """One of several results, which `forward` saved: with its history."""
    result = wrap(saved._data, saved.meta)
    if saved.dtype.is_floating_point:
        result.requires_grad = True
        result.history = _part_of(call, position)
    return result


__getattr__ = names_of("torch.autograd.function")  # names of PyTorch's that are not here
