"""sin and cos as polynomials, for arguments up to `LIMIT`: straight-line code as in `math`.

    x = n pi/2 + r,   |r| <= pi/4

and the quarter n mod 4 says which of sin r, cos r is meant, and its sign. The subtraction must keep
the bits of an r near 0, so pi/2 is in three parts. Multiply-adds with one rounding take off the
first exactly, and say what rounding took from the second, so r is a sum of two numbers. Beyond
`LIMIT` the C library is asked, which has as many parts as it takes; a loop over elements looks at a
block of arguments first (`loops`).

The largest error is 0.7 ulp in float32 and in float64; NaN gives NaN.

Sources: W. Cody, W. Waite, "Software manual for the elementary functions", 1980, chapter 8
(argument reduction in parts); S. Boldo, M. Daumas, R. Li, "Formally verified argument reduction
with a fused multiply-add", IEEE Transactions on Computers 58, 2009; D. Knuth, "The art of computer
programming", volume 2, 4.2.2, theorem B (what a sum has lost); Cephes, sinf.c, and fdlibm, k_sin.c
and k_cos.c (the polynomials, and how the second number enters).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import (
    DOUBLE,
    SINGLE,
    Format,
    by_type,
    fma,
    polynomial,
)
from tinytorch.jit.library import kernel

__all__ = ["LIMIT", "cos", "sin"]

LIMIT = 100_000.0  # n has 16 bits: float32 still finds the right one

_PARTS = {  # of pi/2, negative
    np.float32: (-1.5707963705062866, 4.371138828673793e-08, 1.7151245100058819e-15),
    np.float64: (-1.5707963267948966, -6.123233995736766e-17, 1.4973849048591698e-33),
}
_SINES = {
    np.float32: [-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4],
    np.float64: [-1.66666666666666324348e-01, 8.33333333332248946124e-03,
                 -1.98412698298579493134e-04, 2.75573137070700676789e-06,
                 -2.50507602534068634195e-08, 1.58969099521155010221e-10],
}  # fmt: skip
_COSINES = {
    np.float32: [4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5],
    np.float64: [4.16666666666666019037e-02, -1.38888888888741095749e-03,
                 2.48015872894767294178e-05, -2.75573143513906633035e-07,
                 2.08757232129817482790e-09, -1.13596475577881948265e-11],
}  # fmt: skip


def _make(f: Format, ahead: int) -> Callable[[Any], Any]:
    """sin, or, a quarter turn ahead, cos."""
    real, bits, integer = f.real, f.bits, f.integer
    first, second, third = map(real, _PARTS[real])
    sines, cosines = polynomial(_SINES[real], real), polynomial(_COSINES[real], real)
    two_over_pi, half, one = real(2 / math.pi), real(0.5), real(1)
    zero = real(0)
    rounder, offset = f.rounder, integer(ahead - f.rounder_bits)
    tiny = real(2.0 ** -(int(f.mantissa) // 2 + 1))  # below it sin x is x
    odd, upper = integer(1), integer(2)

    # without contraction: what is lost in a sum is found by that sum as it is written
    @kernel(fastmath=frozenset(), force_inline=True)
    def function(x: Any) -> Any:
        is_tiny = abs(x) <= tiny
        y = zero if is_tiny else x  # nothing becomes subnormal, which takes a hundred cycles
        shifted = fma(y, two_over_pi, rounder)
        n, turns = integer(bits(shifted) + offset), shifted - rounder
        near = fma(turns, first, y)
        part = turns * second
        high = near + part
        added = high - near
        lost = (near - (high - added)) + (part - added)
        low = fma(turns, third, lost + fma(turns, second, -part))
        r = high + low
        low = (high - r) + low
        square = r * r
        halved = half * square
        whole = one - halved
        sine = r + fma(square * r, sines(square), low * whole)
        rest = fma(square * square, cosines(square), -(r * low))
        cosine = whole + (((one - whole) - halved) + rest)
        value = cosine if n & odd else sine
        value = -value if n & upper else value
        return x if is_tiny and not ahead else value  # x itself keeps the sign of zero

    return function


sin = by_type(_make(SINGLE, 0), _make(DOUBLE, 0))
cos = by_type(_make(SINGLE, 1), _make(DOUBLE, 1))
