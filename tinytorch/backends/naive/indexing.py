"""Rows by index, and windows added back, as loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.naive.lists import lanes, to_array
from tinytorch.dtypes import Array


def first_best(row: list[Any], better: Callable[[Any, Any], bool]) -> int:
    """The position of the first element that no other is better than; NaN is better than all."""
    best = 0
    for i, value in enumerate(row):
        if value != value:
            return i
        if better(value, row[best]):
            best = i
    return best


def take(a: Array, index: Array) -> Array:
    """out[i] = a[index[i]]"""
    rows = a.reshape(a.shape[0], _row_size(a, 1)).tolist()
    values = [rows[i] for i in index.ravel().tolist()]
    return to_array(values, index.shape + a.shape[1:], a.dtype)


def scatter_add(a: Array, index: Array, *, length: int) -> Array:
    """out[index[i]] += a[i]: rows of the same index add up."""
    size = _row_size(a, index.ndim)
    out: list[list[Any]] = [[0] * size for _ in range(length)]
    for i, row in zip(index.ravel().tolist(), a.reshape(index.size, size).tolist(), strict=True):
        out[i] = [old + new for old, new in zip(out[i], row, strict=True)]
    return to_array(out, (length, *a.shape[index.ndim :]), a.dtype)


def _row_size(a: Array, dims: int) -> int:
    return int(np.prod(a.shape[dims:], dtype=np.int64))


def fold(a: Array, *, length: int, step: int) -> Array:
    """Windows added back: out[i * step + j] += a[i][j]."""
    *front, windows, size = a.shape
    flat = a.reshape(*front, windows * size)
    sums = []
    for lane in lanes(flat, -1):
        out: list[Any] = [0] * length
        for k, value in enumerate(lane):
            out[k // size * step + k % size] += value
        sums.append(out)
    return to_array(sums, (*front, length), a.dtype)
