"""Elements by index, and put or added at an index, as NumPy functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.reference_elementwise import quiet
from tinytorch.dtypes import Array

_INT64 = np.dtype(np.int64)
_largest = np.maximum.reduce  # without the Python code of `max`


def is_within(data: Array, extent: int) -> Any:
    """Whether every index is in [0, extent): without its sign, a negative one is a large number."""
    if data.dtype is _INT64 and data.size:
        return _largest(data.view(np.uint64), None) < extent
    return not data.size or (data.min() >= 0 and data.max() < extent)


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
