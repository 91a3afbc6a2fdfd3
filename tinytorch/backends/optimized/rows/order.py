"""The indices that sort an array along a dimension.

NumPy sorts whole numbers, and finds the order of any, with vector instructions, but not so that
equal elements keep theirs. So a number of 32 bits and its index become one whole number of 64, no
two of which are equal. A float64 gives as many of its upper bits as its index leaves room for;
those that agree in them, a few, are sorted by all bits afterwards. An int64 counts from the
smallest of all; where that leaves no room for the index, the order is NumPy's, and the indices of
equal elements are sorted afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT, order_key
from tinytorch.backends.optimized.rows.rows import as_rows, from_rows
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel

LOW = 0xFFFFFFFF
_BITS = 63  # of an int64, but for its sign
_SINGLE, _DOUBLE, _INT64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)


@kernel(fastmath=EXACT)
def pack_numbers(x: Array, out: Array, mask: int) -> None:
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
def _pack_distances(x: Array, out: Array, end: int, descending: bool, bits: int) -> None:
    """The distance of each integer from the one at the end, above an index of so many bits."""
    for i in range(x.shape[0]):
        row, packed = x[i], out[i]
        for j in range(row.size):
            distance = end - row[j] if descending else row[j] - end
            packed[j] = (distance << bits) | np.int64(j)


@kernel
def unpack(packed: Array, low: int) -> None:
    """The indices, in place: the bits of `low`."""
    flat = packed.reshape(-1)
    for i in range(flat.size):
        flat[i] &= low


@kernel(fastmath=EXACT, force_inline=True)
def number_key(number: Any, mask: int) -> Any:
    """An int64 in the order of the numbers, NaN the largest; of mask -1 the smallest."""
    number += np.float32(0)  # -0.0 equals 0.0
    largest = np.int64(0x7FFFFFFFFFFFFFFF)
    return (largest if number != number else np.int64(order_key(number))) ^ mask


@kernel(fastmath=EXACT, force_inline=True)
def single_key(number: Any, mask: int) -> Any:
    """As `number_key`, of float32 as an int32."""
    largest = np.int32(0x7FFFFFFF)
    number += np.float32(0)  # -0.0 equals 0.0
    return (largest if number != number else np.int32(order_key(number))) ^ np.int32(mask)


@kernel(fastmath=EXACT)
def pack_doubles(x: Array, out: Array, mask: int, bits: int) -> None:
    """The upper bits of the key, and the index in the lower `bits`."""
    for i in range(x.shape[0]):
        row, packed = x[i], out[i]
        for j in range(row.size):
            packed[j] = (number_key(row[j], mask) >> bits << bits) | np.int64(j)


@kernel
def _sort_by(keys: Array, indices: Array) -> None:
    """Sort both by the keys, stably, by merging; numba's own sorts take seconds to compile."""
    n, width = keys.size, 1
    known, placed = keys, indices
    next_known, next_placed = np.empty_like(keys), np.empty_like(indices)
    while width < n:
        for first in range(0, n, 2 * width):
            middle, last = min(first + width, n), min(first + 2 * width, n)
            i, j = first, middle
            for k in range(first, last):
                if j >= last or (i < middle and known[i] <= known[j]):
                    next_known[k], next_placed[k] = known[i], placed[i]
                    i += 1
                else:
                    next_known[k], next_placed[k] = known[j], placed[j]
                    j += 1
        known, next_known = next_known, known
        placed, next_placed = next_placed, placed
        width *= 2
    for k in range(n):
        indices[k] = placed[k]


@kernel(fastmath=EXACT)
def _sort_stably(row: Array, indices: Array, mask: int) -> None:
    keys, is_sorted = np.empty_like(indices), True
    for k in range(keys.size):
        keys[k] = number_key(row[indices[k]], mask)
        is_sorted &= k == 0 or keys[k - 1] <= keys[k]
    if not is_sorted:
        _sort_by(keys, indices)


@kernel
def _reverse(indices: Array) -> None:
    last = indices.size - 1
    for k in range(indices.size // 2):
        indices[k], indices[last - k] = indices[last - k], indices[k]


@kernel(fastmath=EXACT)
def unpack_doubles(x: Array, packed: Array, mask: int, bits: int) -> None:
    """The indices, in place; those of equal upper bits in the order of all bits."""
    low = (np.int64(1) << bits) - np.int64(1)
    for i in range(x.shape[0]):
        row, order = x[i], packed[i]
        first, n = 0, order.size
        while first < n:
            upper, last = order[first] >> bits, first + 1
            order[first] &= low
            while last < n and order[last] >> bits == upper:
                order[last] &= low
                last += 1
            if last - first > 1:
                _sort_stably(row, order[first:last], mask)
            first = last


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
                equals = indices[first:last]
                _sort_by(equals.copy(), equals)
                if descending:
                    _reverse(equals)
            first = last
        if descending:
            _reverse(indices)


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
        (_pack_integers if is_narrow else pack_numbers)(rows, order, -1 if descending else 0)
        order.sort(axis=-1)
        unpack(order, LOW)
    elif a.dtype is _DOUBLE:
        order, bits = buffers.empty(rows.shape, _INT64), rows.shape[-1].bit_length()
        pack_doubles(rows, order, -1 if descending else 0, bits)
        order.sort(axis=-1)
        unpack_doubles(rows, order, -1 if descending else 0, bits)
    else:
        order = _of_integers(rows, descending)
    return from_rows(order, a.shape, dim)


def _of_integers(rows: Array, descending: bool) -> Array:
    bits = rows.shape[-1].bit_length()
    least, most = (int(m) for m in (rows.min(initial=0), rows.max(initial=0)))
    if (most - least).bit_length() + bits > _BITS:
        order = np.argsort(rows, axis=-1)
        _order_of_equals(rows, order, descending)
        return order
    order = buffers.empty(rows.shape, _INT64)
    _pack_distances(rows, order, most if descending else least, descending, bits)
    order.sort(axis=-1)
    unpack(order, (1 << bits) - 1)
    return order
