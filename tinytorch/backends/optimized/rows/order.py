"""The indices that sort an array along a dimension.

NumPy sorts whole numbers, and finds the order of any, with vector instructions, but not so that
equal elements keep theirs. So a number of 32 bits and its index become one whole number of 64, no
two of which are equal; for the wider types, the indices of equal elements are sorted afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT, order_key
from tinytorch.backends.optimized.rows.rows import as_rows, from_rows
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel

_LOW = 0xFFFFFFFF
_SINGLE, _INT64 = np.dtype(np.float32), np.dtype(np.int64)


@kernel(fastmath=EXACT)
def _pack_numbers(x: Array, out: Array, mask: int) -> None:
    """(key << 32) + index, of float32 with NaN as the largest; `mask` -1 turns the order."""
    largest = np.int64(0x7FFFFFFF)
    for i in range(x.shape[0]):
        row, packed = x[i], out[i]
        for j in range(row.size):
            number = row[j] + np.float32(0)  # -0.0 equals 0.0
            key = largest if number != number else np.int64(order_key(number))
            packed[j] = ((key ^ mask) << np.int64(32)) | np.int64(j)


@kernel
def _pack_integers(x: Array, out: Array, mask: int) -> None:
    for i in range(x.shape[0]):
        row, packed = x[i], out[i]
        for j in range(row.size):
            packed[j] = ((np.int64(row[j]) ^ mask) << np.int64(32)) | np.int64(j)


@kernel
def _unpack(packed: Array) -> None:
    """The indices, in place."""
    flat = packed.reshape(-1)
    for i in range(flat.size):
        flat[i] &= _LOW


@kernel(fastmath=EXACT)
def _order_of_equals(x: Array, order: Array, descending: bool) -> None:
    """Sort the indices of equal neighbours in place, and turn the whole if `descending`."""
    for i in range(x.shape[0]):
        row, indices = x[i], order[i]
        first, n = 0, indices.size
        while first < n:
            a, last = row[indices[first]], first + 1
            while last < n and (row[indices[last]] == a or (a != a)):  # NaN are at the end
                last += 1
            if last - first > 1:
                indices[first:last].sort()
                if descending:
                    indices[first:last] = indices[first:last][::-1].copy()
            first = last
        if descending:
            indices[:] = indices[::-1].copy()


def argsort(a: Array, *, dim: int, descending: bool) -> Array:
    """Indices that sort `a` along `dim`, as int64; equal elements keep their order, NaN is largest.

    Args:
        a: float32, float64 or integers, of any shape.
        descending: the largest first.
    """
    rows: Any = as_rows(a, dim)
    is_narrow = a.dtype.kind != "f" and a.dtype.itemsize <= 4
    if a.dtype is _SINGLE or is_narrow:
        order = buffers.empty(rows.shape, _INT64)
        (_pack_integers if is_narrow else _pack_numbers)(rows, order, -1 if descending else 0)
        order.sort(axis=-1)
        _unpack(order)
    else:
        order = np.argsort(rows, axis=-1)
        _order_of_equals(rows, order, descending)
    return from_rows(order, a, dim)
