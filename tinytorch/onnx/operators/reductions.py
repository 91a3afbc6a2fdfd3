"""ONNX operators that reduce, scan or sort dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch import creation
from tinytorch.functions import (
    elementwise as e,
    indexing,
    movement,
    ordering,
    reductions as r,
    scans,
)
from tinytorch.functions.dims import normalize_dims
from tinytorch.onnx.operators.registry import ints, operator
from tinytorch.tensor import Tensor

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _enter(name: str, reduce: Reduction) -> None:
    """A reduction over `axes`: an input, or (before version 13 or 18) an attribute."""

    @operator(name, static=["axes"])
    def reduction(
        x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        chosen = () if axes is None else ints(axes)
        if not chosen and noop_with_empty_axes:
            return reduce(movement.unsqueeze(x, -1), (x.ndim,), False)
        dims = normalize_dims(chosen or None, x.ndim)
        return reduce(x, dims, bool(keepdims))


def _extreme(function: Any, of_nothing: float, of_bools: Any) -> Reduction:
    def reduce(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        if x.dtype.name == "bool":
            return of_bools(x, dims, keepdim)  # type: ignore[no-any-return]
        if math.prod(x.shape[d] for d in dims) == 0:
            if not x.dtype.is_floating_point:
                limits = np.iinfo(x.dtype.dtype)
                value: float = limits.min if of_nothing < 0 else limits.max
            else:
                value = of_nothing
            empty = r.sum(x, dims, keepdim)
            return creation.full(empty.shape, value, dtype=x.dtype)
        return function(x, dims, keepdim)  # type: ignore[no-any-return]

    return reduce


def _sum(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    return r.sum(x, dims, keepdim).to(x.dtype)


def _prod(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    for d in sorted(dims, reverse=True):
        x = r.prod(x, d, keepdim).to(x.dtype)
    return x


def _logsumexp(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    if math.prod(x.shape[d] for d in dims) == 0:
        return e.log(r.sum(x, dims, keepdim))
    return r.logsumexp(x, dims, keepdim)


_enter("ReduceSum", _sum)
_enter("ReduceMean", r.mean)
_enter("ReduceProd", _prod)
_enter("ReduceMax", _extreme(r.amax, -math.inf, r.any))
_enter("ReduceMin", _extreme(r.amin, math.inf, r.all))
_enter("ReduceL1", lambda x, dims, keepdim: _sum(e.abs(x), dims, keepdim))
_enter("ReduceL2", lambda x, dims, keepdim: e.sqrt(_sum(x * x, dims, keepdim)).to(x.dtype))
_enter("ReduceSumSquare", lambda x, dims, keepdim: _sum(x * x, dims, keepdim))
_enter("ReduceLogSum", lambda x, dims, keepdim: e.log(_sum(x, dims, keepdim)))
_enter("ReduceLogSumExp", _logsumexp)


def _enter_arg(name: str, find: Any) -> None:
    @operator(name)
    def arg_reduction(
        x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Tensor:
        if not select_last_index:
            return find(x, axis, bool(keepdims))  # type: ignore[no-any-return]
        from_the_end = find(movement.flip(x, axis), axis, bool(keepdims))
        return x.shape[axis] - 1 - from_the_end  # type: ignore[no-any-return]


_enter_arg("ArgMax", r.argmax)
_enter_arg("ArgMin", r.argmin)


@operator("CumSum", static=["axis"])
def cumsum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    (dim,) = ints(axis)
    dim %= x.ndim
    x = movement.flip(x, dim) if reverse else x
    total = scans.cumsum(x, dim).to(x.dtype)
    if exclusive:
        total = total - x
    return movement.flip(total, dim) if reverse else total


@operator("TopK", since=10, static=["k"])
def top_k(
    x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    values, indices = ordering.topk(x, ints(k)[0], axis, bool(largest))
    return values, indices


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first largest element, 0 elsewhere."""
    hot = indexing.one_hot(r.argmax(x, axis), x.shape[axis]).to(x.dtype)
    return movement.permute(hot, _last_to(axis % x.ndim, x.ndim))


def _last_to(dim: int, ndim: int) -> tuple[int, ...]:
    order = list(range(ndim - 1))
    order.insert(dim, ndim - 1)
    return tuple(order)


@operator("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return r.softmax(x, axis)


@operator("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return r.log_softmax(x, axis)


@operator("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    length = r.norm(x, p, axis, keepdim=True)
    return e.where(e.eq(length, 0), x * 0, x / length)
