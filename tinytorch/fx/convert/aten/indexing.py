"""ATen's operators that pick elements by index, and their adjoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tinytorch import creation, ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import int64
from tinytorch.functions import elementwise as e, indexing, movement as m
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.tensor import Tensor

aten("gather")(lambda a, dim, index, *, sparse_grad=False: indexing.gather(a, dim, index))
aten("index_select")(indexing.index_select)
aten("scatter_add")(indexing.scatter_add)


@aten("embedding")
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    return apply(ops.take, weight, indices)


@aten("embedding_dense_backward")
def embedding_dense_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    if scale_grad_by_freq:
        raise NotImplementedError("embedding with scale_grad_by_freq")
    total = apply(ops.scatter_add, grad, indices, length=num_weights)
    if padding_idx < 0:
        return total
    rows = m.unsqueeze(creation.arange(num_weights), 1)
    return e.where(e.eq(rows, padding_idx), 0.0, total)


@aten("index.Tensor")
def index(a: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return a[tuple(slice(None) if i is None else i for i in indices)]


@aten("index_put")
def index_put(
    a: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """With indices for the first dimensions. Several values for one place add up with `accumulate`;
    without, PyTorch leaves open which is put, and here it is their mean."""
    if any(i is None for i in indices):
        raise NotImplementedError("index_put with a dimension that is taken whole")
    depth = len(indices)
    flat = creation.zeros((), dtype=int64)
    for extent, i in zip(a.shape[:depth], indices, strict=True):
        assert i is not None
        if i.dtype.name == "bool":
            raise NotImplementedError("index_put with a mask")
        flat = flat * extent + e.where(e.lt(i, 0), i + extent, i)
    rows = m.reshape(a, (math.prod(a.shape[:depth]), *a.shape[depth:]))
    spread = m.expand(values, (*flat.shape, *a.shape[depth:]))
    return m.reshape(_put(rows, flat, spread, accumulate), a.shape)


def _put(rows: Tensor, index: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    total = apply(ops.scatter_add, values, index, length=rows.shape[0])
    if accumulate:
        return rows + total
    ones = creation.ones(values.shape, dtype=values.dtype)
    hit = apply(ops.scatter_add, ones, index, length=rows.shape[0])
    # an average of equal values where several were put: which one wins is left open
    return e.where(e.gt(hit, 0), total / e.maximum(hit, 1), rows).to(rows.dtype)


@aten("scatter.value")
def scatter_value(a: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    counts = creation.zeros(a.shape)
    hit = indexing.scatter_add(counts, dim, index, creation.ones(index.shape))
    return e.where(e.gt(hit, 0), value, a)


@aten("scatter.src")
def scatter_src(a: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    src = src[tuple(slice(n) for n in index.shape)]
    zeros = creation.zeros(a.shape, dtype=a.dtype)
    total = indexing.scatter_add(zeros, dim, index, src)
    ones = creation.ones(index.shape, dtype=a.dtype)
    hit = indexing.scatter_add(zeros, dim, index, ones)
    return e.where(e.gt(hit, 0), total / e.maximum(hit, 1), a).to(a.dtype)


@aten("slice_scatter")
def slice_scatter(
    a: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    dim %= a.ndim
    bounds = [(0, n, 1) for n in a.shape]
    bounds[dim] = slice(start, end, step).indices(a.shape[dim])
    inside = creation.ones(src.shape, dtype=bool)
    put: Any = {"shape": a.shape, "bounds": tuple(bounds)}
    return e.where(apply(ops.unslice, inside, **put), apply(ops.unslice, src, **put), a)


@aten("select_scatter")
def select_scatter(a: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    index %= a.shape[dim]
    return slice_scatter(a, m.unsqueeze(src, dim), dim, index, index + 1)


@aten("select_backward")
def select_backward(grad: Tensor, size: Sequence[int], dim: int, index: int) -> Tensor:
    return select_scatter(creation.zeros(tuple(size), dtype=grad.dtype), grad, dim, index)


@aten("slice_backward")
def slice_backward(
    grad: Tensor, size: Sequence[int], dim: int, start: int, end: int, step: int
) -> Tensor:
    return slice_scatter(creation.zeros(tuple(size), dtype=grad.dtype), grad, dim, start, end, step)


@aten("tril")
def tril(a: Tensor, diagonal: int = 0) -> Tensor:
    return indexing.tril(a, diagonal)


@aten("triu")
def triu(a: Tensor, diagonal: int = 0) -> Tensor:
    return indexing.triu(a, diagonal)
