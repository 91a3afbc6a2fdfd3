"""Elementwise functions. Operands are tensors or Python numbers and broadcast, as in PyTorch.

Shapes that do not broadcast raise ShapeError. Functions that compute raise DTypeError for float16,
which is for storage, and for bool where they have no meaning for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import as_dtype, bool_, promote
from tinytorch.errors import DTypeError

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Operand = "Tensor | float"


def add(a: Tensor | float, b: Tensor | float, *, alpha: float = 1) -> Tensor:
    """a + alpha * b"""
    return apply(ops.add, a, b if alpha == 1 else apply(ops.mul, b, alpha))


def sub(a: Tensor | float, b: Tensor | float, *, alpha: float = 1) -> Tensor:
    """a - alpha * b"""
    return apply(ops.sub, a, b if alpha == 1 else apply(ops.mul, b, alpha))


def mul(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a * b"""
    return apply(ops.mul, a, b)


def div(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a / b; integers become float32. Division by 0 gives an infinity or NaN, as IEEE 754 says."""
    return apply(ops.div, a, b)


def floor_divide(a: Tensor | float, b: Tensor | float) -> Tensor:
    """floor(a / b).

    Raises:
        ZeroDivisionError: an integer is divided by zero.

    >>> from tinytorch import tensor
    >>> floor_divide(tensor([-3, 3]), 2)
    tensor([-2,  1])
    """
    return apply(ops.floor_divide, a, b)


def remainder(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a - b * floor(a / b): the sign is b's.

    Raises:
        ZeroDivisionError: an integer is divided by zero.

    >>> from tinytorch import tensor
    >>> remainder(tensor([-3, 3]), tensor([2, -2]))
    tensor([ 1, -1])
    """
    return apply(ops.remainder, a, b)


def pow(a: Tensor | float, exponent: Tensor | float) -> Tensor:
    """a to the power of `exponent`; NaN for a negative a and an exponent that is not whole.

    Raises:
        ValueError: an integer is raised to a negative integer; use a.float().
    """
    square = type(exponent) is int and exponent == 2
    if square and not isinstance(a, (int, float)) and a.dtype is not bool_:
        return apply(ops.mul, a, a)
    return apply(ops.pow_, a, exponent)


def neg(a: Tensor) -> Tensor:
    """-a"""
    return apply(ops.neg, a)


def positive(a: Tensor) -> Tensor:
    """a"""
    return a


def maximum(a: Tensor | float, b: Tensor | float) -> Tensor:
    """The larger of a and b; NaN if either is. Equal ones get half of the gradient each."""
    return apply(ops.maximum, a, b)


def minimum(a: Tensor | float, b: Tensor | float) -> Tensor:
    """The smaller of a and b; NaN if either is. Equal ones get half of the gradient each."""
    return apply(ops.minimum, a, b)


def eq(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a == b"""
    return apply(ops.eq, a, b)


def ne(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a != b"""
    return apply(ops.ne, a, b)


def lt(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a < b"""
    return apply(ops.lt, a, b)


def le(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a <= b"""
    return apply(ops.le, a, b)


def gt(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a > b"""
    return apply(ops.lt, b, a)


def ge(a: Tensor | float, b: Tensor | float) -> Tensor:
    """a >= b"""
    return apply(ops.le, b, a)


def logical_and(a: Tensor | bool, b: Tensor | bool) -> Tensor:
    """True where both are true (not zero)."""
    return apply(ops.logical_and, a, b)


def logical_or(a: Tensor | bool, b: Tensor | bool) -> Tensor:
    """True where one or both are true (not zero)."""
    return apply(ops.logical_or, a, b)


def logical_not(a: Tensor) -> Tensor:
    """True where a is false (zero)."""
    return apply(ops.logical_not, a)


def _only_bool(symbol: str, *operands: Tensor | bool) -> None:
    for x in operands:
        kind = as_dtype(getattr(x, "dtype", type(x)))
        if kind is not bool_:
            raise DTypeError(
                f"{symbol} is for bool tensors, not {kind.name}; use logical_and, logical_or, "
                f"logical_not, which read a number as true if it is not zero"
            )


def bitwise_and(a: Tensor | bool, b: Tensor | bool) -> Tensor:
    """a & b, for bool; a tensor of numbers raises DTypeError."""
    _only_bool("&", a, b)
    return apply(ops.logical_and, a, b)


def bitwise_or(a: Tensor | bool, b: Tensor | bool) -> Tensor:
    """a | b, for bool; a tensor of numbers raises DTypeError."""
    _only_bool("|", a, b)
    return apply(ops.logical_or, a, b)


def bitwise_xor(a: Tensor | bool, b: Tensor | bool) -> Tensor:
    """a ^ b, for bool; a tensor of numbers raises DTypeError."""
    _only_bool("^", a, b)
    return apply(ops.ne, a, b)


def bitwise_not(a: Tensor) -> Tensor:
    """~a, for bool; a tensor of numbers raises DTypeError."""
    _only_bool("~", a)
    return apply(ops.logical_not, a)


def where(condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """a where the condition is true (not zero), b elsewhere; the three broadcast.

    >>> from tinytorch import tensor
    >>> x = tensor([-1.0, 2.0])
    >>> where(x > 0, x, 0.0)
    tensor([0., 2.])
    """
    if isinstance(a, (bool, int, float)) and isinstance(b, (bool, int, float)):
        # two numbers do not say which dtype of their category they have: the default one
        a = apply(ops.full, shape=(), value=a, dtype=promote(type(a), type(b)))
    return apply(ops.where, condition, a, b)


def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """x, with `value` where the mask, which broadcasts, is true.

    >>> from tinytorch import tensor
    >>> masked_fill(tensor([1.0, 2.0]), tensor([True, False]), -math.inf)
    tensor([-inf,   2.])
    """
    return apply(ops.where, mask, value, x)


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
    low, high = (
        (-math.inf, math.inf)
        if x.dtype.is_floating_point
        else (int(np.iinfo(x.dtype.dtype).min), int(np.iinfo(x.dtype.dtype).max))
    )
    return apply(ops.clip, x, low if min is None else min, high if max is None else max)


def abs(a: Tensor) -> Tensor:
    """|a|; the gradient at 0 is 0."""
    return apply(ops.abs_, a)


def sign(a: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return apply(ops.sign, a)


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
    """Logarithm to base 2: log(a) / log(2)."""
    return apply(ops.div, apply(ops.log, a), math.log(2))


def sqrt(a: Tensor) -> Tensor:
    """Square root; NaN below 0."""
    return apply(ops.sqrt, a)


def rsqrt(a: Tensor) -> Tensor:
    """1 / sqrt(a)"""
    return apply(ops.div, 1.0, apply(ops.sqrt, a))


def square(a: Tensor) -> Tensor:
    """a * a"""
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
    return apply(ops.neg, apply(ops.floor, apply(ops.neg, a)))


def round(a: Tensor) -> Tensor:
    """The nearest whole number; halves go to the even one.

    >>> from tinytorch import tensor
    >>> round(tensor([0.5, 1.5, 2.5]))
    tensor([0., 2., 2.])
    """
    return apply(ops.round_, a)


def isnan(a: Tensor) -> Tensor:
    """True where a is NaN: the one value that differs from itself."""
    return apply(ops.ne, a, a)


def isinf(a: Tensor) -> Tensor:
    """True where a is plus or minus infinity."""
    return apply(ops.eq, apply(ops.abs_, a), math.inf)


def isfinite(a: Tensor) -> Tensor:
    """True where a is neither NaN nor an infinity."""
    return apply(ops.lt, apply(ops.abs_, a), math.inf)
