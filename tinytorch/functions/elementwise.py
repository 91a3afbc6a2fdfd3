"""Elementwise functions. Operands are tensors or Python numbers and broadcast, as in PyTorch.

Shapes that do not broadcast raise ShapeError. Functions that compute raise DTypeError for float16,
which is for storage, and for bool where they have no meaning for it.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import LIMITS, Array, bool_, meta_of_array, number_of, promote, wrapped
from tinytorch.errors import DTypeError
from tinytorch.functions.copies import copied
from tinytorch.functions.fusing import fuse
from tinytorch.functions.multiples import minus_multiple, plus_multiple
from tinytorch.functions.publish import METHODS, publish
from tinytorch.state import STATE

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Operand = "Tensor | float"


def add(a: Tensor | float, other: Tensor | float, *, alpha: float = 1) -> Tensor:
    """a + alpha * b"""
    is_plain = type(alpha) is int and alpha == 1
    total: Tensor = apply(ops.add, a, other) if is_plain else plus_multiple(a, other, alpha)
    return total


def sub(a: Tensor | float, other: Tensor | float, *, alpha: float = 1) -> Tensor:
    """a - alpha * b"""
    is_plain = type(alpha) is int and alpha == 1
    difference: Tensor = apply(ops.sub, a, other) if is_plain else minus_multiple(a, other, alpha)
    return difference


def mul(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a * b"""
    return apply(ops.mul, a, other)


def div(a: Tensor | float, other: Tensor | float, *, rounding_mode: str | None = None) -> Tensor:
    """a / other; integers become float32. Division by 0 gives an infinity or NaN, as IEEE 754 says.

    Args:
        rounding_mode: "floor" to round down, as `floor_divide`, "trunc" to round towards 0;
            integers then stay integers.

    Raises:
        ValueError: it is another.
    """
    if rounding_mode is None:
        return apply(ops.div, a, other)
    if rounding_mode == "floor":
        return apply(ops.floor_divide, a, other)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode is 'floor', 'trunc' or None, not {rounding_mode!r}")
    if promote(*(getattr(t, "meta", type(t)) for t in (a, other))).is_floating_point:
        return trunc(apply(ops.div, a, other))
    down = apply(ops.floor_divide, a, other)
    rest = apply(ops.ne, apply(ops.mul, down, other), a)
    below = apply(ops.ne, apply(ops.lt, a, 0) if hasattr(a, "meta") else a < 0,
                  apply(ops.lt, other, 0) if hasattr(other, "meta") else other < 0)  # fmt: skip
    return apply(ops.add, down, apply(ops.logical_and, rest, below))


def fmod(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a - other * trunc(a / other): the sign is a's.

    Raises:
        ZeroDivisionError: an integer is divided by zero.
    """
    first, second = as_tensors(a, other)
    x, y = arrays_of_integers(first, second)
    if x is not None and y.all():
        return of_array(np.asarray(np.fmod(x, y)))
    if not (first.dtype.is_floating_point or second.dtype.is_floating_point):
        rest = apply(ops.remainder, first, second)  # its sign is b's; the least number has no abs
        differ = apply(ops.ne, lt(first, 0), lt(second, 0))
        return apply(ops.where, logical_and(ne(rest, 0), differ), rest - second, rest)
    first = first.to(promote(first.meta, second.meta))  # the least integer has no abs
    negative = lt(first, 0)  # its gradient at 0 is that of either side, and that of abs is 0
    size = apply(ops.remainder, apply(ops.where, negative, neg(first), first), abs(second))
    return apply(ops.where, negative, neg(size), size)


NUMBERS = (int, float, np.generic)


def as_tensors(*values: Tensor | float) -> tuple[Tensor, ...]:
    """The values as tensors: a number as a 0-d one of the common dtype, which does not promote."""
    dtype = promote(*(getattr(v, "meta", type(v)) for v in values))
    return tuple(
        v  # type: ignore[misc]
        if hasattr(v, "meta")
        else apply(ops.full, shape=(), value=wrapped(v, dtype), dtype=dtype)
        for v in values
    )


def arrays_of_integers(a: Tensor, b: Tensor) -> tuple[Any, Any]:
    """The arrays of two tensors of one integer dtype, where no mode is to see ops; else None."""
    is_seen = STATE.get().mode is not None or a.dtype is not b.dtype
    if is_seen or a.dtype.is_floating_point or a.dtype is bool_:
        return None, None
    return a._data, b._data


def of_array(array: Array) -> Tensor:
    """The tensor of an array."""
    return wrap(array, meta_of_array(array))


def floor_divide(a: Tensor | float, other: Tensor | float) -> Tensor:
    """floor(a / other).

    Raises:
        ZeroDivisionError: an integer is divided by zero.

    >>> from tinytorch import tensor
    >>> floor_divide(tensor([-3, 3]), 2)
    tensor([-2,  1])
    """
    return apply(ops.floor_divide, a, other)


def remainder(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a - other * floor(a / other): the sign is that of `other`.

    Raises:
        ZeroDivisionError: an integer is divided by zero.

    >>> from tinytorch import tensor
    >>> remainder(tensor([-3, 3]), tensor([2, -2]))
    tensor([ 1, -1])
    """
    return apply(ops.remainder, a, other)


def pow(a: Tensor | float, exponent: Tensor | float) -> Tensor:
    """a to the power of `exponent`; NaN for a negative a and an exponent that is not whole.

    A tensor of integers to the power of a tensor of negative integers is rounded towards 0.

    Raises:
        ValueError: the exponent of a tensor of integers is a negative int; use a.float().

    >>> from tinytorch import tensor
    >>> pow(tensor([2, 1, -1]), tensor([-1, -1, -1]))
    tensor([ 0,  1, -1])
    """
    if type(exponent) is int and not isinstance(a, (int, float)):
        if exponent == 2 and a.dtype is not bool_:
            return apply(ops.mul, a, a)
        if exponent < 0 and is_tensor(a) and not a.dtype.is_floating_point:
            raise ValueError(f"pow: {a.dtype.name} to the power of {exponent}; use a.float()")
        if is_tensor(a) and a.dtype is not bool_:
            exponent = number_of("pow", exponent, a.dtype)
    return apply(ops.pow_, a, exponent)


def neg(a: Tensor) -> Tensor:
    """-a"""
    return apply(ops.neg, a)


def positive(a: Tensor) -> Tensor:
    """a"""
    return a


def maximum(a: Tensor | float, other: Tensor | float) -> Tensor:
    """The larger of a and `other`; NaN if either is. Equal ones get half of the gradient each."""
    return apply(ops.maximum, a, other)


def minimum(a: Tensor | float, other: Tensor | float) -> Tensor:
    """The smaller of a and `other`; NaN if either is. Equal ones get half of the gradient each."""
    return apply(ops.minimum, a, other)


def eq(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a == b"""
    return apply(ops.eq, a, other)


def ne(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a != b"""
    return apply(ops.ne, a, other)


def lt(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a < b"""
    return apply(ops.lt, a, other)


def le(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a <= b"""
    return apply(ops.le, a, other)


def gt(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a > b"""
    return apply(ops.lt, other, a)


def ge(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a >= b"""
    return apply(ops.le, other, a)


def logical_and(a: Tensor | bool, other: Tensor | bool) -> Tensor:
    """True where both are true (not zero)."""
    return apply(ops.logical_and, _truth(a), _truth(other))


def logical_or(a: Tensor | bool, other: Tensor | bool) -> Tensor:
    """True where one or both are true (not zero)."""
    return apply(ops.logical_or, _truth(a), _truth(other))


def logical_not(a: Tensor) -> Tensor:
    """True where a is false (zero)."""
    return apply(ops.logical_not, _truth(a))


def _truth(x: Any) -> Any:
    """Whether each float is not zero, which is less work than a cast; others as they are."""
    return apply(ops.ne, x, 0.0) if hasattr(x, "meta") and x.meta.dtype.is_floating_point else x


def logical_xor(a: Tensor | bool, other: Tensor | bool) -> Tensor:
    """True where exactly one is true (not zero)."""
    truths = [bool(x) if isinstance(x, NUMBERS) else apply(ops.ne, x, 0) for x in (a, other)]
    return apply(ops.ne, *truths)


def where(
    condition: Tensor, input: Tensor | float | None = None, other: Tensor | float | None = None
) -> Tensor:
    """`input` where the condition is true (not zero), `other` elsewhere; the three broadcast.

    With the condition only: the indices where it is true, one vector for each dimension.

    Raises:
        DTypeError: a number is not within the dtype of the result.
        TypeError: only one of input and other is given.

    >>> from tinytorch import tensor
    >>> x = tensor([-1.0, 2.0])
    >>> where(x > 0, x, 0.0)
    tensor([0., 2.])
    """
    if input is None or other is None:
        if input is not other:
            raise TypeError("where takes a condition, or a condition and two values")
        found = np.nonzero(np.atleast_1d(condition._values("nonzero")))
        return tuple(wrap(each, meta_of_array(each)) for each in found)  # type: ignore[return-value]
    if isinstance(input, (bool, int, float)) and isinstance(other, (bool, int, float)):
        # two numbers do not say which dtype of their category they have: the default one
        dtype = promote(type(input), type(other))
        input = apply(ops.full, shape=(), value=number_of("where", input, dtype), dtype=dtype)
    if _may_not_fit(input):
        input = _beside(other, input)
    elif _may_not_fit(other):
        other = _beside(input, other)
    return apply(ops.where, condition, input, other)


def _where_of(x: Tensor, condition: Tensor, other: Tensor | float) -> Tensor:
    """x where the condition is true (not zero), `other` elsewhere; the three broadcast.

    >>> from tinytorch import tensor
    >>> x = tensor([-1.0, 2.0])
    >>> x.where(x > 0, 5.0)
    tensor([5., 2.])
    """
    return where(condition, x, other)


def _may_not_fit(x: Any) -> bool:
    """Whether it is a number that some dtype of its category does not have."""
    return type(x) is int or (type(x) is float and not -1e38 < x < 1e38)


def _beside(x: Any, number: Any) -> Any:
    """A number as one of its common dtype with x, where that has not every number."""
    if not is_tensor(x) or (type(number) is int and x.meta.dtype.is_floating_point):
        return number
    return number_of("where", number, promote(x.meta, type(number)))


def clip(x: Tensor, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """x limited to [min, max]: minimum(maximum(x, min), max). The gradient passes at the bounds.

    Raises:
        ValueError: neither bound is given.
        DTypeError: x is bool.

    >>> from tinytorch import tensor
    >>> clip(tensor([-2.0, 0.5, 3.0]), 0, 1)
    tensor([0. , 0.5, 1. ])
    """
    if min is None and max is None:
        raise ValueError("clip needs min, max or both")
    if x.dtype is bool_:
        raise DTypeError("clip is not defined for bool; use logical ops, or x.int()")
    # NumPy's numbers count as Python's
    min, max = (b.item() if isinstance(b, np.generic) else b for b in (min, max))
    given = [b for b in (min, max) if b is not None]
    for bound in given:
        if not isinstance(bound, (int, float)) and not is_tensor(bound):
            raise TypeError(f"clip takes numbers and tensors, not {type(bound).__name__}")
    dtype = promote(x.meta, *[getattr(b, "meta", type(b)) for b in given])
    low, high = LIMITS.get(dtype, (-math.inf, math.inf))
    min, max = (number_of("clip", b, dtype) if type(b) in (int, float) else b for b in (min, max))
    return apply(ops.clip, x, low if min is None else min, high if max is None else max)


def abs(a: Tensor) -> Tensor:
    """|a|; the gradient at 0 is 0."""
    return apply(ops.abs_, a)


def sign(a: Tensor) -> Tensor:
    """-1, 0 or 1; of bool the same bool."""
    return apply(ops.copy, a) if a.dtype is bool_ else apply(ops.sign, a)


def exp(a: Tensor) -> Tensor:
    """e to the power of a."""
    return apply(ops.exp, a)


def expm1(a: Tensor) -> Tensor:
    """exp(a) - 1, accurate near 0, where exp(a) rounds to 1.

    >>> from tinytorch import tensor
    >>> x = tensor([1e-8])
    >>> expm1(x), exp(x) - 1
    (tensor([1.e-08]), tensor([0.]))
    """
    return apply(ops.expm1, a)


def log(a: Tensor) -> Tensor:
    """Natural logarithm; -inf at 0, NaN below."""
    return apply(ops.log, a)


def log1p(a: Tensor) -> Tensor:
    """log(1 + a), accurate near 0, where 1 + a rounds to 1."""
    return apply(ops.log1p, a)


def log2(a: Tensor) -> Tensor:
    """Logarithm to base 2: log(a) / log(2), exact for powers of two."""
    return apply(ops.log2, a)


def sqrt(a: Tensor) -> Tensor:
    """Square root; NaN below 0."""
    return apply(ops.sqrt, a)


def rsqrt(a: Tensor) -> Tensor:
    """1 / sqrt(a)"""
    return apply(ops.div, 1.0, apply(ops.sqrt, a))


def square(a: Tensor) -> Tensor:
    """a * a; of bool as int64."""
    a = a.long() if a.dtype is bool_ else a
    return apply(ops.mul, a, a)


def reciprocal(a: Tensor) -> Tensor:
    """1 / a"""
    return apply(ops.div, 1.0, a)


def sin(a: Tensor) -> Tensor:
    """Sine of an angle in radians."""
    return apply(ops.sin, a)


def cos(a: Tensor) -> Tensor:
    """Cosine of an angle in radians."""
    return apply(ops.cos, a)


def tanh(a: Tensor) -> Tensor:
    """Hyperbolic tangent: (exp(a) - exp(-a)) / (exp(a) + exp(-a))."""
    return apply(ops.tanh, a)


def sigmoid(a: Tensor) -> Tensor:
    """1 / (1 + exp(-a)), computed without overflow."""
    return apply(ops.sigmoid, a)


def erf(a: Tensor) -> Tensor:
    """Error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to a.

    Source: M. Abramowitz, I. Stegun, "Handbook of mathematical functions", 1964, 7.1.1.
    """
    return apply(ops.erf, a)


def relu(a: Tensor) -> Tensor:
    """max(a, 0); the gradient at 0 is 0."""
    return apply(ops.relu, a)


def floor(a: Tensor) -> Tensor:
    """The largest whole number not above a."""
    return apply(ops.floor, a)


def ceil(a: Tensor) -> Tensor:
    """The smallest whole number not below a."""
    if not a.dtype.is_floating_point and a.dtype is not bool_:
        return copied(a)
    return apply(ops.neg, apply(ops.floor, apply(ops.neg, a)))


def round(a: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest whole number; halves go to the even one.

    Args:
        decimals: round to so many digits behind the point; before it, if negative.

    >>> from tinytorch import tensor
    >>> round(tensor([0.5, 1.5, 2.5]))
    tensor([0., 2., 2.])
    """
    if operator.index(decimals) == 0 or not a.dtype.is_floating_point:
        return apply(ops.round_, a)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    first, second = (ops.mul, ops.div) if decimals > 0 else (ops.div, ops.mul)
    return apply(second, apply(ops.round_, apply(first, a, scale)), scale)


def trunc(a: Tensor) -> Tensor:
    """The whole number next to a towards 0."""
    if not a.dtype.is_floating_point:
        return copied(a)
    return where(lt(a, 0), ceil(a), floor(a))


def isnan(a: Tensor) -> Tensor:
    """True where a is NaN: the one value that differs from itself."""
    if not a.dtype.is_floating_point:
        return apply(ops.full, shape=a.shape, value=False, dtype=bool_)
    return apply(ops.ne, a, a)


def isinf(a: Tensor) -> Tensor:
    """True where a is plus or minus infinity."""
    if not a.dtype.is_floating_point:
        return apply(ops.full, shape=a.shape, value=False, dtype=bool_)
    return apply(ops.eq, apply(ops.abs_, a), math.inf)


def isfinite(a: Tensor) -> Tensor:
    """True where a is neither NaN nor an infinity."""
    if not a.dtype.is_floating_point:
        return apply(ops.full, shape=a.shape, value=True, dtype=bool_)
    return apply(ops.lt, apply(ops.abs_, a), math.inf)


fuse(globals(), "ceil fmod isfinite isinf log2 rsqrt trunc")
publish(
    globals(),
    hidden="as_tensors arrays_of_integers of_array",
    replayed="logical_and logical_or logical_not logical_xor clip",
    functions="where",
    methods="positive",
    aliases={
        "clamp": "clip", "multiply": "mul", "subtract": "sub", "divide": "div",
        "true_divide": "div", "negative": "neg", "absolute": "abs", "greater": "gt",
        "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "fix": "trunc",
    },
)  # fmt: skip
_where_of.__name__ = "where"
METHODS["where"] = _where_of  # of the tensor whose method it is, and not of the condition
