"""remainder and floor_divide in a few vector instructions, where the quotient is not too large.

    q = floor(a / b),   r = a - q b

The division rounds, so q may be one too large, where the quotient lies just below a whole number;
r then has the other sign than b. It is a multiple of the last bit of a or of b and no larger than
b, so it has no more bits than they have: a multiply-add with one rounding gives it exactly, and one
addition the remainder.

For |a| up to `LIMIT` |b|, and b up to `LARGEST`, so that nothing overflows. Beyond, and for
infinities, NaN and division by 0, the C library divides bit by bit; a loop over elements looks at a
block of operands first (`loops`).

Source: J.-M. Muller et al., "Handbook of floating-point arithmetic", 2nd edition, 2018, section
4.8.1 (remainders are exact).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import fma
from tinytorch.jit.library import kernel

__all__ = ["LARGEST", "LIMIT", "floor_divide", "remainder"]

LIMIT = 2.0**21  # q is exact in float32, and so is 1 less
LARGEST = 1e32  # LIMIT times it is finite in float32

exactly_rounded = kernel(fastmath=frozenset(), force_inline=True)


@exactly_rounded
def _divided(a: Any, b: Any) -> Any:
    """q, r, and whether q is one too large."""
    q = np.floor(a / b)
    r = fma(-q, b, a)
    return q, r, (r != 0) & ((r < 0) != (b < 0))


@exactly_rounded
def floor_divide(a: Any, b: Any) -> Any:
    """floor(a / b)"""
    q, _, is_over = _divided(a, b)
    return q - 1 if is_over else q


@exactly_rounded
def remainder(a: Any, b: Any) -> Any:
    """a - b floor(a / b), with the sign of b, also where it is 0."""
    _, r, is_over = _divided(a, b)
    r = r + b if is_over else r
    return np.copysign(r, b) if r == 0 else r
