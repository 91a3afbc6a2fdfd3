"""From arrays to lists of Python numbers, and back with rounding and wrap-around."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.dtypes import Array, Shape


def scalar_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as an array of this dtype would hold it: 0.1 among float32 is 0.1 rounded.

    A whole number that does not fit into the dtype stays itself, to be compared with.
    """
    try:
        return np.array(value, dtype).item()
    except OverflowError:
        return value


def lanes(a: Array, dim: int) -> list[list[Any]]:
    """The lists of elements along `dim`, one for each place in the other dimensions."""
    moved = np.moveaxis(a, dim, -1)
    count = int(np.prod(moved.shape[:-1], dtype=np.int64))
    return moved.reshape(count, moved.shape[-1]).tolist()


def to_array(values: list[Any], shape: Shape, dtype: np.dtype[Any] | type) -> Array:
    """A new array of (nested) lists: floats are rounded, whole numbers wrap as in C."""
    if (dtype := np.dtype(dtype)).kind not in "iu":
        with np.errstate(over="ignore"):
            return np.array(values, dtype).reshape(shape)
    try:
        whole = np.array(values, np.int64)
    except OverflowError:
        whole = np.array([_wrapped(v) for v in np.array(values, object).flat], np.int64)
    return whole.astype(dtype).reshape(shape)


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
