"""`collate`: a list of samples to one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy, tensor
from tinytorch.dtypes import Array
from tinytorch.errors import ShapeError
from tinytorch.tensor import Tensor


def collate(samples: Sequence[Any]) -> Any:
    """Samples of one structure to a batch of that structure, its leaves stacked along a new dim 0.

    Args:
        samples: N tensors, arrays or numbers of equal shape, or N tuples, lists or dicts of such.

    Returns:
        The same structure with a Tensor of shape (N, ...) at each leaf.

    Raises:
        ShapeError: samples differ in shape or structure, or there are none.
        TypeError: a leaf is something else, say a string.

    >>> x, y = collate([([1.0, 2.0], 0), ([3.0, 4.0], 1), ([5.0, 6.0], 0)])
    >>> [field.shape for field in x], y.shape
    ([(3,), (3,)], (3,))
    """
    if not samples:
        raise ShapeError("collate needs at least one sample, got none")
    first = samples[0]
    if isinstance(first, Tensor):
        return from_numpy(_stack([sample.numpy() for sample in samples]))
    if isinstance(first, np.ndarray | np.generic):
        return from_numpy(_stack([np.asarray(sample) for sample in samples]))
    if isinstance(first, bool | int | float):
        return tensor(list(samples))
    if isinstance(first, Mapping):
        _check_same_fields([tuple(sample) for sample in samples])
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple | list):
        _check_same_fields([tuple(range(len(sample))) for sample in samples])
        fields = [collate(field) for field in zip(*samples, strict=True)]
        return fields if isinstance(first, list) else tuple(fields)
    raise TypeError(
        f"collate makes batches of tensors, arrays, numbers, and tuples, lists and dicts of these; "
        f"got {type(first).__name__}: pass a collate_fn of your own to DataLoader"
    )


def _stack(arrays: list[Array]) -> Array:
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ShapeError(
                f"samples of one batch must have one shape: sample 0 has {arrays[0].shape}, "
                f"sample {i} has {array.shape}; crop or pad them, or pass a collate_fn"
            )
    return np.stack(arrays)


def _check_same_fields(fields: list[tuple[Any, ...]]) -> None:
    for i, found in enumerate(fields):
        if set(found) != set(fields[0]):
            raise ShapeError(
                f"samples of one batch must have the same fields: sample 0 has "
                f"{list(fields[0])}, sample {i} has {list(found)}"
            )
