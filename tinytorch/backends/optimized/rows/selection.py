"""The indices at some places in the order of a dimension, without sorting the rest.

Where only the first few of a row are asked for, it is divided into groups. Vector code finds the
first of each, and the last of the few is not behind as many of these: only a few groups are looked
at element by element. Otherwise NumPy's selection (with vector instructions, where there are) finds
which element is in the last place; those before it are then picked out, and only they are sorted.
Of equal elements the one with the smaller index is first.

Source: C. Hoare, "Algorithm 65: find", 1961.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.backends.optimized.rows.order import argsort, number_key, single_key
from tinytorch.backends.optimized.rows.rows import as_rows, from_rows
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

FEW = 32  # places: each element that is among them moves up to as many
GROUP = 16  # elements, as far from each other as there are groups
# Numbers of a row, and of all, that are sorted in less than calls take; and the part of a row whose
# first numbers are found in less.
SHORT, SMALL, PART = 256, 4096, 8

_INT64 = np.dtype(np.int64)


@kernel(force_inline=True)
def whole_key(number: Any, mask: int) -> Any:
    return np.int64(number) ^ mask


@kernel(force_inline=True)
def insert(keys: Array, indices: Array, end: int, key: int, index: int) -> None:
    """Put a key in order before `end`, of equal ones by their indices; what is at `end` is lost."""
    while end > 0 and (keys[end - 1] > key or (keys[end - 1] == key and indices[end - 1] > index)):
        keys[end], indices[end] = keys[end - 1], indices[end - 1]
        end -= 1
    keys[end], indices[end] = key, index


@kernel(force_inline=True)
def insert_among(keys: Array, indices: Array, end: int, key: int, index: int) -> int:
    """Put a key in order among `end`, if there is room or it is before the last; 1 if these are one
    more."""
    new = 1
    if end == keys.size:
        new, end = 0, end - 1
        if keys[end] < key or (keys[end] == key and indices[end] < index):
            return new
    insert(keys, indices, end, key, index)
    return new


@kernel(force_inline=True)
def _place_of(firsts: Array, count: int, kept: Array) -> int:
    """The number at place `count - 1` in the order of some, by a walk that keeps the first ones."""
    for j in range(count):
        insert(kept, kept, j, firsts[j], firsts[j])
    for j in range(count, firsts.size):
        if firsts[j] < kept[count - 1]:
            insert(kept, kept, count - 1, firsts[j], firsts[j])
    found: int = kept[count - 1]
    return found


def _first_of(key_of: Any, key_type: Any) -> Any:
    largest = key_type(np.iinfo(key_type).max)

    @kernel(fastmath=EXACT)
    def first(x: Array, out: Array, mask: int) -> None:
        """The indices of the first out.shape[1] elements of each row in order."""
        n, count = x.shape[1], out.shape[1]
        groups = -(-n // GROUP)
        keys, firsts = np.empty(n, key_type), np.empty(groups, key_type)
        best = np.empty(count, key_type)
        for i in range(x.shape[0]):
            row, indices, limit, found = x[i], out[i], largest, 0
            for j in range(n):
                keys[j] = key_of(row[j], mask)
            firsts[:] = keys[:groups]
            for begin in range(groups, n, groups):
                part = keys[begin : begin + groups]
                for g in range(part.size):
                    firsts[g] = min(firsts[g], part[g])
            if count <= groups:
                limit = _place_of(firsts, count, best)
            for g in range(groups):
                if firsts[g] <= limit:
                    for j in range(g, n, groups):
                        if keys[j] <= limit:
                            found += insert_among(best, indices, found, keys[j], j)

    return shared(first, "x[:], out[:], mask")


def _selection(key_of: Any) -> tuple[Any, Any]:
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
        shared(at, "x[:], selected[:], out[:], mask, place"),
        shared(until, "x[:], selected[:], out[:], mask"),
    )


_of_floats, _of_integers = _selection(number_key), _selection(whole_key)
_first_of_singles, _first_of_doubles, _first_of_integers = (
    _first_of(single_key, np.int32), _first_of(number_key, np.int64), _first_of(whole_key, np.int64)
)  # fmt: skip


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
    mask, count = -1 if descending else 0, rows.shape[0]
    shape = (*a.shape[:dim], length, *a.shape[dim + 1 :])
    if not count * length:
        return np.empty(shape, _INT64)
    if stop <= FEW:
        indices = buffers.empty((count, stop), _INT64)
        is_double = a.dtype.itemsize == 8
        first = _first_of_doubles if is_double else _first_of_singles
        first = first if a.dtype.kind == "f" else _first_of_integers
        first(2 * rows.size, rows, indices, mask)
        return from_rows(np.ascontiguousarray(indices[:, start:]), shape, dim)
    at, until = _of_floats if a.dtype.kind == "f" else _of_integers
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
