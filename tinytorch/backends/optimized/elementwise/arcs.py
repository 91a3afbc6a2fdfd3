"""asin, acos, atan and atan2 as polynomials: straight-line code as in `math`.

The arctangent of a / b is that of a smaller number, which one division gives:

    a > tan(3 pi/8) b    pi/2 + atan(-b / a)
    a > tan(pi/8) b      pi/4 + atan((a - b) / (a + b))
    otherwise            atan(a / b)

so the polynomial is of |t| <= tan(pi/8). asin has a polynomial up to 1/2; beyond, asin x =
pi/2 - 2 asin(sqrt((1 - x) / 2)). Numbers that are added, such as pi/2, are in two parts.

| function | largest error, float32 | float64 | at the edges                                    |
|----------|------------------------|---------|-------------------------------------------------|
| atan     | 2.0 ulp                | 2.0     | pi/2 at infinity; zeros keep their sign         |
| atan2    | 2.0                    | 2.0     | zeros and infinities as IEEE 754 says           |
| asin     | 1.5                    | 1.5     | zeros keep their sign                           |
| acos     | 1.5                    | 1.5     | 0 at 1, pi at -1                                |

NaN gives NaN. Beyond [-1, 1] the op table says what asin and acos are. The errors are measured in
`tests/backends/optimized/elementwise/test_arcs.py`.

Sources: Cephes, atanf.c and asinf.c; fdlibm, s_atan.c and e_asin.c (the polynomials).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.division import exactly_rounded
from tinytorch.backends.optimized.elementwise.math import (
    DOUBLE,
    SINGLE,
    Format,
    by_type,
    by_types,
    exact_kernel,
    fma,
    polynomial,
)

__all__ = ["acos", "asin", "atan", "atan2"]

_ARCTANGENT = {
    np.float32: [-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2],
    np.float64: [-3.33333333333329318027e-01, 1.99999999998764832476e-01,
                 -1.42857142725034663711e-01, 1.11111104054623557880e-01,
                 -9.09088713343650656196e-02, 7.69187620504482999495e-02,
                 -6.66107313738753120669e-02, 5.83357013379057348645e-02,
                 -4.97687799461593236017e-02, 3.65315727442169155270e-02,
                 -1.62858201153657823623e-02],
}  # fmt: skip
_ARCSINE = {  # a polynomial; or one over another
    np.float32: ([1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2,
                  4.2163199048e-2], [1.0]),
    np.float64: ([1.66666666666666657415e-01, -3.25565818622400915405e-01,
                  2.01212532134862925881e-01, -4.00555345006794114027e-02,
                  7.91534994289814532176e-04, 3.47933107596021167570e-05],
                 [1.0, -2.40339491173441421878e+00, 2.02094576023350569471e+00,
                  -6.88283971605453293030e-01, 7.70381505559019352791e-02]),
}  # fmt: skip
_HALF_TURN = {np.float32: -8.742278e-08, np.float64: 1.2246467991473532e-16}  # what pi has beyond


def _make_atans(f: Format) -> tuple[Callable[..., Any], Callable[..., Any]]:
    real = f.real
    terms = polynomial(_ARCTANGENT[real], real)
    first, third = real(math.tan(math.pi / 8)), real(math.tan(3 * math.pi / 8))
    pi, rest = real(math.pi), real(_HALF_TURN[real])
    half, half_rest, quarter, quarter_rest = pi / 2, rest / 2, pi / 4, rest / 4
    zero, one, infinity = real(0), real(1), real(math.inf)
    large, scale = real(np.finfo(real).max / 8), real(0.125)

    # without contraction: the parts of pi are added as they are written
    @exactly_rounded
    def angle(a: Any, b: Any) -> Any:
        """The arctangent of a / b, both not negative; b is not 0 where a is, and not infinite."""
        is_steep, is_middle = a > third * b, a > first * b
        above = -b if is_steep else a - b if is_middle else a
        below = a if is_steep else a + b if is_middle else b
        t = above / below
        square = t * t
        high = half if is_steep else quarter if is_middle else zero
        low = half_rest if is_steep else quarter_rest if is_middle else zero
        return high + (t + fma(t * square, terms(square), low))

    @exactly_rounded
    def atan(x: Any) -> Any:
        return np.copysign(angle(abs(x), one), x)

    @exactly_rounded
    def atan2(y: Any, x: Any) -> Any:
        a, b = abs(y), abs(x)
        is_far = b == infinity  # beside it a finite number is 0, and another infinity the same
        a = (one if a == infinity else a * zero) if is_far else a
        b = one if is_far else b
        is_large = (a > large) | (b > large)  # the sum would be infinite
        a = a * scale if is_large else a
        b = b * scale if is_large else b
        b = one if (b == zero) & (a == zero) else b
        found = angle(a, b)
        found = pi - (found - rest) if np.copysign(one, x) < zero else found
        return np.copysign(found, y)

    return atan, atan2


def _make_arcs(f: Format) -> tuple[Callable[..., Any], Callable[..., Any]]:
    real = f.real
    above, below = (polynomial(terms, real) for terms in _ARCSINE[real])
    pi, rest = real(math.pi), real(_HALF_TURN[real])
    quarter_turn, quarter_rest = pi / 2, rest / 2
    zero, one, half, two = real(0), real(1), real(0.5), real(2)

    @exact_kernel
    def quotient(square: Any) -> Any:
        return above(square) / below(square)

    terms = quotient if len(_ARCSINE[real][1]) > 1 else above

    # of 1 - |x| half the square root is taken: its rounding error counts, and is made good
    @exactly_rounded
    def part(size: Any) -> Any:
        """asin of a number up to 1/2, or of sqrt((1 - size) / 2) for a larger one: two parts."""
        is_near = size <= half
        square = size * size if is_near else (one - size) * half
        s = size if is_near else np.sqrt(square)
        lost = zero if is_near or s == zero else fma(-s, s, square) / (two * s)
        return s, fma(s * square, terms(square), lost)

    @exactly_rounded
    def asin(x: Any) -> Any:
        size = abs(x)
        s, low = part(size)
        beyond = quarter_turn - (two * s + (two * low - quarter_rest))
        return np.copysign(s + low if size <= half else beyond, x)

    @exactly_rounded
    def acos(x: Any) -> Any:
        size = abs(x)
        s, low = part(size)
        s = -s if x < zero else s
        low = -low if x < zero else low
        near = quarter_turn - (s + (low - quarter_rest))
        beyond = two * s + two * low
        beyond = pi + (beyond + rest) if x < zero else beyond
        return near if size <= half else beyond

    return asin, acos


_singles, _doubles = _make_atans(SINGLE), _make_atans(DOUBLE)
_arcs = _make_arcs(SINGLE), _make_arcs(DOUBLE)

atan = by_type(_singles[0], _doubles[0])
atan2 = by_types(_singles[1], _doubles[1])
asin = by_type(_arcs[0][0], _arcs[1][0])
acos = by_type(_arcs[0][1], _arcs[1][1])
