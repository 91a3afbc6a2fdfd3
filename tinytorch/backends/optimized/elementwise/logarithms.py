"""Logarithms as polynomials: short straight-line code that LLVM vectorises, as in `math`.

| function | largest error, float32 | float64 | at the edges                                  |
|----------|------------------------|---------|-----------------------------------------------|
| log      | 1.0                    | 1.0     | -inf at 0, NaN below; subnormals are right    |
| log2     | 1.2                    | 1.2     | as log, and exact for powers of two           |
| log10    | 1.2                    | 1.2     | as log, and exact for powers of ten           |
| log1p    | 1.0                    | 1.0     | -inf at -1, NaN below; full accuracy near 0   |

NaN gives NaN.

Source: fdlibm, e_log.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import (
    DOUBLE,
    SINGLE,
    Format,
    by_type,
    exact_kernel,
    fma,
    polynomial,
)

__all__ = ["log", "log1p", "log2", "log10"]


def _make_log(f: Format) -> tuple[Callable[[Any], Any], ...]:
    """log, log1p, log2 and log10."""
    real, integer, mantissa = f.real, f.integer, f.mantissa
    bits, from_bits = f.bits, f.from_bits
    ln2_high, ln2_low, half, one, two = f.ln2_high, f.ln2_low, real(0.5), real(1), real(2)
    zero = real(0)
    smallest, infinity, nan = np.finfo(real).smallest_normal, real(math.inf), real(math.nan)
    infinity_bits = int(infinity.view(integer))
    lift_bits = integer(int(mantissa) + 2)
    lift = real(2.0 ** int(lift_bits))
    root_half_bits = int(real(math.sqrt(0.5)).view(integer))
    series = polynomial(f.log_terms, real)

    @exact_kernel
    def parts(x: Any) -> Any:
        """n, m, m^2 / 2 and r of  log(x) = n log(2) + m - (m^2 / 2 - r)  for 0 < x < inf; and what
        a logarithm is of any other x."""
        is_subnormal = x < smallest
        lifted = x * lift if is_subnormal else x
        pattern = bits(lifted)
        # x = 2**n (1 + m) with sqrt(1/2) <= 1 + m < sqrt(2)
        # numba computes with integers of 64 bits; what is of 32 is so after each step
        n = integer(integer(pattern - root_half_bits) >> mantissa)
        m = from_bits(pattern - (n << mantissa)) - one
        power = real(integer(n - lift_bits) if is_subnormal else n)
        s = m / (two + m)
        square = s * s
        tail = half * m * m
        above = x if x > zero else nan
        return power, m, tail, s * (tail + square * series(square)), -infinity if x == 0 else above

    @exact_kernel
    def is_ordinary(x: Any) -> Any:
        """Whether 0 < x < inf. Of comparisons of numbers LLVM makes a test of their class, by many
        instructions where the processor has none for it; of these, one."""
        return (bits(x) > 0) & (bits(x) < infinity_bits)

    @exact_kernel
    def log(x: Any) -> Any:
        power, m, tail, rest, edge = parts(x)
        result = power * ln2_high - ((tail - fma(power, ln2_low, rest)) - m)
        return result if is_ordinary(x) else edge

    @exact_kernel
    def log1p(x: Any) -> Any:
        total = one + x
        # what the sum lost by rounding; from the larger term's side
        low = x - (total - one) if x < one else one - (total - x)
        power, m, tail, rest, edge = parts(total)
        result = power * ln2_high - ((tail - (fma(power, ln2_low, rest) + low / total)) - m)
        result = result if is_ordinary(total) else edge
        return x if x == 0 else result

    def of_base(base: int) -> Callable[[Any], Any]:
        """log(x) / log(base). Both numbers are in two parts, and what is small is added first."""
        high, low = _two_parts(1 / Decimal(base).ln(), real)
        two_high, two_low = _two_parts(Decimal(2).ln() / Decimal(base).ln(), real)

        @exact_kernel
        def log_to_base(x: Any) -> Any:
            power, m, tail, rest, edge = parts(x)
            of_m = m - (tail - rest)
            lost = (m - of_m) - (tail - rest)
            small = fma(of_m, low, fma(lost, high, power * two_low))
            result = fma(power, two_high, fma(of_m, high, small))
            return result if is_ordinary(x) else edge

        return log_to_base

    return log, log1p, of_base(2), of_base(10)


def _two_parts(number: Decimal, real: Any) -> tuple[Any, Any]:
    """A number rounded, and what the rounding took away."""
    high = real(float(number))
    return high, real(float(number - Decimal(float(high))))


_logs = tuple(zip(_make_log(SINGLE), _make_log(DOUBLE), strict=True))

log = by_type(*_logs[0])
log1p = by_type(*_logs[1])
log2 = by_type(*_logs[2])
log10 = by_type(*_logs[3])
