"""Which tensors of a file share memory: they do again when they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from tinytorch.dispatch import wrap
from tinytorch.dtypes import DTYPES, Array, tensor_meta
from tinytorch.errors import DataError
from tinytorch.tensor import Tensor


def places(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Where in a common memory each tensor is that overlaps another, and which are one object.

    Returns:
        By name: [number of the memory, its size, offset, stride, ...], counted in elements; or the
        first name of the same object.

    >>> from tinytorch import arange
    >>> x = arange(6).reshape(2, 3)
    >>> places({"x": x, "again": x, "column": x[:, 1], "other": arange(6)})
    {'x': [0, 6, 0, 3, 1], 'column': [0, 6, 1, 3], 'again': 'x'}
    """
    objects: dict[int, str] = {}
    spans: list[tuple[str, int, int, str]] = []
    arrays: dict[str, Array] = {}
    for name, t in tensors.items():
        if objects.setdefault(id(t), name) == name:
            array = arrays[name] = t.detach()._concrete("save")
            low, high = np.lib.array_utils.byte_bounds(array)
            steps = (low, *_steps(array))
            if array.size and min(steps) >= 0 and not any(s % array.itemsize for s in steps):
                spans.append((t.dtype.name, low, high, name))
    found: dict[str, Any] = {}
    for number, group in enumerate(_overlapping(spans)):
        start, end = group[0][1], max(high for _, _, high, _ in group)
        for _, low, _, name in group:
            each = arrays[name].itemsize
            steps = (end - start, low - start, *_steps(arrays[name]))
            found[name] = [number, *(step // each for step in steps)]
    same = {name: first for name, t in tensors.items() if (first := objects[id(t)]) != name}
    return found | same


def _steps(array: Array) -> list[int]:
    """The strides in bytes, 0 where there is nothing to step to."""
    return [s if n > 1 else 0 for s, n in zip(array.strides, array.shape, strict=True)]


def _overlapping(spans: list[tuple[str, int, int, str]]) -> list[list[tuple[str, int, int, str]]]:
    """The spans (dtype, low, high, name) in groups of two or more that overlap."""
    numbered, number, reached = [], 0, ("", 0)
    for span in sorted(spans):
        dtype, low, high, _ = span
        number += (dtype, low) >= reached
        reached = max((dtype, high), reached)
        numbered.append((number, span))
    groups = [[span for _, span in group] for _, group in groupby(numbered, lambda pair: pair[0])]
    return [group for group in groups if len(group) > 1]


def share(tensors: dict[str, Tensor], found: Mapping[str, Any]) -> None:
    """Make of tensors with memory of their own, in the dict, those of which `found` tells.

    Raises:
        DataError: it does not fit them.
    """
    memories: dict[int, Array] = {}
    try:
        for name, place in found.items():
            if isinstance(place, str):
                tensors[name] = tensors[place]
                continue
            (number, size, offset, *strides), t = place, tensors[name]
            if number not in memories:
                memories[number] = np.zeros(size, DTYPES[t.dtype.name].dtype)
            view = strided(memories[number], t.dtype.name, offset, t.shape, tuple(strides))
            view._data[...] = t._data
            tensors[name] = view
    except (KeyError, TypeError, ValueError, MemoryError) as error:
        raise DataError(f"has a damaged header ({error!r})") from error


def strided(
    array: Array, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Tensor:
    """A tensor in the memory of a 1-d array, from an offset, with strides, in elements.

    Raises:
        DataError: it would leave the array.
    """
    numbers = [offset, *shape, *strides]
    if len(shape) != len(strides) or not all(type(n) is int and n >= 0 for n in numbers):
        raise DataError(f"is damaged: a tensor of shape {shape} with strides {strides}")
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= array.size:
        raise DataError(
            f"is damaged: a tensor of shape {shape} with strides {strides} from element {offset} "
            f"does not fit into a storage of {array.size}"
        )
    view = np.lib.stride_tricks.as_strided(
        array[offset:], shape, [s * array.itemsize for s in strides]
    )
    return wrap(view, tensor_meta(shape, DTYPES[dtype]))
