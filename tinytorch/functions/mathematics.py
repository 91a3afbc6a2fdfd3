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
from tinytorch.dtypes import float64, promote
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
    """(exp(a) - exp(-a)) / 2, accurate near 0, as 2 sinh(a / 2) cosh(a / 2): exp(a) overflows
    earlier than half of it."""
    x = _float(a)
    one, other = x * 0.5, x * 0.5  # each with a half of the gradient, which overflows no earlier
    return (e.expm1(one) - e.expm1(e.neg(one))) * ((e.exp(other) + e.exp(e.neg(other))) * 0.5)


def cosh(a: Tensor) -> Tensor:
    """(exp(a) + exp(-a)) / 2, with e as a factor, so that it overflows no earlier."""
    x = _float(a)
    return (e.exp(x - 1.0) + e.exp(e.neg(x) - 1.0)) * (math.e / 2)


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


#: Of `erfc`, polynomials for (1 + 2 a) exp(a^2) erfc(a) in (a - 3.75) / (a + 3.75): for float64 the
#: source's, otherwise the Chebyshev series up to degree 11, which is wrong by 1.3e-8 at most.
_SHORT_TAIL = (
    *(-0.0002241167467, 0.000396307613, 0.001675912218, -0.00984449486, 0.02840925236),
    *(-0.05864685874, 0.09229076959, -0.1088142701, 0.08227841998, 0.003586270394),
    *(-0.1402406583, 1.237512619),
)
_TAIL = (
    *(-2.62310735e-9, -1.95513589e-9, 3.197926672e-8, 1.879082322e-8, -2.4857126248e-7),
    *(-5.084465379e-8, 1.74198215862e-6, -9.7926257073e-7, -1.143804803335e-5),
    *(2.238756571491e-5, 5.164652974177e-5, -0.00029015535246078, 0.00029371437804496),
    *(0.00175562616519707, -0.00974657968326526, 0.02836227737211114, -0.05869339857664934),
    *(0.09230432116428125, -0.10880393014244461, 0.08227673848999506, 0.00358541548547903),
    *(-0.14024059858554526, 1.23751263083782753),
)


def erfc(a: Tensor) -> Tensor:
    """1 - erf(a), accurate also where that is small.

    Source: M. Shepherd, J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc(x)",
    Math. Comp. 36, 1981.
    """
    a = _float(a)
    x = a.detach()
    size = e.minimum(e.abs(x), 30.0)  # whose erfc is 0
    near = e.round(size)  # whose square is exact: that of size loses digits of exp
    power = e.exp(-near * near) * e.exp((near - size) * (near + size))
    terms = _TAIL if a.dtype is float64 else _SHORT_TAIL
    tail = power * _polynomial(terms, (size - 3.75) / (size + 3.75)) / (size * 2.0 + 1.0)
    value = e.where(e.lt(x, 0), 2.0 - tail, tail)
    if not a.requires_grad:
        return value
    opposite = e.erf(a)  # whose gradient is the exact one
    return value - (opposite - opposite.detach())


#: Of `erfinv`, polynomials in w = -log(1 - a^2): below which w one is used, in w - c for the first
#: and in sqrt(w) - c for the others; c; and the coefficients, that of the highest power first.
_SINGLE = (
    (
        5.0,
        2.5,
        (
            *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
            *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
        ),
    ),
    (
        math.inf,
        3.0,
        (
            *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
            *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
        ),
    ),
)
_NEAR = (
    *(-3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18),
    *(1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17),
    *(6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14),
    *(2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11),
    *(1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08),
    *(4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05),
    *(0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533),
    *(0.24015818242558961693, 1.6536545626831027356),
)
_MIDDLE = (
    *(2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07),
    *(1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06),
    *(2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05),
    *(6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796),
    *(0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066),
    *(-0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334),
    3.0838856104922207635,
)
_FAR = (
    *(-2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09),
    *(-3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08),
    *(2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07),
    *(-9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05),
    *(7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026),
    *(1.0103004648645343977, 4.8499064014085844221),
)
_DOUBLE = ((6.25, 3.125, _NEAR), (16.0, 3.25, _MIDDLE), (math.inf, 5.0, _FAR))


def erfinv(a: Tensor) -> Tensor:
    """The number whose `erf` is a: infinite for a = 1 and -1, NaN beyond.

    Source: M. Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2011.

    >>> from tinytorch import tensor
    >>> erfinv(tensor([0.0, 0.5, 1.0]))
    tensor([0.    , 0.4769,    inf])
    """
    a = _float(a)
    size = e.abs(a)
    inside = e.where(size < 1, a, 0.0)
    w = e.neg(e.log((1.0 - inside) * (1.0 + inside)))
    (bound, middle, near), *tails = _DOUBLE if a.dtype is float64 else _SINGLE
    root = e.sqrt(e.where(w < bound, bound, w))  # not of 0, where its gradient is infinite
    ratios = [_polynomial(coefficients, root - c) for _, c, coefficients in tails]
    ratio = ratios.pop()
    for (end, _, _), nearer in zip(tails, ratios, strict=False):
        ratio = e.where(w < end, nearer, ratio)
    x = inside * e.where(w < bound, _polynomial(near, w - middle), ratio)
    if x.requires_grad:
        # a step of Newton's method that changes no value: its gradient is exact, that of x is not
        rest = e.erf(x) - inside
        x = x - (rest - rest.detach()) / (e.exp(-x * x) * (2 / math.sqrt(math.pi)))
    # infinite at the edge, and NaN beyond; and so is its gradient
    outside = a / e.sqrt(1.0 - e.where(size < 1, 0.0, size))
    return e.where(size < 1, x, outside)


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """By Horner's rule; the coefficient of the highest power is the first."""
    first, second, *others = coefficients
    value = x * first + second
    for coefficient in others:
        value = value * x + coefficient
    return value


def logaddexp(a: Tensor, other: Tensor) -> Tensor:
    """log(exp(a) + exp(other)), computed without overflow."""
    larger = e.maximum(a, other)
    # of two equal infinities the difference is NaN; the result is the larger
    gap = e.where(e.eq(a, other), e.neg(e.abs(a * 0.0)), e.neg(e.abs(a - other)))
    gap = e.where(e.isnan(gap) & ~(e.isnan(a) | e.isnan(other)), 0.0, gap)
    return larger + e.log1p(e.exp(gap))


def xlogy(a: Tensor | float, other: Tensor | float) -> Tensor:
    """a * log(other), and 0 where a is 0 (unless other is NaN)."""
    x, y = e.as_tensors(*(float(v) if isinstance(v, e.NUMBERS) else v for v in (a, other)))
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
    replayed="erfinv",
    aliases={
        "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
        "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    },
)  # fmt: skip
