"""Borders: of a constant, or of what the tensor has at its edges."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from tinytorch.dtypes import Array, Shape
from tinytorch.errors import ShapeError
from tinytorch.functions import movement
from tinytorch.functions.movement import narrow
from tinytorch.nn.functional.grid import Grid, grid_of, select
from tinytorch.tensor import Tensor

# Where in a row position i of the padded row is read; i counts from the row's start. Of the row,
# elements first, ..., end - 1 are left by negative borders.
_SOURCES: dict[str, Callable[[Array, int, int, int], Array]] = {
    "reflect": lambda i, n, first, end: (n - 1) - np.abs((n - 1) - np.abs(i)),
    "replicate": lambda i, n, first, end: np.clip(i, 0, n - 1),
    "circular": lambda i, n, first, end: first + (i - first) % (end - first),
}


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """A border around the last dimensions; a negative one cuts off.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, and so on.
        mode: "constant" for `value`; "reflect" for the elements next to the edge in reverse order,
            the edge's own left out; "replicate" for the edge's; "circular" for the other end's.
        value: of the constant, by default 0.

    Raises:
        ValueError: another mode; padding of odd length or longer than the dimensions.
        TypeError: a width is not a whole number.
        ShapeError: a reflected or circular border is wider than what it is made of, or nothing
            is left.

    >>> import tinytorch
    >>> pad(tinytorch.tensor([[1, 2, 3]]), (2, 1), "reflect")
    tensor([[3, 2, 1, 2, 3, 2]])
    """
    sizes = tuple(operator.index(p) for p in pad)
    if len(sizes) % 2 or len(sizes) > 2 * input.ndim:
        raise ValueError(f"pad: {sizes} is not (before, after) pairs for shape {input.shape}")
    if mode == "constant":
        added = tuple(max(p, 0) for p in sizes)
        out = movement.pad(input, added, value=0 if value is None else value)
        return _crop(out, sizes)
    if mode not in _SOURCES:
        known = ", ".join(["constant", *_SOURCES])
        raise ValueError(f"pad: mode must be one of {known}, not {mode!r}")
    out = select(input, _bordered(input.shape, sizes, mode))
    return input.clone() if out is input else out


def _crop(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """What negative padding leaves."""
    for i in range(len(sizes) // 2):
        before, after = min(sizes[2 * i], 0), min(sizes[2 * i + 1], 0)
        if before or after:
            dim = x.ndim - 1 - i
            x = narrow(x, dim, -before, x.shape[dim] + before + after)
    return x


@lru_cache(maxsize=16)  # of large images they are large themselves
def _bordered(shape: Shape, sizes: tuple[int, ...], mode: str) -> Grid:
    """Where the elements of the padded dimensions are read."""
    count = len(sizes) // 2
    dims = range(len(shape) - count, len(shape))
    pairs = [(sizes[i], sizes[i + 1]) for i in range(2 * count - 2, -1, -2)]
    positions = [_source(shape, d, *pair, mode) for d, pair in zip(dims, pairs, strict=True)]
    return grid_of(positions, shape[len(shape) - count :])


def _source(shape: Shape, dim: int, before: int, after: int, mode: str) -> Array:
    """Positions in dimension `dim` of what it and its border hold."""
    extent = shape[dim]
    first, end = max(-before, 0), extent - max(-after, 0)
    limits = {"reflect": extent - 1, "circular": end - first, "replicate": np.inf if extent else 0}
    if max(before, after) > limits[mode]:
        raise ShapeError(
            f"pad: a {mode} border of {max(before, after)} is too wide for dimension {dim} of "
            f"shape {shape}"
        )
    if before == after == 0:
        return np.arange(extent)
    if extent + before + after < 1:
        raise ShapeError(f"pad: {before} and {after} leave nothing of dimension {dim} of {shape}")
    return _SOURCES[mode](np.arange(-before, extent + after), extent, first, end)
