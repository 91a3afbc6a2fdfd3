"""ONNX operators that pick elements by index, and their adjoints."""

from __future__ import annotations

import math

import numpy as np

from tinytorch import creation, ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import DEFAULT_INT
from tinytorch.functions import elementwise as e, indexing, movement as m
from tinytorch.onnx.operators.movement import constant
from tinytorch.onnx.operators.registry import operator, refuse
from tinytorch.tensor import Tensor


def _from_front(indices: Tensor, shape: tuple[int, ...], dim: int) -> Tensor:
    """Indices into a dimension of `shape`, as int64 and without negative ones."""
    return indexing.from_front(indices.to(DEFAULT_INT), shape[dim], dim)


@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    dim = axis % x.ndim
    return x[(slice(None),) * dim + (indices.to(DEFAULT_INT),)]


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return indexing.gather(x, axis, _from_front(indices, x.shape, axis % x.ndim))


def _rows(shape: tuple[int, ...], indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Where each index tuple (the last dimension) points, among the flattened leading dims."""
    depth = indices.shape[-1]
    flat = creation.zeros(indices.shape[:-1], dtype=DEFAULT_INT)
    parts = [_from_front(indices[..., i], shape, batch_dims + i) for i in range(depth)]
    for i, part in enumerate(parts):
        flat = flat * shape[batch_dims + i] + part
    for b in range(batch_dims):  # each batch element has rows of its own
        step = math.prod(shape[b + 1 : batch_dims + depth])
        rows = np.arange(shape[b]) * step
        flat = flat + constant(rows.reshape(-1, *(1,) * (flat.ndim - b - 1)))
    for i, part in enumerate(parts):
        flat = indexing.still_outside(flat, part, shape[batch_dims + i])
    return flat


@operator("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = batch_dims + indices.shape[-1]
    rows = m.reshape(x, (math.prod(x.shape[:depth]), *x.shape[depth:]))
    return apply(ops.take, rows, _rows(x.shape, indices, batch_dims))


def _scatter(rows: Tensor, index: Tensor, updates: Tensor, reduction: str, what: str) -> Tensor:
    """`rows` with `updates` put, or added, where `index` says."""
    if reduction not in ("none", "add"):
        raise refuse(f"{what} with reduction {reduction!r}")
    length = rows.shape[0]
    if reduction == "add":
        return rows + apply(ops.scatter_add, updates, index, length=length)
    one = creation.ones(updates.shape, dtype=updates.dtype)
    hit = e.gt(apply(ops.scatter_add, one, index, length=length), 0)
    return e.where(hit, apply(ops.scatter_add, updates, index, length=length), rows)


@operator("ScatterElements", "Scatter")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Write updates at indices; no two may have the same index, as ONNX leaves open which wins."""
    dim = axis % x.ndim
    index = indexing.flat_index(x.shape, dim, _from_front(indices, x.shape, dim))
    flat = _scatter(
        m.reshape(x, (-1,)), m.reshape(index, (-1,)), m.reshape(updates, (-1,)), reduction,
        "ScatterElements",
    )  # fmt: skip
    return m.reshape(flat, x.shape)


@operator("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    rest = x.shape[depth:]
    rows = m.reshape(x, (math.prod(x.shape[:depth]), *rest))
    index = m.reshape(_rows(x.shape, indices), (-1,))
    flat = _scatter(rows, index, m.reshape(updates, (-1, *rest)), reduction, "ScatterND")
    return m.reshape(flat, x.shape)
