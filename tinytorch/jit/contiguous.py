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
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.runs import FEWEST, copied_by_rows

TILE = 64  # numbers: several lines in a row of each page that a tile visits
SHARING = 512  # bytes: rows in so many, or a multiple, have their lines in few sets of the caches
FEW_COPIES, MOST_COPIES = 6, 16  # of a number: between these `np.repeat` is the fastest

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


def _by_strides(x: Array) -> tuple[int, ...]:
    """The order of dimensions in which strides descend. Those of length 1, whose strides mean
    nothing, come first."""
    strides = [math.inf if n == 1 else step for n, step in zip(x.shape, x.strides, strict=True)]
    return tuple(sorted(range(x.ndim), key=lambda d: -strides[d]))


def order_in_memory(arrays: Sequence[Array]) -> tuple[int, ...] | None:
    """The order of dimensions in which arrays of one shape are C-contiguous; None for no order.

    Also None where the first is C-contiguous as it is: then there is nothing to turn.
    """
    if arrays[0].flags.c_contiguous:
        return None
    order = _by_strides(arrays[0])
    return order if all(x.transpose(order).flags.c_contiguous for x in arrays) else None


def order_of_strides(arrays: Sequence[Array]) -> tuple[int, ...] | None:
    """The order of dimensions in which all strides descend, of slices of arrays stored in it too.

    None where that is the order as it is, where arrays have several, or a number is repeated.
    """
    if arrays[0].flags.c_contiguous:
        return None
    order = _by_strides(arrays[0])
    long = [d for d in order if arrays[0].shape[d] > 1]
    if long == sorted(long):
        return None
    for x in arrays:
        ordered = [x.strides[d] for d in long]
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


def in_order(x: Array) -> Array:
    """`x` itself if it is C-contiguous and aligned, as `FlatArray` takes it, otherwise a copy."""
    if not x.flags.aligned:
        return x.copy()
    is_small = x.size < FEWEST and x.ndim  # then NumPy's loop is the one to take
    return np.ascontiguousarray(x) if is_small else contiguous(x)


def contiguous(x: Array) -> Array:
    """`x` itself if it is C-contiguous, otherwise a copy that is."""
    if x.flags.c_contiguous:
        return x
    if not x.strides[-1] and FEW_COPIES < x.shape[-1] <= MOST_COPIES and x.size >= FEWEST:
        return np.repeat(x[..., 0], x.shape[-1], -1).reshape(x.shape)
    out = buffers.empty(x.shape, x.dtype)
    if not copied_by_rows(out, x):
        if pays_by_tiles(x):
            _copy_by_tiles(out, x)
        else:
            np.copyto(out, x)
    return out


def _copy_by_tiles(out: Array, x: Array) -> None:
    turned, bits = _walked_forwards(x).swapaxes(-1, -2), _UNSIGNED[x.itemsize]
    source = turned.view(bits).reshape(-1, *turned.shape[-2:])
    target = out.view(bits).reshape(-1, *x.shape[-2:])
    _transpose(source, target, x.strides[-2] < 0, x.strides[-1] < 0)
