"""Running sums along a dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

TOGETHER = 4  # rows: each addition waits for the one before it in its row


@kernel(fastmath=EXACT)
def _sum_along_rows(x: Array, out: Array) -> None:
    """Each row summed up in float64."""
    rows, n = x.shape
    whole = rows // TOGETHER * TOGETHER
    for i in range(0, whole, TOGETHER):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for j in range(n):
            a += x[i, j]
            b += x[i + 1, j]
            c += x[i + 2, j]
            d += x[i + 3, j]
            out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j] = a, b, c, d
    for i in range(whole, rows):
        total = 0.0
        for j in range(n):
            total += x[i, j]
            out[i, j] = total


@kernel(fastmath=EXACT)
def _sum_down_columns(x: Array, out: Array) -> None:
    """x (outer, length, inner): each row is added to the sum of those before it."""
    for i in range(x.shape[0]):
        for k in range(x.shape[2]):
            out[i, 0, k] = x[i, 0, k]
        for j in range(1, x.shape[1]):
            before, row, now = out[i, j - 1], x[i, j], out[i, j]
            for k in range(row.size):
                now[k] = before[k] + row[k]


_rows, _columns = (shared(f, "x[:], out[:]") for f in (_sum_along_rows, _sum_down_columns))


def cumsum(a: Array, *, dim: int) -> Array:
    """out[i] = a[0] + ... + a[i] along `dim`, of float32 or float64."""
    out = buffers.empty(a.shape, a.dtype)
    if not a.size:
        return out
    inner: Any = math.prod(a.shape[dim + 1 :])
    source = np.ascontiguousarray(a)
    if inner == 1:
        shape: tuple[int, ...] = (-1, a.shape[dim])
        _rows(2 * a.size, source.reshape(shape), out.reshape(shape))
    else:
        shape = (-1, a.shape[dim], inner)
        _columns(a.size, source.reshape(shape), out.reshape(shape))
    return out
