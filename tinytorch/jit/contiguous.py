"""Contiguous copies: of a matrix that is stored by columns tile by tile, not number by number.

Along a row such a matrix has each number in another cache line. Where its columns are a power of
two long, these lines all fall into the same sets of the cache, and one is gone before its next
number is asked for. A tile reads whole lines, and writes whole lines. (With other lengths the lines
stay, and NumPy's loop is as fast.)

Source: M. Lam, E. Rothberg, M. Wolf, "The cache performance and optimizations of blocked
algorithms", ASPLOS 1991.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinytorch.dtypes import Array, Shape
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel

TILE = 64  # numbers: several lines in a row of each page that a tile visits
SHARING = 512  # bytes: rows in so many, or a multiple, have their lines in few sets of the caches
MOST_COPIES = 16  # of a number in a row, which NumPy's loop of a strided copy writes one by one

_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@kernel
def _transpose(x: Array, out: Array, turn_rows: bool, turn_columns: bool) -> None:
    """x (batch, columns, rows) into out (batch, rows, columns), whose dimensions may be turned."""
    tile = np.empty((TILE, TILE), x.dtype)
    for b in range(x.shape[0]):
        source, target = x[b], out[b]
        columns, rows = source.shape
        for i in range(0, rows, TILE):
            height = min(TILE, rows - i)
            for j in range(0, columns, TILE):
                width = min(TILE, columns - j)
                for c in range(width):
                    line, place = source[j + c], tile[c]
                    part = line[i : i + height]
                    for r in range(part.size):
                        place[r] = part[r]
                for r in range(height):
                    line = target[rows - 1 - i - r if turn_rows else i + r]
                    if turn_columns:
                        part = line[columns - j - width : columns - j]
                        for c in range(part.size):
                            part[c] = tile[width - 1 - c, r]
                    else:
                        part = line[j : j + width]
                        for c in range(part.size):
                            part[c] = tile[c, r]


@kernel
def _reverse(x: Array, out: Array) -> None:
    """Each row of x (rows, n) from its last number to its first."""
    last = np.uint64(x.shape[1] - 1)
    for i in range(x.shape[0]):
        row, reversed_row = x[i], out[i]
        for j in range(np.uint64(row.size)):  # with a sign, each index would be asked whether it
            reversed_row[j] = row[last - j]  # counts from the end: no vector code


@kernel
def _exchange(x: Array, out: Array) -> None:
    """x (batch, q, r, n) into out (batch, r, q, n)."""
    for b in range(np.uint64(x.shape[0])):  # unsigned: see `_reverse`
        for r in range(np.uint64(x.shape[2])):
            for q in range(np.uint64(x.shape[1])):
                row, target = x[b, q, r], out[b, r, q]
                for i in range(np.uint64(row.size)):
                    target[i] = row[i]


def _by_strides(strides: Sequence[int]) -> tuple[int, ...]:
    """The order of dimensions in which strides descend."""
    return tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))


def order_in_memory(arrays: Sequence[Array]) -> tuple[int, ...] | None:
    """The order of dimensions in which arrays of one shape are C-contiguous; None for no order.

    Also None where the first is C-contiguous as it is: then there is nothing to turn.
    """
    if arrays[0].flags.c_contiguous:
        return None
    order = _by_strides(arrays[0].strides)
    return order if all(x.transpose(order).flags.c_contiguous for x in arrays) else None


def order_of_strides(arrays: Sequence[Array]) -> tuple[int, ...] | None:
    """The order of dimensions in which all strides descend, of slices of arrays stored in it too.

    None where that is the order as it is, where arrays have several, or a number is repeated.
    """
    if arrays[0].flags.c_contiguous:
        return None
    order = _by_strides(arrays[0].strides)
    if order == tuple(range(len(order))):
        return None
    for x in arrays:
        ordered = [x.strides[d] for d in order]
        if ordered[-1] <= 0 or ordered != sorted(ordered, reverse=True):
            return None
    return order


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order that turns dimensions back."""
    return tuple(map(order.index, range(len(order))))


def _walked_forwards(x: Array) -> Array:
    """`x` with the last two dimensions in the order of memory."""
    last, other = x.strides[-1], x.strides[-2]
    if last >= 0 <= other:
        return x
    return x[..., :: -1 if other < 0 else 1, :: -1 if last < 0 else 1]


def pays_by_tiles(x: Array) -> bool:
    """Whether `x` is large and stored by columns whose numbers share sets of the caches.

    Then it has several rows and several columns, so that in C order it is a copy. Both may be
    walked backwards.
    """
    if x.nbytes < buffers.POOLED_FROM or x.ndim not in (2, 3) or x.itemsize not in _UNSIGNED:
        return False
    forwards = _walked_forwards(x)
    turned = forwards.swapaxes(-1, -2)
    is_turned = turned.flags.c_contiguous and not forwards.flags.c_contiguous
    return is_turned and not turned.strides[-2] % SHARING


def exchanged_rows(x: Array) -> Array | None:
    """The memory of a large array as (batch, q, r, n), if x is (batch, r, q, n) of it.

    Each of these may be several dimensions of x. So are heads, (batch, heads, time, width) of
    (batch, time, heads, width): NumPy copies a row of n at a time and looks around after each.
    """
    if x.nbytes < buffers.POOLED_FROM or x.itemsize not in _UNSIGNED or x.shape[-1] == 1:
        return None
    found = _exchange_of(x.shape, x.strides)
    if found is None:
        return None
    order, sizes = found
    ordered = x.transpose(order)
    return ordered.reshape(sizes) if ordered.flags.c_contiguous else None


@lru_cache(1024)
def _exchange_of(shape: Shape, strides: tuple[int, ...]) -> tuple[Shape, Shape] | None:
    """The order of dimensions in which strides descend, and (batch, q, r, n), if that order differs
    from theirs by an exchange of two neighbours, or of two groups of them."""
    order = _by_strides(strides)
    moved = [d for d, other in enumerate(order) if d != other]
    if not moved or moved[-1] == len(shape) - 1:
        return None
    first, last = moved[0], moved[-1] + 1
    split = order[first]
    if order[first:last] != (*range(split, last), *range(first, split)):
        return None
    parts = shape[:first], shape[split:last], shape[first:split], shape[last:]
    return order, tuple(map(math.prod, parts))


def in_order(x: Array) -> Array:
    """`x` itself if it is C-contiguous and aligned, as `FlatArray` takes it, otherwise a copy."""
    if not x.flags.aligned:
        return x.copy()
    is_small = x.nbytes < buffers.POOLED_FROM and x.ndim  # then NumPy's loop is the one to take
    return np.ascontiguousarray(x) if is_small else contiguous(x)


def contiguous(x: Array) -> Array:
    """`x` itself if it is C-contiguous, otherwise a copy that is."""
    if x.flags.c_contiguous:
        return x
    if x.nbytes >= buffers.POOLED_FROM and not x.strides[-1] and 1 < x.shape[-1] <= MOST_COPIES:
        return np.repeat(x[..., 0], x.shape[-1], -1).reshape(x.shape)
    if not pays_by_tiles(x):
        heads = exchanged_rows(x)
        if heads is not None:
            return _rows_exchanged(heads).reshape(x.shape)
        rows = _reversed_rows(x)
        if rows is not None:
            return _turned_back(rows).reshape(x.shape)
        copy = buffers.empty(x.shape, x.dtype)
        np.copyto(copy, x)
        return copy
    turned = _walked_forwards(x).swapaxes(-1, -2)
    out, bits = buffers.empty(x.shape, x.dtype), _UNSIGNED[x.itemsize]
    source = turned.view(bits).reshape(-1, *turned.shape[-2:])
    target = out.view(bits).reshape(-1, *x.shape[-2:])
    _transpose(source, target, x.strides[-2] < 0, x.strides[-1] < 0)
    return out


def _reversed_rows(x: Array) -> Array | None:
    """A large array that is C-contiguous but for its rows, which are walked backwards, as a matrix.

    Where all its dimensions are walked backwards it is one row. None for another array.
    """
    if not x.ndim or x.strides[-1] >= 0 or x.nbytes < buffers.POOLED_FROM:
        return None
    if x.itemsize not in _UNSIGNED:
        return None
    if x[..., ::-1].flags.c_contiguous:
        return x[..., ::-1].reshape(-1, x.shape[-1])
    all_forwards = x[(slice(None, None, -1),) * x.ndim]
    return all_forwards.reshape(1, -1) if all_forwards.flags.c_contiguous else None


def _turned_back(rows: Array) -> Array:
    out, bits = buffers.empty(rows.shape, rows.dtype), _UNSIGNED[rows.itemsize]
    _reverse(rows.view(bits), out.view(bits))
    return out


def _rows_exchanged(x: Array) -> Array:
    out, bits = buffers.empty(x.swapaxes(1, 2).shape, x.dtype), _UNSIGNED[x.itemsize]
    _exchange(x.view(bits), out.view(bits))
    return out
