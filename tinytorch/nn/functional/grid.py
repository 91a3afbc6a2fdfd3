"""Elements at a grid of positions: what borders and windows of images are read by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.dtypes import Array, Shape
from tinytorch.functions.indexing import index_select
from tinytorch.functions.movement import reshape
from tinytorch.tensor import Tensor


class Grid(NamedTuple):
    """Every combination of positions of some neighbouring dimensions.

    first, last: these dimensions, the last included, counted from the end (-1 is the last); 0 and 0
        where nothing is left out, doubled or moved.
    places: the position of each element in what these dimensions hold, flattened.
    lengths: how many positions there are in each.
    """

    first: int
    last: int
    places: Array
    lengths: Shape


def grid_of(positions: Sequence[Array], sizes: Sequence[int]) -> Grid:
    """The grid of int64 positions of the last dimensions, which have these sizes."""
    count = len(sizes)
    moved = [
        d for d, (p, n) in enumerate(zip(positions, sizes, strict=True))
        if len(p) != n or (p != np.arange(n)).any()
    ]  # fmt: skip
    if not moved:
        return Grid(0, 0, np.arange(0), ())
    read = slice(moved[0], moved[-1] + 1)
    index = np.ravel_multi_index(np.ix_(*positions[read]), tuple(sizes[read]))
    lengths = tuple(len(p) for p in positions[read])
    return Grid(moved[0] - count, moved[-1] - count, index.reshape(-1), lengths)


def select(x: Tensor, grid: Grid) -> Tensor:
    """The elements of x at a grid, in one pass over them; x itself where that is all of it."""
    if not grid.lengths:
        return x
    first, last = grid.first + x.ndim, grid.last + x.ndim + 1
    index = from_numpy(grid.places)
    if last - first == 1:
        return index_select(x, first, index)
    front, back = x.shape[:first], x.shape[last:]
    flat = reshape(x, (*front, math.prod(x.shape[first:last]), *back))
    return reshape(index_select(flat, first, index), (*front, *grid.lengths, *back))
