"""The indices at some places in the order of a dimension, without sorting the rest.

The first few of a row are found in one walk along it: most elements are larger than the largest of
the few so far, which 16 comparisons at a time say. Otherwise NumPy's selection (with vector
instructions, where there are) finds which element is in the last place; those before it are then
picked out, and only they are sorted. Of equal elements the one with the smaller index is first.

Source: C. Hoare, "Algorithm 65: find", 1961.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.rows.order import argsort, number_key
from tinytorch.backends.optimized.rows.rows import as_rows, from_rows
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

FEW = 32  # places: each element that is among them moves up to as many
AT_ONCE = 16  # comparisons
# Numbers of a row, and of all, that are sorted in less than calls take; and the part of a row whose
# first numbers are found in less.
SHORT, SMALL, PART = 256, 4096, 8

_INT64 = np.dtype(np.int64)


@kernel(force_inline=True)
def whole_key(number: Any, mask: int) -> Any:
    return np.int64(number) ^ mask


@kernel(force_inline=True)
def insert(keys: Array, indices: Array, end: int, key: int, index: int) -> None:
    """Put a key in order before `end`, after those that are equal; what is at `end` is lost."""
    while end > 0 and keys[end - 1] > key:
        keys[end], indices[end] = keys[end - 1], indices[end - 1]
        end -= 1
    keys[end], indices[end] = key, index


def _selection(key_of: Any) -> tuple[Any, Any, Any]:
    @kernel(fastmath=EXACT)
    def first(x: Array, out: Array, mask: int) -> None:
        """The indices of the first out.shape[1] elements of each row in order, in one walk."""
        n, count = x.shape[1], out.shape[1]
        keys = np.empty(count, np.int64)
        whole = count + (n - count) // AT_ONCE * AT_ONCE
        for i in range(x.shape[0]):
            row, indices = x[i], out[i]
            for j in range(count):
                insert(keys, indices, j, key_of(row[j], mask), j)
            for begin in range(count, whole, AT_ONCE):
                last, is_before = keys[count - 1], 0
                for j in range(begin, begin + AT_ONCE):
                    is_before |= key_of(row[j], mask) < last
                if is_before:
                    for j in range(begin, begin + AT_ONCE):
                        key = key_of(row[j], mask)
                        if key < keys[count - 1]:
                            insert(keys, indices, count - 1, key, j)
            for j in range(whole, n):
                key = key_of(row[j], mask)
                if key < keys[count - 1]:
                    insert(keys, indices, count - 1, key, j)

    @kernel(fastmath=EXACT, force_inline=True)
    def count_before(row: Array, key: int, mask: int) -> int:
        before = 0
        for j in range(row.size):
            before += key_of(row[j], mask) < key
        return before

    @kernel(fastmath=EXACT)
    def at(x: Array, selected: Array, out: Array, mask: int, place: int) -> None:
        """The index of the element at a place in the order of each row, which `selected` equals."""
        for i in range(x.shape[0]):
            row, key = x[i], key_of(selected[i], mask)
            equals = place - count_before(row, key, mask)
            for j in range(row.size):
                if key_of(row[j], mask) == key:
                    out[i, 0] = j
                    if equals == 0:
                        break
                    equals -= 1

    @kernel(fastmath=EXACT)
    def until(x: Array, selected: Array, out: Array, mask: int) -> None:
        """In ascending order, the indices of the first elements, the last of which is `selected`'s
        equal."""
        count = out.shape[1]
        for i in range(x.shape[0]):
            row, indices, key = x[i], out[i], key_of(selected[i], mask)
            equals, n = count - count_before(row, key, mask), 0
            for j in range(row.size):
                if n == count:
                    break
                this = key_of(row[j], mask)
                is_equal = (this == key) & (equals > 0)
                equals -= is_equal
                indices[n] = j  # written over if it is none: no branch, which could not be foretold
                n += (this < key) | is_equal

    return (
        shared(first, "x[:], out[:], mask"),
        shared(at, "x[:], selected[:], out[:], mask, place"),
        shared(until, "x[:], selected[:], out[:], mask"),
    )


_of_floats, _of_integers = _selection(number_key), _selection(whole_key)


def pays_sorted(size: int, n: int, stop: int) -> bool:
    """Whether all of so many numbers in rows of n are sorted for the first of each up to `stop`."""
    return n <= SHORT and size <= SMALL and stop > n // PART


def partial_argsort(a: Array, *, dim: int, descending: bool, start: int, length: int) -> Array:
    """The indices at the places start, ..., start + length - 1 of `argsort`, as int64.

    Args:
        a: float32, float64 or integers, of any shape.
        descending: the largest first.
        start, length: within the size of `dim`.
    """
    stop, n = start + length, a.shape[dim]
    if pays_sorted(a.size, n, stop):
        order = argsort(a, dim=dim, descending=descending)
        return order[(slice(None),) * dim + (slice(start, stop),)].copy()
    rows: Any = as_rows(a, dim)
    first, at, until = _of_floats if a.dtype.kind == "f" else _of_integers
    mask, count = -1 if descending else 0, rows.shape[0]
    shape = (*a.shape[:dim], length, *a.shape[dim + 1 :])
    if not count * length:
        return np.empty(shape, _INT64)
    if stop <= FEW:
        indices = buffers.empty((count, stop), _INT64)
        first(2 * rows.size, rows, indices, mask)
        return from_rows(np.ascontiguousarray(indices[:, start:]), shape, dim)
    last = n - stop if descending else stop - 1
    in_parts = rows.copy()  # NumPy's function of that name is Python
    in_parts.partition(last)
    selected = in_parts[:, last].copy()
    if length == 1:
        indices = buffers.empty((count, 1), _INT64)
        at(2 * rows.size, rows, selected, indices, mask, start)
        return from_rows(indices, shape, dim)
    indices = buffers.empty((count, stop), _INT64)
    until(4 * rows.size, rows, selected, indices, mask)
    order = argsort(np.take_along_axis(rows, indices, -1), dim=1, descending=descending)
    return from_rows(np.take_along_axis(indices, order[:, start:], -1), shape, dim)
