"""`Function`: an op of the user's own, with its own gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinytorch.absent import names_of
from tinytorch.dispatch import is_tensor, wrap
from tinytorch.errors import AutogradError, ShapeError
from tinytorch.history import Record
from tinytorch.op import Op
from tinytorch.state import grad_mode, is_recording

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


class Context:
    """Carries what `forward` saves to `backward`.

    Attributes:
        saved_tensors: what `save_for_backward` was given.
        needs_input_grad: for each argument of `forward`, whether its gradient is wanted.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors; backward then notices if one was overwritten in place."""
        self.saved_tensors = tensors


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

    `forward` runs without recording. `backward` returns one gradient for each argument of `forward`
    (None for those that have none); if it is made of differentiable functions it can itself be
    differentiated.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Tensor:
        """The result. Override."""
        raise NotImplementedError("a Function needs a forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Gradients for the arguments of forward, given that of its result. Override."""
        raise NotImplementedError("a Function needs a backward(ctx, g)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Tensor:
        """Run `forward` and record that `backward` is its gradient.

        Raises:
            AutogradError: an argument by keyword requires a gradient, which only those by position
                can get.
            TypeError: forward does not return a Tensor.
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
            out = cls.forward(ctx, *args, **kwargs)
        if not is_tensor(out):
            raise TypeError(f"{cls.__name__}.forward must return a Tensor, not {type(out)}")
        result = wrap(out._data, out.meta)
        if is_recording() and any(needs):
            result.requires_grad = True
            saves_output = any(t is out for t in ctx.saved_tensors) and all(
                a is not out for a in args
            )
            result.history = _record(cls, ctx, args, result, saves_output)
        return result


def _record(
    cls: type[Function], ctx: Context, args: tuple[Any, ...], out: Tensor, saves_output: bool
) -> Record:
    return Record(
        op=_op_of(cls, len(args), saves_output),
        params={"ctx": ctx},
        edges=tuple(
            (a.history or a) if needed else None
            for a, needed in zip(args, ctx.needs_input_grad, strict=True)
        ),
        inputs=ctx.saved_tensors,
        metas=tuple(getattr(a, "meta", None) for a in args),
        meta=out.meta,
        output=out._data if saves_output else None,
    )


def _op_of(cls: type[Function], arguments: int, saves_output: bool) -> Op:
    """A row for a Function, outside of the table: only autograd ever sees it."""

    def no_rule(*_: Any) -> Any:
        raise AssertionError("a Function is not dispatched")

    op = Op(cls.__name__, " ".join(f"arg{i}" for i in range(arguments)), "function",
            no_rule, no_rule, no_rule)  # fmt: skip

    def shared(g: Tensor, record: Record, output: Tensor | None, position: int) -> Any:
        return _gradients(cls, record, g, output)

    def part(gradients: Any, record: Record, output: Tensor | None, position: int) -> Any:
        return gradients[position]

    op.vjps, op.shared_vjp, op.saves_output = (part,) * arguments, shared, saves_output
    return op


def _gradients(
    cls: type[Function], record: Record, g: Tensor, output: Tensor | None
) -> tuple[Any, ...]:
    """What `backward` returns, checked, in the dtypes of the arguments.

    Args:
        output: the result, if `forward` saved it: with its history, which `forward` could not know.
    """
    ctx = record.params["ctx"]
    saved = ctx.saved_tensors
    if output is not None:
        ctx.saved_tensors = tuple([output if t._data is output._data else t for t in saved])
    try:
        result = cls.backward(ctx, g)
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


__getattr__ = names_of("torch.autograd.function")  # names of PyTorch's that are not here
