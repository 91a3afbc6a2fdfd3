"""Cross products of vectors of three components."""

from __future__ import annotations

import math

from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

# A product that is not rounded before the other is subtracted would give a vector a cross product
# with itself.
ROUNDED: frozenset[str] = frozenset()


@kernel(fastmath=ROUNDED)
def _cross_rows(a: Array, b: Array, out: Array) -> None:
    """Arrays (n, 3)."""
    for i in range(a.shape[0]):
        a0, a1, a2, b0, b1, b2 = a[i, 0], a[i, 1], a[i, 2], b[i, 0], b[i, 1], b[i, 2]
        out[i, 0], out[i, 1] = a1 * b2 - a2 * b1, a2 * b0 - a0 * b2
        out[i, 2] = a0 * b1 - a1 * b0


@kernel(fastmath=ROUNDED)
def _cross_columns(a: Array, b: Array, out: Array) -> None:
    """Arrays (outer, 3, inner)."""
    for i in range(a.shape[0]):
        for k in range(3):
            a1, a2 = a[i, (k + 1) % 3], a[i, (k + 2) % 3]
            b1, b2, row = b[i, (k + 1) % 3], b[i, (k + 2) % 3], out[i, k]
            for j in range(row.size):
                row[j] = a1[j] * b2[j] - a2[j] * b1[j]


KERNELS = _cross_rows, _cross_columns
"""Of rows (n, 3), and of columns (outer, 3, inner)."""

_run_rows, _run_columns = (shared(f, "a[:], b[:], out[:]") for f in KERNELS)


def cross(a: Array, b: Array, *, dim: int) -> Array:
    """The cross product along `dim`, of float32, float64 or int64."""
    out = buffers.empty(a.shape, a.dtype)
    if not a.size:
        return out
    if a.ndim == 2 and dim == 1:
        _run_rows(2 * a.size, contiguous(a), contiguous(b), out)
        return out
    inner = math.prod(a.shape[dim + 1 :])
    shape = (-1, 3) if inner == 1 else (-1, 3, inner)
    run = _run_rows if inner == 1 else _run_columns
    run(2 * a.size, *(contiguous(t).reshape(shape) for t in (a, b)), out.reshape(shape))
    return out
