"""Writing into a tensor in place.

Where nothing is recorded, the memory is written (`dispatch.write`, or `direct` where nobody would
see ops), so modes see it and `backward` notices when a value that it needs is gone. Where autograd
records, the tensor is *rebound* (`rebinding`): the new value has a history that begins at the old
one, and x takes it over. So `out[t] = h` and `y *= 2` are followed by gradients of any order. That
is refused where it could not be seen by all who should see it: for a leaf that requires a gradient,
and for memory that another tensor or array shares.

The methods return x. They raise AutogradError where they refuse, or x is a read-only view;
ShapeError if the result does not have x's shape; and DTypeError if its dtype does not fit into x's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.backends.reference_elementwise import negative
from tinytorch.backends.reference_movement import fill_array
from tinytorch.dispatch import SCALAR_TYPES, apply, check_not_read_only, is_tensor, wrap, write
from tinytorch.dtypes import Array, bfloat16, meta_of_array, number_of
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions import (
    bitwise,
    diagonals,
    direct,
    elementwise,
    mathematics,
    movement,
    multiples,
    scattering,
    subscripts,
)
from tinytorch.functions.copies import with_zero_gradient
from tinytorch.functions.publish import FUNCTIONS, publish
from tinytorch.functions.rebinding import fitted, rebind, rebind_part, records
from tinytorch.functions.value_checks import check_not_negative, check_probabilities
from tinytorch.history import write_clock
from tinytorch.random import Generator, rand, rand_like, randn_like
from tinytorch.state import StateContext, is_recording, no_mode_active, using_backend

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Operand = Any  # a tensor, a NumPy array or a number
Compute = Callable[..., "Tensor"]


def in_place(function: Callable[..., Tensor], ufunc: Any = None) -> Callable[..., Tensor]:
    """The method that replaces x by `function(x, ...)`: `exp_` from `exp`.

    Args:
        ufunc: NumPy's, or one like it, where it has the function's bits on every backend.
    """
    name = function.__name__
    published = FUNCTIONS.get(name)  # which is replayed, perhaps
    if published is not None and inspect.unwrap(published) is function:
        function = published

    def method(x: Tensor, *args: Any, **options: Any) -> Tensor:
        if ufunc is not None and not args and not options and direct.unary(x, ufunc):
            return x
        if records(x, *args, *options.values()):
            rebind(x, name, function, *args, **options)
            return x
        value = fitted(x, name, function(x, *args, **options))
        if not direct.copy(x, value):
            write(x, ops.copy, value)
        return x

    method.__name__ = method.__qualname__ = f"{name.rstrip('_')}_"
    method.__doc__ = f"x becomes `{name}(x, ...)`, with the same arguments.\n"
    return method


def _arithmetic(op: Any, function: Callable[..., Tensor], ufunc: Any) -> Callable[..., Tensor]:
    """The in-place form of an op of two operands: it writes x's memory in one pass."""

    def method(x: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
        if alpha != 1 and op not in (ops.add, ops.sub):
            raise TypeError(f"{op.name}_() got an unexpected keyword argument 'alpha'")
        if direct.arithmetic(x, other, ufunc, alpha):
            return x
        if op is ops.div and not x.dtype.is_floating_point:
            raise DTypeError(
                f"in-place division would round {x.dtype.name}; use t = t / other, or rounding_mode"
            )
        scaled = multiples.scaled(x, other, alpha)
        if records(x, other):
            rebind(x, op.name, function, scaled)
        else:
            write(x, op, x, scaled)
        return x

    method.__name__ = method.__qualname__ = f"{op.name}_"
    method.__doc__ = f"""x becomes `{op.name}(x, other)`, of alpha * other if alpha is given.

    Raises:
        DTypeError: the result does not fit into x's dtype (a quotient, into integers).
    """
    return method


add_ = _arithmetic(ops.add, elementwise.add, np.add)
sub_ = _arithmetic(ops.sub, elementwise.sub, np.subtract)
mul_ = _arithmetic(ops.mul, elementwise.mul, np.multiply)
_quotient = _arithmetic(ops.div, elementwise.div, np.divide)
_rounded_quotient = in_place(elementwise.div)


def div_(x: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """x becomes `div(x, other)`, rounded as its `rounding_mode` says.

    Raises:
        DTypeError: the result does not fit into x's dtype (a quotient, into integers).
    """
    if rounding_mode is None:
        return _quotient(x, other)
    return _rounded_quotient(x, other, rounding_mode=rounding_mode)


def copy_(x: Tensor, src: Operand, non_blocking: bool = False) -> Tensor:
    """Take over the values of `src`, which broadcasts, cast to x's dtype."""
    if direct.copy(x, src):
        return x
    if type(src) in SCALAR_TYPES:
        return fill_(x, src)
    if not is_tensor(src):
        array = np.asarray(src)
        src = wrap(array, meta_of_array(array))
    if records(x, src):
        rebind(x, "copy", _copied, src)
    else:
        write(x, ops.expand, src, shape=x.shape)
    return x


def _copied(old: Tensor, source: Tensor) -> Tensor:
    """The source's values; nothing of `old`, whose gradient is then 0."""
    new: Tensor = with_zero_gradient(movement.expand(source, old.shape).to(old.dtype), old)
    return new


def fill_(x: Tensor, value: Any) -> Tensor:
    """Set every element to `value`, a number or a 0-d tensor, cast to x's dtype."""
    if direct.fill(x, value):
        return x
    if is_tensor(value):
        return copy_(x, value)
    value = number_of("fill_", value, x.dtype)
    if records(x):
        rebind(x, "fill", _filled, value)
    elif no_mode_active() and x.dtype is not bfloat16:
        check_not_read_only(x._data)
        fill_array(x._data, value)
        write_clock.write(x._data)
    else:
        write(x, ops.full, shape=x.shape, value=value, dtype=x.dtype)
    return x


def _filled(old: Tensor, value: float) -> Tensor:
    """The value everywhere; made from `old`, whose gradient is then 0."""
    new: Tensor = with_zero_gradient(value, old)
    return new


def zero_(x: Tensor) -> Tensor:
    """Set every element to 0."""
    return fill_(x, 0)


def masked_fill_(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Write `value`, converted to x's dtype, where the mask, which broadcasts, is true."""
    return _masked_fill(x, mask, value)


def clamp_(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Limit the elements to [min, max], as `clip` does.

    Raises:
        ValueError: neither bound is given.
    """
    return x if direct.clip(x, min, max) else _clip(x, min, max)


_masked_fill = in_place(scattering.masked_fill)
_clip = in_place(elementwise.clip)
addcmul_, addcdiv_ = in_place(mathematics.addcmul), in_place(mathematics.addcdiv)
lerp_, pow_ = in_place(mathematics.lerp), in_place(elementwise.pow)
floor_divide_, remainder_ = in_place(elementwise.floor_divide), in_place(elementwise.remainder)
bitwise_and_, bitwise_or_ = in_place(bitwise.bitwise_and), in_place(bitwise.bitwise_or)
bitwise_xor_, bitwise_not_ = in_place(bitwise.bitwise_xor), in_place(bitwise.bitwise_not)
bitwise_left_shift_ = in_place(bitwise.bitwise_left_shift)
bitwise_right_shift_ = in_place(bitwise.bitwise_right_shift)
exp_, log_ = in_place(elementwise.exp), in_place(elementwise.log)
sqrt_, rsqrt_ = in_place(elementwise.sqrt, np.sqrt), in_place(elementwise.rsqrt)
square_, sign_ = in_place(elementwise.square, np.square), in_place(elementwise.sign)
neg_, abs_ = in_place(elementwise.neg, negative), in_place(elementwise.abs, np.absolute)
floor_, ceil_ = in_place(elementwise.floor, np.floor), in_place(elementwise.ceil, np.ceil)
round_, trunc_ = in_place(elementwise.round, np.rint), in_place(elementwise.trunc, np.trunc)
sin_, cos_, tan_ = in_place(elementwise.sin), in_place(elementwise.cos), in_place(mathematics.tan)
tanh_, sigmoid_ = in_place(elementwise.tanh), in_place(elementwise.sigmoid)
relu_, reciprocal_ = in_place(elementwise.relu), in_place(elementwise.reciprocal, np.reciprocal)
logical_not_, erf_ = in_place(elementwise.logical_not), in_place(elementwise.erf)
nan_to_num_ = in_place(mathematics.nan_to_num)
tril_, triu_ = in_place(diagonals.tril), in_place(diagonals.triu)
scatter_, scatter_add_ = in_place(scattering.scatter), in_place(scattering.scatter_add)
index_add_, index_copy_ = in_place(scattering.index_add), in_place(scattering.index_copy)
index_fill_, index_put_ = in_place(scattering.index_fill), in_place(scattering.index_put)
masked_scatter_ = in_place(scattering.masked_scatter)


def fill_diagonal_(x: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Write `fill_value` where all indices are equal.

    Args:
        wrap: in a matrix of more rows than columns, begin again after each square and a row.

    Raises:
        ShapeError: x has fewer than two dimensions, or more, which are not of one size.

    >>> from tinytorch import zeros
    >>> zeros(4, 2).fill_diagonal_(1.0, wrap=True)[:, 0]
    tensor([1., 0., 0., 1.])
    """
    if x.ndim < 2 or (x.ndim > 2 and len({*x.shape}) > 1):
        raise ShapeError(
            f"fill_diagonal_ takes a matrix, or dimensions of one size, not shape {x.shape}"
        )
    if wrap and x.ndim == 2:
        places: Any = np.divmod(np.arange(0, x.numel(), x.shape[1] + 1), max(x.shape[1], 1))
    else:
        places = [np.arange(min(x.shape))] * x.ndim
    setitem(x, tuple(map(_index_of, places)), fill_value)
    return x


def _index_of(places: Array) -> Tensor:
    return wrap(places, meta_of_array(places))


def uniform_(
    x: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with random numbers evenly distributed over [from_, to); see `tinytorch.rand`.

    Raises:
        ValueError: `from_` is above `to`, or one is NaN.
    """
    if not from_ <= to:
        raise ValueError(f"uniform_: there is nothing from {from_} to below {to}")
    with _initializing():
        return copy_(x, rand_like(x, generator=generator) * (to - from_) + from_)


def normal_(
    x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with random numbers of a normal distribution; see `tinytorch.randn`.

    Raises:
        ValueError: std is negative.
    """
    check_not_negative("normal_: std", std)
    with _initializing():
        return copy_(x, randn_like(x, generator=generator) * std + mean)


def _initializing() -> StateContext:
    """Numbers are drawn by NumPy on every backend: a layer's constructor compiles nothing."""
    return using_backend("numpy")


def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 with probability p, a number or a tensor that broadcasts, else with 0.

    Raises:
        ValueError: one of p is not from 0 to 1. (Not of what a trace computes.)
    """
    check_probabilities("bernoulli_: p", p)
    return copy_(x, rand(x.shape, generator=generator) < p)


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with random numbers of an exponential distribution of this rate: -log(1 - u) / lambd.

    Raises:
        ValueError: the rate is not above 0.
    """
    if not lambd > 0:
        raise ValueError(f"exponential_: the rate must be above 0, not {lambd}")
    return copy_(x, elementwise.log1p(-rand_like(x, generator=generator)) / -lambd)


def setitem(x: Tensor, index: Any, value: Operand) -> None:
    """x[index] = value

    Raises:
        AutogradError: x is a leaf that requires a gradient or shares memory, and what happens is
            being recorded; or x is a read-only view.
        IndexError, TypeError: as `x[index]`.
        ShapeError: the value does not broadcast to `x[index]`.

    >>> from tinytorch import tensor
    >>> x = tensor([1, 2, 3])
    >>> x[x > 1] = 0
    >>> x
    tensor([1, 0, 0])
    """
    if direct.set_view(x, index, value):
        return
    if not is_tensor(value) and not isinstance(value, (list, tuple)) and not np.ndim(value):
        value = number_of("t[...] = value", value, x.dtype)
    if records(x, value):
        if value is x or not rebind_part(x, index, value):  # x: `rebind` keeps the old value
            rebind(x, "t[...] = value", scattering.put, index, value)
        return
    if not isinstance(x._data, np.ndarray) or bfloat16 in (x.dtype, getattr(value, "dtype", None)):
        write(x, ops.copy, scattering.put(x, index, value))
        return
    array = x._concrete("assignment to an index")
    check_not_read_only(array)
    subscripts.check_masks(x, index)
    first, second = subscripts.in_two_steps(index)
    try:
        array[first][second or ...] = value._concrete("assignment") if is_tensor(value) else value
    except ValueError as error:
        raise ShapeError(f"t[...] = value: {error}") from None
    write_clock.write(array)


class _Probe:
    """Counts the references to itself in `p *= 0`, which are those that a tensor would have."""

    count = 0

    def __imul__(self, _: object) -> _Probe:
        type(self).count = sys.getrefcount((self,)[0])
        return self


def _references_to_a_part() -> tuple[int, bool]:
    """References to what only Python's stack holds, as in `y[1:3] *= 2`, and whether a variable's
    value has more: from Python 3.14 on, the stack borrows the variable's reference."""

    class Box(dict[int, Any]):
        def __missing__(self, _: int) -> Any:
            return _Probe()

    Box()[0] *= 0
    unnamed = _Probe.count
    named = _Probe()
    named *= 0
    return unnamed, unnamed < _Probe.count


_REFERENCES_TO_A_PART, _VARIABLES_HAVE_MORE = _references_to_a_part()


def _is_a_variable(x: Tensor, frame: FrameType) -> bool:
    """Whether a local variable of the function that runs in the frame has x."""
    return any(value is x for value in frame.f_locals.values())


def _operator(method: Callable[..., Tensor], function: Compute) -> Callable[..., Tensor]:
    """The operator of `method`: `y[1:3] *= 2` is `y[1:3] = y[1:3] * 2` where that is recorded.

    Python assigns the result of `*=` to the part of y that it took. So a view which nobody else
    holds need not be written: it is let go of, and the assignment is followed by gradients.
    """

    def operator(x: Tensor, other: Operand) -> Tensor:
        if (
            x.history is not None
            and x.history.op.view
            and sys.getrefcount((x,)[0]) <= _REFERENCES_TO_A_PART
            and (_VARIABLES_HAVE_MORE or not _is_a_variable(x, sys._getframe(1)))
            and is_recording()
        ):
            part = apply(ops.copy, x)  # so that no gradient holds the memory of the whole
            value: Tensor = fitted(x, method.__name__.rstrip("_"), function(part, other))
            return value
        return method(x, other)

    operator.__name__ = operator.__qualname__ = method.__name__
    operator.__doc__ = method.__doc__
    return operator


iadd, isub = _operator(add_, elementwise.add), _operator(sub_, elementwise.sub)
imul, itruediv = _operator(mul_, elementwise.mul), _operator(div_, elementwise.div)
ifloordiv = _operator(floor_divide_, elementwise.floor_divide)
imod, ipow = _operator(remainder_, elementwise.remainder), _operator(pow_, elementwise.pow)


publish(
    globals(),
    hidden="records rebind in_place setitem iadd isub imul itruediv ifloordiv imod ipow",
    aliases={"clip_": "clamp_", "multiply_": "mul_", "subtract_": "sub_", "divide_": "div_"},
)
