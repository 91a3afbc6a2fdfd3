"""Elementwise functions made of the ops: trigonometric, hyperbolic, logarithms, interpolation.

Operands broadcast; integers become float32 where the result is not whole. All have gradients of any
order, on every backend, as they are made of ops that do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import promote
from tinytorch.functions import elementwise as e, reductions
from tinytorch.functions.copies import copied
from tinytorch.functions.fusing import fuse
from tinytorch.functions.publish import publish
from tinytorch.functions.value_checks import check_not_negative, factor_of

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def tan(a: Tensor) -> Tensor:
    """Tangent of an angle in radians."""
    return apply(ops.div, apply(ops.sin, a), apply(ops.cos, a))


def asin(a: Tensor) -> Tensor:
    """The angle from -pi/2 to pi/2 whose sine is a; NaN for |a| > 1."""
    return apply(ops.asin, a)


def acos(a: Tensor) -> Tensor:
    """The angle from 0 to pi whose cosine is a; NaN for |a| > 1."""
    return apply(ops.acos, a)


def atan(a: Tensor) -> Tensor:
    """The angle from -pi/2 to pi/2 whose tangent is a."""
    return apply(ops.atan, a)


def atan2(a: Tensor, other: Tensor) -> Tensor:
    """The angle from -pi to pi of the point with x = other and y = a."""
    return apply(ops.atan2, a, other)


def sinh(a: Tensor) -> Tensor:
    """(exp(a) - exp(-a)) / 2, accurate near 0."""
    return (apply(ops.expm1, a) - apply(ops.expm1, e.neg(_float(a)))) * 0.5


def cosh(a: Tensor) -> Tensor:
    """(exp(a) + exp(-a)) / 2"""
    return (apply(ops.exp, a) + apply(ops.exp, e.neg(_float(a)))) * 0.5


def asinh(a: Tensor) -> Tensor:
    """The number whose `sinh` is a: log(a + sqrt(a^2 + 1)), accurate near 0 and for a large a."""
    x = _float(a)
    size = e.where(e.lt(x, 0), e.neg(x), x)  # not abs, whose gradient at 0 is 0
    large = size > 1e4  # beyond, a^2 would overflow first; there it is log(2 a)
    small = e.where(large, 0.0, size)
    near = e.log1p(small + small * small / (e.sqrt(small * small + 1.0) + 1.0))
    far = e.log(e.where(large, size, 1.0)) + math.log(2)
    positive = e.where(large, far, near)
    return e.where(e.lt(x, 0), e.neg(positive), positive)


def acosh(a: Tensor) -> Tensor:
    """The number, not negative, whose `cosh` is a; NaN for a < 1."""
    x = _float(a)
    large = x > 1e4
    small = e.where(large, 1.0, x) - 1.0
    # two roots: of a product of two large negative numbers there would be one
    near = e.log1p(small + e.sqrt(small) * e.sqrt(small + 2.0))
    return e.where(large, e.log(e.where(large, x, 1.0)) + math.log(2), near)


def atanh(a: Tensor) -> Tensor:
    """The number whose `tanh` is a: (log(1 + a) - log(1 - a)) / 2; NaN for |a| > 1."""
    x = _float(a)
    return (e.log1p(x) - e.log1p(-x)) * 0.5


def _float(a: Tensor) -> Tensor:
    return a if a.dtype.is_floating_point else a.float()


def log10(a: Tensor) -> Tensor:
    """Logarithm to base 10: log(a) / log(10)."""
    return apply(ops.log10, a)


def exp2(a: Tensor) -> Tensor:
    """2 to the power of a."""
    return e.pow(2.0, _float(a))


def erfc(a: Tensor) -> Tensor:
    """1 - erf(a)"""
    return 1.0 - e.erf(a)


def logaddexp(a: Tensor, other: Tensor) -> Tensor:
    """log(exp(a) + exp(other)), computed without overflow."""
    larger = e.maximum(a, other)
    # of two equal infinities the difference is NaN; the result is the larger
    gap = e.where(e.eq(a, other), e.neg(e.abs(a * 0.0)), e.neg(e.abs(a - other)))
    gap = e.where(e.isnan(gap) & ~(e.isnan(a) | e.isnan(other)), 0.0, gap)
    return larger + e.log1p(e.exp(gap))


def xlogy(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a * log(other), and 0 where a is 0 (unless other is NaN)."""
    x, y = e.as_tensors(*(v if hasattr(v, "meta") else float(v) for v in (a, other)))
    # where 0 * log(y) is no number; elsewhere log(y) is the gradient of a, also where a is 0
    hidden = e.eq(x, 0) & (e.le(y, 0) | e.eq(y, math.inf))
    return e.where(hidden, 0.0, x * e.log(e.where(hidden, 1.0, y)))


def frac(a: Tensor) -> Tensor:
    """a - trunc(a): the sign is a's."""
    return a - e.trunc(a).detach()  # whose gradient is 0: that of a is g itself


def lerp(a: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """a + weight * (end - a): a for weight 0, end for weight 1."""
    weight = factor_of("lerp: weight", weight, a.dtype)
    return a + (end - a) * weight


def addcmul(a: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """a + value * tensor1 * tensor2"""
    product = apply(ops.mul, tensor1, tensor2)
    value = factor_of("addcmul: value", value, product.dtype)
    return a + (product if value == 1 else product * value)


def addcdiv(a: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """a + value * tensor1 / tensor2"""
    quotient = apply(ops.div, tensor1, tensor2)
    value = factor_of("addcdiv: value", value, quotient.dtype)
    return a + (quotient if value == 1 else quotient * value)


def hypot(a: Tensor, other: Tensor) -> Tensor:
    """sqrt(a^2 + other^2), without overflow in between; infinity beside NaN, too."""
    kind = promote(a.meta, other.meta)
    x, y = (
        e.abs(_float(side.to(kind))) for side in (a, other)
    )  # the least integer has no opposite
    large, small = e.maximum(x, y), e.minimum(x, y)
    plain = e.eq(large, 0) | e.isinf(large)
    ratio = small / e.where(plain, 1.0, large)
    length = e.where(plain, large + small, large * e.sqrt(ratio * ratio + 1.0))
    return e.where(e.isinf(x) | e.isinf(y), math.inf, length)


def copysign(a: Tensor, other: Tensor | float) -> Tensor:
    """|a| with b's sign; that of -0.0 is minus."""
    _, sign = e.as_tensors(_float(a), other)
    minus = signbit(sign)
    size = e.abs(_float(a.to(promote(a.meta, sign.meta))))
    return e.where(minus, e.neg(size), size)


def signbit(a: Tensor) -> Tensor:
    """True where a is negative, or -0.0."""
    if not a.dtype.is_floating_point:
        return e.lt(a, 0)
    return e.lt(a, 0) | (e.eq(a, 0) & e.lt(e.reciprocal(a), 0))


def heaviside(a: Tensor, values: Tensor) -> Tensor:
    """0 where a is negative, 1 where it is positive, `values` where it is 0."""
    return e.where(e.eq(a, 0), values, e.gt(a, 0).to(values.dtype))


def nan_to_num(
    a: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """a, with NaN and infinities replaced: infinities by the largest finite numbers by default."""
    if not a.dtype.is_floating_point:
        return copied(a)
    largest = float(np.finfo(a.dtype.dtype).max)
    out = e.where(e.isnan(a), nan, a)
    out = e.where(e.eq(out, math.inf), largest if posinf is None else posinf, out)
    return e.where(e.eq(out, -math.inf), -largest if neginf is None else neginf, out)


def logit(a: Tensor, eps: float | None = None) -> Tensor:
    """log(a / (1 - a)), the inverse of sigmoid; a is first limited to [eps, 1 - eps]."""
    x = _float(a) if eps is None else e.clip(_float(a), eps, 1 - eps)
    return e.log(x / (1.0 - x))


def sinc(a: Tensor) -> Tensor:
    """sin(pi a) / (pi a), and 1 at 0."""
    x = _float(a) * math.pi
    zero = e.eq(x, 0)
    return e.where(zero, 1.0 + x * 0.0, e.sin(x) / e.where(zero, 1.0, x))


def deg2rad(a: Tensor) -> Tensor:
    """An angle in degrees as one in radians."""
    return _float(a) * (math.pi / 180)


def rad2deg(a: Tensor) -> Tensor:
    """An angle in radians as one in degrees."""
    return _float(a) * (180 / math.pi)


def float_power(a: Tensor | float, exponent: Tensor | float) -> Tensor:
    """`pow` in float64."""
    x, y = (float(v) if isinstance(v, (int, float)) else v.double() for v in (a, exponent))
    return e.pow(x, y)


# -- comparison within a tolerance -----------------------------------------------------------------


def isclose(
    a: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """True where |a - other| <= atol + rtol * |other|, or both are the same infinity.

    Args:
        equal_nan: whether NaN is close to NaN.

    Raises:
        ValueError: rtol or atol is negative.
    """
    check_not_negative("isclose: rtol", rtol)
    check_not_negative("isclose: atol", atol)
    same = e.eq(a, other)
    if equal_nan:
        same = same | (e.isnan(a) & e.isnan(other))
    if not a.dtype.is_floating_point and not other.dtype.is_floating_point:
        a, other = a.double(), other.double()
    near = e.le(e.abs(a - other), e.abs(other) * rtol + atol) & e.isfinite(other)
    return same | near


def allclose(
    a: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether `isclose` holds everywhere, as a Python bool.

    >>> from tinytorch import tensor
    >>> allclose(tensor([1.0]), tensor([1.0 + 1e-7]))
    True
    """
    return bool(reductions.all(isclose(a, other, rtol, atol, equal_nan)))


def equal(a: Tensor, other: Tensor) -> bool:
    """Whether shape and all elements are the same, as a Python bool."""
    return a.shape == other.shape and bool(reductions.all(e.eq(a, other)))


fuse(
    globals(),
    "tan sinh cosh asinh acosh atanh log10 erfc logaddexp xlogy frac lerp addcmul addcdiv hypot "
    "copysign signbit heaviside nan_to_num logit sinc deg2rad rad2deg isclose",
)
publish(
    globals(),
    aliases={
        "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
        "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    },
)  # fmt: skip
