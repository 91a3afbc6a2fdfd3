"""Contiguous copies: of a matrix that is stored by columns tile by tile, not number by number.

Along a row such a matrix has each number in another cache line. Where its columns are a power of
two long, these lines all fall into the same sets of the cache, and one is gone before its next
number is asked for. A tile reads whole lines, and writes whole lines. (With other lengths the lines
stay, and NumPy's loop is as fast.)

Source: M. Lam, E. Rothberg, M. Wolf, "The cache performance and optimizations of blocked
algorithms", ASPLOS 1991.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel

TILE = 64  # numbers: several lines in a row of each page that a tile visits
SHARING = 512  # bytes: rows in so many, or a multiple, have their lines in few sets of the caches

_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@kernel
def _transpose(x: Array, out: Array) -> None:
    """x (batch, columns, rows) into out (batch, rows, columns)."""
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
                    line = target[i + r]
                    part = line[j : j + width]
                    for c in range(part.size):
                        part[c] = tile[c, r]


def order_in_memory(arrays: Sequence[Array]) -> tuple[int, ...] | None:
    """The order of dimensions in which arrays of one shape are C-contiguous; None for no order.

    Also None where the first is C-contiguous as it is: then there is nothing to turn.
    """
    if arrays[0].flags.c_contiguous:
        return None
    strides = arrays[0].strides
    order = tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))
    return order if all(x.transpose(order).flags.c_contiguous for x in arrays) else None


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order that turns dimensions back."""
    return tuple(map(order.index, range(len(order))))


def pays_by_tiles(x: Array) -> bool:
    """Whether `x` is large and stored by columns whose numbers share sets of the caches.

    Then it has several rows and several columns, so that in C order it is a copy.
    """
    if x.nbytes < buffers.POOLED_FROM or x.ndim not in (2, 3) or x.itemsize not in _UNSIGNED:
        return False
    turned = x.swapaxes(-1, -2)
    is_turned = turned.flags.c_contiguous and not x.flags.c_contiguous
    return is_turned and not turned.strides[-2] % SHARING


def in_order(x: Array) -> Array:
    """`x` itself if it is C-contiguous and aligned, as `FlatArray` takes it, otherwise a copy."""
    return contiguous(x) if x.flags.aligned else x.copy()


def contiguous(x: Array) -> Array:
    """`x` itself if it is C-contiguous, otherwise a copy that is."""
    if x.flags.c_contiguous:
        return x
    if not pays_by_tiles(x):
        return np.ascontiguousarray(x)
    turned = x.swapaxes(-1, -2)
    out, bits = buffers.empty(x.shape, x.dtype), _UNSIGNED[x.itemsize]
    three = (-1, *x.shape[-2:])
    _transpose(turned.view(bits).reshape(-1, *turned.shape[-2:]), out.view(bits).reshape(three))
    return out
