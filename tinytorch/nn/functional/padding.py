"""Borders: of a constant, or of what the tensor has at its edges."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.dtypes import Array
from tinytorch.errors import ShapeError
from tinytorch.functions import movement
from tinytorch.functions.indexing import index_select
from tinytorch.functions.movement import narrow
from tinytorch.tensor import Tensor

# Where in a row of n elements position i of the padded row is read; i counts from the row's start.
_SOURCES: dict[str, Callable[[Array, int], Array]] = {
    "reflect": lambda i, n: (n - 1) - np.abs((n - 1) - np.abs(i)),
    "replicate": lambda i, n: np.clip(i, 0, n - 1),
    "circular": lambda i, n: i % n,
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
    for i in range(len(sizes) // 2):
        input = _extended(input, input.ndim - 1 - i, sizes[2 * i], sizes[2 * i + 1], mode)
    return input


def _crop(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """What negative padding leaves."""
    for i in range(len(sizes) // 2):
        before, after = min(sizes[2 * i], 0), min(sizes[2 * i + 1], 0)
        if before or after:
            dim = x.ndim - 1 - i
            x = narrow(x, dim, -before, x.shape[dim] + before + after)
    return x


def _extended(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    extent = x.shape[dim]
    limit = {"reflect": extent - 1, "circular": extent, "replicate": np.inf if extent else 0}[mode]
    if max(before, after) > limit:
        raise ShapeError(
            f"pad: a {mode} border of {max(before, after)} is too wide for dimension {dim} of "
            f"shape {x.shape}"
        )
    if before == after == 0:
        return x
    if extent + before + after < 1:
        raise ShapeError(f"pad: {before} and {after} leave nothing of dimension {dim} of {x.shape}")
    positions = _SOURCES[mode](np.arange(-before, extent + after), extent)
    return index_select(x, dim, from_numpy(positions.astype(np.int64)))
