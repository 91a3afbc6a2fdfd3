"""Sums of one row: what normalization, softmax and reductions are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel


@kernel(force_inline=True)
def total(row: Any) -> Any:
    """The sum, in the row's own type."""
    result = row.dtype.type(0)
    for j in range(row.size):
        result += row[j]
    return result


@kernel(force_inline=True)
def squares(row: Any, mean: Any) -> Any:
    """The sum of squared differences from the mean."""
    result = row.dtype.type(0)
    for j in range(row.size):
        difference = row[j] - mean
        result += difference * difference
    return result


@kernel
def _channel_sums(x: Array, out: Array) -> None:
    """The sum over images and positions of x (n, channels, positions), in float64 across images."""
    for c in range(x.shape[1]):
        every = 0.0
        for n in range(x.shape[0]):
            every += total(x[n, c])
        out[c] = every


def channel_sums(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
    """The sum of x (n, channels, ...) over all dimensions but the channels.

    NumPy walks over such an array in runs as short as an image, and adds each to all the others.
    """
    n, channels = x.shape[:2]
    out = np.empty((1, channels, *(1,) * (x.ndim - 2)) if keepdim else channels, x.dtype)
    positions = math.prod(x.shape[2:])
    _channel_sums(np.ascontiguousarray(x).reshape(n, channels, positions), out.reshape(-1))
    return out
