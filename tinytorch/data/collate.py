"""`collate`: a list of samples to one batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy, tensor
from tinytorch.errors import ShapeError
from tinytorch.functions.movement import stack
from tinytorch.tensor import Tensor


def collate(samples: Sequence[Any]) -> Any:
    """Samples of one structure to a batch of that structure, its leaves stacked along a new dim 0.

    As in PyTorch, Python floats become float64, and tuples become lists; a named tuple (it has
    `_fields`) stays one of its type, which takes the fields one by one.

    Args:
        samples: N tensors, arrays or numbers of equal shape, strings, or N tuples, lists or dicts
            of such.

    Returns:
        The same structure with a Tensor of shape (N, ...) at each leaf (`stack_leaves`); of strings
        the samples themselves. Keys of dicts are in the order of the first sample.

    Raises:
        ShapeError: samples differ in shape or structure, or there are none.
        TypeError: a leaf is something else, say None.

    >>> x, y = collate([([1.0, 2.0], 0), ([3.0, 4.0], 1), ([5.0, 6.0], 0)])
    >>> [field.shape for field in x], y.shape
    ([(3,), (3,)], (3,))
    """
    if not samples:
        raise ShapeError("collate needs at least one sample, got none")
    first = samples[0]
    if isinstance(first, str | bytes):
        return samples
    if isinstance(first, Mapping):
        _check_same_fields(samples)
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple | list):
        _check_same_fields([range(len(sample)) for sample in samples])
        fields = [collate(field) for field in zip(*samples, strict=True)]
        return type(first)(*fields) if hasattr(first, "_fields") else fields
    return stack_leaves(samples)


def stack_leaves(leaves: Sequence[Any]) -> Tensor:
    """Tensors, arrays or numbers of one shape as one tensor, along a new dim 0.

    Tensors of which one requires a gradient are stacked by the op `stack`; without, their arrays
    (`leaf.numpy()`) are, by NumPy, which is faster. Arrays and NumPy's numbers keep their dtype.
    Python's floats become float64, its integers and truth values what `tensor` makes of them.

    Raises:
        ShapeError: tensors or arrays differ in shape (`_check_shapes` of the list of shapes).
        TypeError: the first is none of these; the message names its type.

    >>> stack_leaves([1.5, 2.5])
    tensor([1.5, 2.5], dtype=float64)
    """
    first = leaves[0]
    if isinstance(first, Tensor):
        _check_shapes([leaf.shape for leaf in leaves])
        if any(leaf.requires_grad for leaf in leaves):
            return stack(leaves)
        return from_numpy(np.stack([leaf.numpy() for leaf in leaves]))
    if isinstance(first, np.ndarray | np.generic):
        _check_shapes([np.shape(leaf) for leaf in leaves])
        return from_numpy(np.stack(leaves))
    if isinstance(first, float):
        return tensor(leaves, dtype="float64")
    if isinstance(first, int):
        return tensor(leaves)
    raise TypeError(
        f"collate makes batches of tensors, arrays, numbers, strings, and tuples, lists and dicts "
        f"of these; got {type(first).__name__}: pass a collate_fn of your own to DataLoader"
    )


def convert(sample: Any) -> Any:
    """One sample with its arrays as tensors: what a loader gives that makes no batches.

    >>> import numpy as np
    >>> convert({"x": np.zeros(2), "name": "zero"})
    {'x': tensor([0., 0.], dtype=float64), 'name': 'zero'}
    """
    if isinstance(sample, np.ndarray | np.generic):
        return from_numpy(np.asarray(sample))
    if isinstance(sample, Mapping):
        return {key: convert(value) for key, value in sample.items()}
    if isinstance(sample, tuple | list):
        fields = [convert(field) for field in sample]
        return type(sample)(*fields) if hasattr(sample, "_fields") else fields
    return sample


def _check_shapes(shapes: list[tuple[int, ...]]) -> None:
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ShapeError(
                f"samples of one batch must have one shape: sample 0 has {shapes[0]}, "
                f"sample {i} has {shape}; crop or pad them, or pass a collate_fn"
            )


def _check_same_fields(fields: Sequence[Iterable[Any]]) -> None:
    for i, found in enumerate(fields):
        if set(found) != set(fields[0]):
            raise ShapeError(
                f"samples of one batch must have the same fields: sample 0 has "
                f"{list(fields[0])}, sample {i} has {list(found)}"
            )
