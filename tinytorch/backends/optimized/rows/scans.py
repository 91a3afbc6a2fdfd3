"""Running sums and products along a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

TOGETHER = 4  # rows: each addition waits for the one before it in its row


@kernel(force_inline=True)
def _plus(a: Any, b: Any) -> Any:
    return a + b


@kernel(force_inline=True)
def _times(a: Any, b: Any) -> Any:
    return a * b


def _scan(combine: Callable[[Any, Any], Any], start: float) -> Callable[..., Array]:
    @kernel(fastmath=EXACT)
    def rows(x: Array, out: Array) -> None:
        """Along each row, in float64."""
        count, n = x.shape
        whole = count // TOGETHER * TOGETHER
        for i in range(0, whole, TOGETHER):
            a, b, c, d = start, start, start, start
            for j in range(n):
                a, b = combine(a, x[i, j]), combine(b, x[i + 1, j])
                c, d = combine(c, x[i + 2, j]), combine(d, x[i + 3, j])
                out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j] = a, b, c, d
        for i in range(whole, count):
            a = start
            for j in range(n):
                a = combine(a, x[i, j])
                out[i, j] = a

    @kernel(fastmath=EXACT)
    def columns(x: Array, out: Array) -> None:
        """x (outer, length, inner): each row with what came of those before it."""
        for i in range(x.shape[0]):
            for k in range(x.shape[2]):
                out[i, 0, k] = x[i, 0, k]
            for j in range(1, x.shape[1]):
                before, row, now = out[i, j - 1], x[i, j], out[i, j]
                for k in range(row.size):
                    now[k] = combine(before[k], row[k])

    run_rows, run_columns = (shared(f, "x[:], out[:]") for f in (rows, columns))

    def scan(a: Array, *, dim: int) -> Array:
        out = buffers.empty(a.shape, a.dtype)
        if not a.size:
            return out
        inner, source = math.prod(a.shape[dim + 1 :]), np.ascontiguousarray(a)
        if inner == 1:
            shape: tuple[int, ...] = (-1, a.shape[dim])
            run_rows(2 * a.size, source.reshape(shape), out.reshape(shape))
        else:
            shape = (-1, a.shape[dim], inner)
            run_columns(a.size, source.reshape(shape), out.reshape(shape))
        return out

    return scan


_cumsum, _cumprod = _scan(_plus, 0.0), _scan(_times, 1.0)


def cumsum(a: Array, *, dim: int) -> Array:
    """out[i] = a[0] + ... + a[i] along `dim`, of float32 or float64."""
    return _cumsum(a, dim=dim)


def cumprod(a: Array, *, dim: int) -> Array:
    """out[i] = a[0] * ... * a[i] along `dim`, of float32 or float64."""
    return _cumprod(a, dim=dim)
