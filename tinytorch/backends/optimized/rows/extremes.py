"""Where the largest and the smallest elements along a dimension are.

Along memory NumPy's vector code finds them. Across it, NumPy turns the array first; here the best
of each column so far, and where it was, stay in the cache while the rows pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends import reference
from tinytorch.backends.optimized.rows.reductions import above, below
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous, inverse, order_in_memory
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

LEAST_COLUMNS = 20  # NumPy turns an array of fewer in less time
_DTYPES = frozenset(map(np.dtype, (np.float32, np.float64, np.int64)))


def _places(beats: Callable[[Any, Any], Any]) -> Callable[..., None]:
    @kernel
    def columns(x: Array, out: Array) -> None:
        """x (outer, length, inner): of equal elements the first, and the first NaN before all."""
        if x.shape[2] == 1:
            for i in range(x.shape[0]):
                most, place = x[i, 0, 0], 0
                for j in range(1, x.shape[1]):
                    value = x[i, j, 0]
                    if beats(value, most) or (value != value and most == most):
                        most, place = value, j
                out[i, 0] = place
            return
        best = np.empty(x.shape[2], x.dtype)
        for i in range(x.shape[0]):
            first, at = x[i, 0], out[i]
            for k in range(best.size):
                best[k], at[k] = first[k], 0
            for j in range(1, x.shape[1]):
                row = x[i, j]
                for k in range(row.size):
                    is_first_nan = (row[k] != row[k]) & (best[k] == best[k])
                    wins = beats(row[k], best[k]) | is_first_nan
                    best[k] = row[k] if wins else best[k]
                    at[k] = j if wins else at[k]

    return columns


KERNELS = {"argmax": _places(above), "argmin": _places(below)}


def _along(columns: Callable[..., None], otherwise: Callable[..., Array]) -> Callable[..., Array]:
    run = shared(columns, "x[:], out[:]")

    def place(a: Array, *, dim: int, keepdim: bool) -> Array:
        order = order_in_memory([a]) or tuple(range(a.ndim))
        turned = a.transpose(order)
        at = order.index(dim)
        shape = turned.shape
        inner = math.prod(shape[at + 1 :])
        if inner < LEAST_COLUMNS or a.dtype not in _DTYPES or not a.size:
            return otherwise(a, dim=dim, keepdim=keepdim)
        x = contiguous(turned).reshape(-1, shape[at], inner)
        out = buffers.empty((x.shape[0], inner), np.dtype(np.int64))
        run(a.size, x, out)
        found = out.reshape(*shape[:at], 1, *shape[at + 1 :]).transpose(inverse(order))
        return found if keepdim else found.reshape(a.shape[:dim] + a.shape[dim + 1 :])

    return place


argmax = _along(KERNELS["argmax"], reference.argmax)
"""Index of the first largest element along `dim`; that of a NaN, if there is one."""

argmin = _along(KERNELS["argmin"], reference.argmin)
"""Index of the first smallest element along `dim`; that of a NaN, if there is one."""
