"""Elements by index, and put or added at an index, as NumPy functions."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from tinytorch.backends.reference_elementwise import quiet
from tinytorch.dtypes import Array, Shape

_INT64 = np.dtype(np.int64)
FEW = 4096  # positions found: that many are divided in less than the calls for whole rows take
LONG = 32  # places of a row on average: that many are copied faster than they are counted
_largest = np.maximum.reduce  # without the Python code of `max`


def is_within(data: Array, extent: int) -> Any:
    """Whether every index is in [0, extent): without its sign, a negative one is a large number."""
    if data.dtype is _INT64 and data.size:
        return _largest(data.view(np.uint64), None) < extent
    return not data.size or (data.min() >= 0 and data.max() < extent)


def bisected(rows: Array, values: Array, is_right: bool) -> Array:
    """Where values would be inserted into rows in ascending order, as int64; NaN is the largest.

    Args:
        rows: (n,), or (..., n) with the leading dimensions of the values.
        is_right: behind elements that are equal.
    """
    side: Literal["left", "right"] = "right" if is_right else "left"
    if rows.ndim == 1:  # the method: NumPy's function is Python
        return np.asarray(rows.searchsorted(values, side), np.int64)
    count = math.prod(rows.shape[:-1])
    lines = (a.reshape(count, a.shape[-1]) for a in (rows, values))
    found = [row.searchsorted(wanted, side) for row, wanted in zip(*lines, strict=True)]
    return np.array(found, np.int64).reshape(values.shape)


def drawn(weights: Array, u: Array) -> Array | None:
    """For each number in [0, 1) the index whose part of the sum of its row's weights it is in.

    Args:
        weights: (n,) or (rows, n), floating-point, not empty.
        u: float64 (count,) or (rows, count).

    Returns:
        int64, as u; None if a weight is negative or a sum of weights is not finite and above 0.
    """
    totals = np.cumsum(weights, -1, np.float64)
    last = totals[..., -1:]
    if not ((weights >= 0).all() and (last > 0).all() and (last < np.inf).all()):
        return None
    # a product that is rounded up to the whole sum is of the last
    return np.minimum(bisected(totals, u * last, True), weights.shape[-1] - 1)


def write_places(starts: Array, counts: Array, out: Array) -> None:
    """Write row and column of so many places of each row, from where it starts, as (2, places)."""
    out[0] = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    if out.shape[1] > LONG * len(counts):
        columns = np.arange(int((starts + counts).max()))
        parts = zip(starts.tolist(), (starts + counts).tolist(), strict=True)
        np.concatenate([columns[start:end] for start, end in parts], out=out[1])
    else:
        np.subtract(np.arange(out.shape[1]), np.repeat(ends - counts - starts, counts), out[1])


def write_positions(shape: Shape, rows: Array, out: Array) -> None:
    """Write where a bool array is true, as `np.argwhere`.

    Args:
        shape: of the array, with two dimensions at least.
        rows: the array in C order, (any, shape[-1]).
    """
    found, width = rows.reshape(-1).nonzero()[0], rows.shape[1]
    if len(found) < FEW:
        row = found // width  # NumPy's vector code; that of divmod is not
    else:
        row = np.repeat(np.arange(len(rows)), np.count_nonzero(rows, axis=1))
    if len(shape) == 2:
        out[:, 0] = row
    else:
        out[:, :-1] = row_starts(shape)[row]
    np.subtract(found, row * width, out=out[:, -1])


def compressed(x: Array, mask: Array) -> Array:
    """The elements of a 1-d array where a mask is true, in order, copied."""
    return x[mask]


def row_starts(shape: Shape) -> Array:
    """The index of each row of an array in all dimensions but the last: (rows, dimensions - 1)."""
    leading = shape[:-1]
    return np.stack(np.unravel_index(np.arange(math.prod(leading)), leading), -1)


def take(a: Array, index: Array) -> Array:
    return np.take(a, index, axis=0)


def within_reach(x: Array, index: Array, dim: int) -> Array:
    """The part of x that an index, which may be shorter in other dimensions, reads along `dim`."""
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


def gather(x: Array, index: Array, *, dim: int) -> Array:
    """out[i][j] = x[index[i][j]][j] (for dim 0)."""
    return np.take_along_axis(within_reach(x, index, dim), index, dim)


def scatter(x: Array, index: Array, src: Array, *, dim: int, reduce: str) -> Array:
    """x, with src[i][j] put at [index[i][j]][j] (for dim 0), the last of several, or added."""
    out = np.array(x, order="C", copy=True)
    near = within_reach(out, index, dim)
    places = list(np.ix_(*map(np.arange, index.shape)))
    places[dim] = index
    if reduce == "add":
        with np.errstate(all="ignore"):
            np.add.at(near, tuple(places), src)
    else:
        near[tuple(places)] = src
    return out


def dynamic_update_slice(a: Array, update: Array, start: Array, *, dim: int) -> Array:
    """A copy of `a` with `update` along `dim` from `start` on.

    Raises:
        IndexError: the slice would not lie within `a`.
    """
    first, most = int(start), a.shape[dim] - update.shape[dim]
    if not 0 <= first <= most:
        raise IndexError(f"a slice that begins at {first} must begin at 0 to {most}")
    out = np.array(a, copy=True)  # in the order of memory
    out[(slice(None),) * dim + (slice(first, first + update.shape[dim]),)] = update
    return out


@quiet
def scatter_add(a: Array, index: Array, *, length: int) -> Array:
    out = np.zeros((length, *a.shape[index.ndim :]), a.dtype)
    np.add.at(out, index, a)
    return out
