"""Diagonals and triangles of matrices."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.absent import accepts_device
from tinytorch.backends import reference
from tinytorch.dispatch import apply, wrap
from tinytorch.dtypes import Array, int64, meta_of_array, tensor_meta
from tinytorch.errors import ShapeError
from tinytorch.functions import arrangement, movement, reductions
from tinytorch.functions.conversion import converted
from tinytorch.functions.copies import order_of
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.publish import publish
from tinytorch.jit import buffers
from tinytorch.replay import holds, replayed
from tinytorch.state import STATE, current_backend

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """out[..., i, j] = x[..., i, j] if j <= i + diagonal, else 0: zero above the diagonal.

    >>> from tinytorch import ones
    >>> tril(ones(2, 3))
    tensor([[1., 0., 0.],
            [1., 1., 0.]])
    """
    return _triu(x.mT, -diagonal).mT if _is_by_columns(x) else _tril(x, diagonal)


def _tril(x: Tensor, diagonal: int) -> Tensor:
    return apply(ops.where, _below(x.shape, diagonal), x, x.dtype.zero)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """out[..., i, j] = x[..., i, j] if j >= i + diagonal, else 0: zero below the diagonal."""
    return _tril(x.mT, -diagonal).mT if _is_by_columns(x) else _triu(x, diagonal)


def _triu(x: Tensor, diagonal: int) -> Tensor:
    return apply(ops.where, _below(x.shape, diagonal - 1), x.dtype.zero, x)


def _is_by_columns(x: Tensor) -> bool:
    """Whether x is large, and matrices of which each is stored by columns."""
    return order_of(x) == (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


def _below(shape: Sequence[int], diagonal: int) -> Tensor:
    if len(shape) < 2:
        raise ShapeError(f"tril and triu need at least two dimensions, not shape {tuple(shape)}")
    mask = np.tri(shape[-2], shape[-1], operator.index(diagonal), dtype=bool)
    return wrap(mask, meta_of_array(mask))


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements whose index along `dim2` is that along `dim1` plus `offset`, as a new last
    dimension: a view of x.

    Raises:
        ShapeError: the two dimensions are one.

    >>> from tinytorch import tensor
    >>> diagonal(tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    data, is_copied, state = x._data, False, STATE.get()
    is_array = isinstance(data, np.ndarray)  # or what a trace has left
    if is_array and state.mode is None and not (x._requires_grad and state.grad):
        try:
            view = data.diagonal(offset, dim1, dim2)
            view.flags.writeable = data.flags.writeable
            return wrap(view, tensor_meta(view.shape, x.meta.dtype))
        except ValueError:  # the ops say better what is wrong
            pass
    if is_array and not (data.flags.c_contiguous and (dim1, dim2) == (0, 1)):
        dim1, dim2 = normalize_dim(dim1, x.ndim), normalize_dim(dim2, x.ndim)
        if not _is_by_rows(data, dim1, dim2):
            offset, dim1, dim2 = -offset, dim2, dim1  # the same, in the order of memory
        is_copied = not _is_flat(data, dim1, dim2)  # by `_diagonal`
    out: Tensor = _diagonal(x, offset, dim1, dim2)
    if is_copied and isinstance(out._data, np.ndarray):
        out._data = data.diagonal(offset, dim1, dim2)  # which sees what is written to x later on
        out._data.flags.writeable = data.flags.writeable
    return out


@replayed
def _diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    dim1, dim2 = normalize_dim(dim1, x.ndim), normalize_dim(dim2, x.ndim)
    if dim1 == dim2:
        raise ShapeError(f"diagonal needs two different dimensions, not {dim1} twice")
    rest = [d for d in range(x.ndim) if d not in (dim1, dim2)]
    first, second = max(0, -offset), max(0, offset)
    length = max(0, min(x.shape[dim1] - first, x.shape[dim2] - second))
    if not holds(x, _is_by_rows, dim1, dim2, traced=True):
        dim1, dim2, first, second = dim2, dim1, second, first
    rows, columns = x.shape[dim1], x.shape[dim2]
    order = (*rest, dim1, dim2)
    turned = x if order == tuple(range(x.ndim)) else x.permute(order)
    flat = movement.reshape(turned, (*(x.shape[d] for d in rest), rows * columns))
    start = min(first * columns + second, rows * columns)  # from one to the next: a row and a place
    stop = min(start + length * (columns + 1), rows * columns) if length else start
    return flat[..., start : stop : columns + 1]


def by_rows(x: Tensor) -> Tensor:
    """A matrix, or its transpose where that is stored by rows."""
    data = x._data
    if x.meta.ndim != 2 or not isinstance(data, np.ndarray) or _is_by_rows(data, 0, 1):
        return x
    return x.t()


def _is_by_rows(data: Array, dim1: int, dim2: int) -> bool:
    """Whether one step along `dim1` is no shorter in memory than one along `dim2`."""
    return data.strides[dim1] >= data.strides[dim2]


def _is_flat(data: Array, dim1: int, dim2: int) -> bool:
    """Whether the elements of two dimensions, the first outside, are evenly spaced in memory."""
    is_even = data.strides[dim1] == data.shape[dim2] * data.strides[dim2]
    return is_even or dim1 == dim2 or min(data.shape[dim1], data.shape[dim2], data.size) <= 1


def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """A copy of a matrix's diagonal; of a vector the matrix with it on its diagonal, 0 elsewhere.

    Raises:
        ShapeError: x has neither one nor two dimensions.

    >>> from tinytorch import tensor
    >>> diag(tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    stored = by_rows(x)
    return _diag(stored, diagonal if stored is x else -diagonal)  # type: ignore[no-any-return]


@replayed
def _diag(x: Tensor, offset: int) -> Any:
    if x.ndim == 2:
        return apply(ops.copy, diagonal(x, offset))
    if x.ndim != 1:
        raise ShapeError(f"diag takes a vector or a matrix, not shape {x.shape}")
    return diag_embed(x, offset)


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension of x on their diagonal, 0 elsewhere: (..., n) gives (..., m,
    m) with m = n + |offset|.

    Args:
        offset: the diagonal: 0 the main one, above it if positive.
        dim1, dim2: where in the result the matrices' dimensions are.
    """
    *rest, n = x.shape
    size = n + abs(offset)
    start = max(0, offset) + max(0, -offset) * size
    stop = start + (n - 1) * (size + 1) + 1 if n else start  # from one to the next: a row, a place
    bounds = (*((0, extent, 1) for extent in rest), (start, stop, size + 1))
    flat = apply(ops.unslice, x, shape=(*rest, size * size), bounds=bounds)
    placed = movement.reshape(flat, (*rest, size, size))
    return arrangement.movedim(placed, (-2, -1), (dim1, dim2))


def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """`diag_embed` of the flattened tensor."""
    return diag_embed(movement.reshape(x, (-1,)), offset)


def trace(x: Tensor) -> Tensor:
    """The sum of a matrix's diagonal.

    Raises:
        ShapeError: x is no matrix.
    """
    return _trace(by_rows(x))  # type: ignore[no-any-return]


@replayed
def _trace(x: Tensor) -> Any:
    if x.ndim != 2:
        raise ShapeError(f"trace takes a matrix, not shape {x.shape}")
    rows, columns = x.shape
    stop = min(rows, columns) * (columns + 1)
    return reductions.sum(movement.reshape(x, (-1,))[: stop : columns + 1])  # x is by rows


@accepts_device
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64) -> Tensor:
    """Row and column of each element of a matrix on or below a diagonal, as (2, count).

    Raises:
        ShapeError: the matrix has a negative size.
        TypeError: one of the three is no whole number.
    """
    row, col, offset = _sizes("tril_indices", row, col, offset)
    counts = np.clip(np.arange(offset + 1, offset + 1 + row, dtype=np.int64), 0, col)
    return converted(_row_parts(np.zeros_like(counts), counts), dtype)


def _sizes(name: str, row: int, col: int, offset: int) -> tuple[int, int, int]:
    """Whole numbers, of which a kernel makes places in memory."""
    row, col, offset = (operator.index(n) for n in (row, col, offset))
    if row < 0 or col < 0:
        raise ShapeError(f"{name}: a matrix of {row} rows and {col} columns")
    return row, col, offset


def _row_parts(starts: Array, counts: Array) -> Tensor:
    """The indices of so many columns of each row, from where it starts, as (2, count)."""
    out = buffers.empty((2, int(counts.sum())), int64.dtype)
    current_backend().replacement_of(reference.write_places)(starts, counts, out)
    return wrap(out, meta_of_array(out))


@accepts_device
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64) -> Tensor:
    """Row and column of each element of a matrix on or above a diagonal, as (2, count).

    Raises:
        ShapeError: the matrix has a negative size.
        TypeError: one of the three is no whole number.
    """
    row, col, offset = _sizes("triu_indices", row, col, offset)
    starts = np.clip(np.arange(offset, offset + row, dtype=np.int64), 0, col)
    return converted(_row_parts(starts, col - starts), dtype)


publish(
    globals(),
    replayed="tril triu diag_embed diagflat tril_indices triu_indices",
    functions="tril_indices triu_indices",
    hidden="by_rows",
)
