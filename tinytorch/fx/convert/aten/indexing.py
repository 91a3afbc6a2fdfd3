"""ATen's operators that pick elements by index, and their adjoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tinytorch import creation, ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import bool_
from tinytorch.functions import (
    diagonals,
    elementwise as e,
    indexing,
    movement as m,
    ordering,
    reductions as r,
    scattering,
)
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.nn import functional as F
from tinytorch.state import is_recording
from tinytorch.tensor import Tensor

aten("gather")(lambda a, dim, index, *, sparse_grad=False: indexing.gather(a, dim, index))
aten("index_select")(indexing.index_select)
aten("scatter_add")(scattering.scatter_add)
aten("masked_scatter")(scattering.masked_scatter)
aten("diagonal")(diagonals.diagonal)
aten("searchsorted.Tensor", "searchsorted.Scalar")(ordering.searchsorted)
aten("bucketize.Tensor")(ordering.bucketize)
aten("one_hot")(indexing.one_hot)


@aten("embedding")
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if not (weight.requires_grad and is_recording()):
        return apply(ops.take, weight, indices)
    padding = None if padding_idx < 0 else padding_idx  # a row without a gradient
    return F.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq)


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
    """Write values at indices; dimensions without one are taken whole. Of several values for one
    place the last is put, or with `accumulate` their sum is added.
    """
    mask = indices[0] if len(indices) == 1 else None
    is_one = values.numel() == 1 and not accumulate
    if mask is not None and mask.dtype == bool_ and is_one:  # of a known shape: it can be traced
        wide = m.reshape(mask, (*mask.shape, *(1,) * (a.ndim - mask.ndim)))
        return e.where(wide, m.reshape(values, ()), a)
    places = tuple(slice(None) if i is None else i for i in indices)
    return scattering.put(a, places, values, accumulate)


@aten("scatter.value")
def scatter_value(a: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    return scattering.scatter(a, dim, index, value)


@aten("scatter.src")
def scatter_src(a: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return scattering.scatter(a, dim, index, src)


@aten("slice_scatter")
def slice_scatter(
    a: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
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
    return diagonals.tril(a, diagonal)


@aten("triu")
def triu(a: Tensor, diagonal: int = 0) -> Tensor:
    return diagonals.triu(a, diagonal)


@aten("copy")
def copy(a: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return m.expand(source.to(a.dtype), a.shape).clone()


# -- in order --------------------------------------------------------------------------------------


@aten("topk")
def topk(
    a: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    values, indices = ordering.topk(a, k, dim, largest)
    return values, indices


@aten("sort")
def sort(a: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = ordering.sort(a, dim, descending)
    return values, indices


@aten("sort.stable")
def sort_stable(
    a: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return sort(a, dim, descending)  # ours always is


@aten("argsort", "argsort.stable")
def argsort(a: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Tensor:
    return ordering.argsort(a, dim, descending)


#: What takes no part in a reduction, and how two results become one.
REDUCED: dict[str, tuple[float, Any, Any]] = {
    "amax": (-math.inf, r.amax, e.maximum),
    "amin": (math.inf, r.amin, e.minimum),
    "prod": (1.0, r.prod, e.mul),
}


@aten("scatter_reduce.two")
def scatter_reduce(
    a: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Reduce values by index; "amax", "amin" and "prod" compare every position with every index."""
    src = src[tuple(slice(n) for n in index.shape)]
    zeros = creation.zeros(a.shape, dtype=a.dtype)
    count = scattering.scatter_add(zeros, dim, index, creation.ones(index.shape, dtype=a.dtype))
    if reduce in ("sum", "mean"):
        total = scattering.scatter_add(a if include_self else zeros, dim, index, src)
        if reduce == "mean":
            number = count + 1 if include_self else e.maximum(count, 1)
            total = total / number if a.dtype.is_floating_point else e.floor_divide(total, number)
        return total if include_self else e.where(e.gt(count, 0), total, a)
    if not a.dtype.is_floating_point or any(
        n != k for i, (n, k) in enumerate(zip(a.shape, index.shape, strict=True))
        if i != dim % a.ndim
    ):  # fmt: skip
        raise NotImplementedError(
            f"scatter_reduce by {reduce} of {a.dtype.name}, or with an index of another size"
        )
    neutral, reduction, both = REDUCED[reduce]
    last = m.unsqueeze(m.transpose(index, dim, -1), -1)
    is_here = e.eq(last, creation.arange(a.shape[dim]))
    spread = e.where(is_here, m.unsqueeze(m.transpose(src, dim, -1), -1), neutral)
    found = m.transpose(reduction(spread, -2), dim, -1).to(a.dtype)
    return both(a, found) if include_self else e.where(e.gt(count, 0), found, a)
