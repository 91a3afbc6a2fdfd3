"""Arrays in memory that two processes share: a parent that fills it, and a worker.

An array is described by a small dict, so that the worker needs nothing else from the parent. The
worker's copy of the mapping is its own to write to; what is in it proves nothing until it is
checked.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ALIGNMENT = 64  # a cache line


class Placed(TypedDict):
    """Where an array lies.

    Attributes:
        offset: its first byte.
        shape: as its user sees it.
        dtype: as NumPy writes it.
        transposed: its last two dimensions lie in the other order.
    """

    offset: int
    shape: list[int]
    dtype: str
    transposed: bool


class Arena:
    """A mapping, and the arrays in it."""

    def __init__(self, descriptor: int, size: int) -> None:
        # on Linux all pages are there at once, and no measured call is the first to touch one
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self.memory = mmap.mmap(descriptor, size, flags)
        self.size = size

    def view(self, placed: Placed) -> Array:
        """The array that lies there."""
        shape = list(placed["shape"])
        if placed["transposed"]:
            shape[-2:] = shape[:-3:-1]
        array = np.ndarray(shape, placed["dtype"], self.memory, placed["offset"])
        return array.swapaxes(-1, -2) if placed["transposed"] else array


def place(arrays: Sequence[tuple[tuple[int, ...], np.dtype[Any], bool]], size: int) -> list[Placed]:
    """Places for arrays of these shapes, dtypes and orders, one after the other.

    Raises:
        ValueError: they do not fit.
    """
    placed: list[Placed] = []
    offset = 0
    for shape, dtype, transposed in arrays:
        placed.append(
            {"offset": offset, "shape": list(shape), "dtype": dtype.str, "transposed": transposed}
        )
        bytes_ = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        offset += -(-bytes_ // ALIGNMENT) * ALIGNMENT
    if offset > size:
        raise ValueError(f"these arrays need {offset:,} bytes, and the shared memory has {size:,}")
    return placed
