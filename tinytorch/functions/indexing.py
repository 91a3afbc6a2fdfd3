"""Indexing by functions: `gather`, `take`, `index_select`. `subscripts` has `x[...]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tinytorch import ops
from tinytorch.backends.reference import is_within
from tinytorch.dispatch import apply, wrap
from tinytorch.dtypes import Array, Shape, bool_, int64, meta_of_array
from tinytorch.errors import DTypeError
from tinytorch.functions import movement
from tinytorch.functions.copies import LARGE
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.publish import publish
from tinytorch.replay import holds, must_run
from tinytorch.state import STATE

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index] along the first dimension, for an integer tensor of any shape.

    The result has the shape (*index.shape, *x.shape[1:]). Indices do not count from the end.

    Raises:
        IndexError: an index is out of range; the message gives it. (Not checked in a trace.)
    """
    check_range(index, x.shape[0] if x.ndim else 0)
    return apply(ops.take, x, index)


def check_range(index: Tensor, extent: int, what: str = "index") -> None:
    """Raise IndexError unless all of `index` is in [0, extent). (Not checked in a trace.)"""
    if not holds(index, is_within, extent, traced=True):
        raise out_of_range(index._data, extent, what)


def out_of_range(index: Array, extent: int, what: str = "index") -> IndexError:
    """The error for an array of indices that are not all in [0, extent)."""
    low, high = index.min(), index.max()
    return IndexError(f"{what} {int(low if low < 0 else high)} is out of range: there are {extent}")


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices along `dim` at the positions of a 1-d integer tensor.

    Raises:
        IndexError: an index is negative or out of range. (Not checked in a trace.)

    >>> from tinytorch import tensor
    >>> index_select(tensor([[1, 2], [3, 4]]), 1, tensor([1, 1, 0]))
    tensor([[2, 2, 1],
            [4, 4, 3]])
    """
    dim = normalize_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_select: the index must be 1-d, not of shape {index.shape}")
    check_range(index, x.shape[dim] if x.ndim else 1)
    if not x.ndim:
        return apply(ops.copy, x)
    if dim == 0:
        return apply(ops.take, x, movement.in_shape(index, (index.numel(),)))
    shape = tuple(index.numel() if d == dim else n for d, n in enumerate(x.shape))
    line = movement.reshape(index, tuple(-1 if d == dim else 1 for d in range(x.ndim)))
    return apply(ops.gather, x, movement.expand(line, shape), dim=dim)


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j][k] = x[index[i][j][k]][j][k] (for dim 0): one element per element of `index`.

    Raises:
        ShapeError: `index` has other dimensions, or is larger than x in one other than `dim`.
        IndexError: an index is negative or out of range. (Not checked in a trace.)

    >>> from tinytorch import tensor
    >>> gather(tensor([[1, 2], [3, 4]]), 1, tensor([[1], [0]]))  # one of each row
    tensor([[2],
            [3]])
    """
    dim = normalize_dim(dim, x.ndim)
    if not x.ndim or (x.ndim == 1 and not index.ndim):  # of a 0-d tensor and by a 0-d index, too
        check_range(index, x.numel())
        return apply(ops.take, x.reshape(-1), index)
    check_range(index, x.shape[dim])
    return apply(ops.gather, x, index, dim=dim)


def flat_index(shape: Shape, dim: int, index: Tensor) -> Tensor:
    """Positions in the flattened tensor: the index along `dim`, its own place along the others."""
    stride = int(np.prod(shape[dim + 1 :], dtype=np.int64))
    positions = np.zeros(index.shape, np.int64)
    for i, extent in enumerate(index.shape):
        if i != dim:
            step = int(np.prod(shape[i + 1 :], dtype=np.int64))
            positions += (np.arange(extent) * step).reshape(-1, *(1,) * (index.ndim - i - 1))
    flat = index * stride + wrap(positions, meta_of_array(positions))
    return still_outside(flat, index, shape[dim])


def looked_at(index: Tensor, extent: int) -> Tensor:
    """An index without values yet, as int64: where the graph is run, `take` refuses what is not in
    [0, extent). It takes from floats, of which machine code has rows."""
    numbers = np.arange(extent, dtype=np.float64)
    return apply(ops.take, wrap(numbers, meta_of_array(numbers)), index).long()


def still_outside(flat: Tensor, index: Tensor, size: int) -> Tensor:
    """Positions among all, of which an index says one part: -1 where it is not in [0, size).

    Without that it would be the position of something else. An index whose values are known has
    been looked at: its positions are as they were.
    """
    if holds(index, are_known, traced=False):
        return flat
    outside = apply(ops.logical_or, index < 0, index >= size)
    return apply(ops.where, outside, -1, flat)


def are_known(data: Array) -> bool:
    """True of any values, if there are some."""
    return True


def from_front(index: Tensor, size: int, dim: int) -> Tensor:
    """Indices into dimension `dim` of `size` elements, without negative ones: they count from the
    end.

    Raises:
        IndexError: one is out of range. (Not checked in a trace.)
    """
    if holds(index, is_within, size, traced=False):
        return index
    data = index._data
    if isinstance(data, np.ndarray):
        low, high = data.min(), data.max()
        if low < -size or high >= size:
            raise IndexError(
                f"index {int(low if low < -size else high)} is out of range for dimension {dim} of "
                f"size {size}"
            )
    return apply(ops.where, index < 0, index + size, index)


def one_hot(labels: Tensor, num_classes: int = -1) -> Tensor:
    """int64 tensor with a last dimension of `num_classes`: 1 at the label, 0 elsewhere.

    Raises:
        IndexError: a label is not in [0, num_classes).
        DTypeError: the labels are no integers.

    >>> from tinytorch import tensor
    >>> one_hot(tensor([2, 0]), 3)
    tensor([[0, 0, 1],
            [1, 0, 0]])
    """
    if labels.dtype.is_floating_point or labels.dtype is bool_:
        raise DTypeError(f"one_hot takes labels that are integers, not {labels.dtype.name}")
    if num_classes == -1:  # as many as there are
        num_classes = int(labels._concrete("one_hot").max(initial=-1)) + 1
    check_range(labels, num_classes, "class")
    if not holds(labels, are_known, traced=False):
        labels = looked_at(labels, num_classes)
    data = labels._data
    if STATE.get().mode is None and labels.dtype.dtype.kind == "i":
        rows = data.reshape(-1)
        ones = np.zeros((rows.size, num_classes), np.int64)
        ones[np.arange(rows.size), rows] = 1
        ones = ones.reshape(*data.shape, num_classes)
        return wrap(ones, meta_of_array(ones))
    if labels.meta.size * num_classes * int64.itemsize > LARGE:
        must_run("zeros with ones written into them are there sooner")
    classes = np.arange(num_classes)
    hit = apply(ops.eq, labels.unsqueeze(-1), wrap(classes, meta_of_array(classes)))
    return hit.long()


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, where x and indices broadcast in the other dimensions; flattened without `dim`."""
    if dim is None:
        return gather(movement.reshape(x, (-1,)), 0, movement.reshape(indices, (-1,)))
    dim = normalize_dim(dim, x.ndim)
    shape = [max(a, b) if min(a, b) else 0 for a, b in zip(x.shape, indices.shape, strict=True)]
    wide = [x.shape[d] if d == dim else n for d, n in enumerate(shape)]
    long = [indices.shape[d] if d == dim else n for d, n in enumerate(shape)]
    index = from_front(movement.expand(indices, long), x.shape[dim], dim)
    return gather(movement.expand(x, wide), dim, index)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor, in the index's shape; negative ones count from the end."""
    flat = movement.reshape(x, (-1,))
    return apply(ops.take, flat, from_front(index, x.numel(), 0))


publish(
    globals(),
    replayed="index_select gather take_along_dim take",
    hidden="take_rows check_range out_of_range flat_index looked_at still_outside "
    "from_front one_hot are_known",
)
