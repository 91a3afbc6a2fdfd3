"""Elements of small arrays by index, by kernels called without numba's dispatch: see `small`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from tinytorch.backends import reference
from tinytorch.backends.optimized.rows import embedding
from tinytorch.backends.optimized.rows.small import (
    FLOATS,
    INT64,
    NUMBERS,
    Kernel,
    are_small,
    compiled,
    dtypes_of,
    entry,
    flat,
    is_small,
    on_two,
    outer_length_inner,
    shape_of,
)
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous, in_order, order_in_memory
from tinytorch.op import Plan


def _has_one_shape(plan: Plan) -> bool:
    """Whether x and the index have one shape but along `dim`, and types that kernels have."""
    x, index = plan.operands[:2]
    dim = plan.params["dim"]
    if not isinstance(x, TensorMeta) or not isinstance(index, TensorMeta):
        return False
    first, second = (m.shape[:dim] + m.shape[dim + 1 :] for m in (x, index))
    return first == second and x.dtype.dtype in NUMBERS and index.dtype.dtype == INT64


@compiled
def _gather(
    outer: int, length: int, count: int, inner: int, x: Array, index: Array, out: Array
) -> None:
    if inner == 1:
        wanted, found = index.reshape((outer, count)), out.reshape((outer, count))
        embedding.gather_rows(x.reshape((outer, length)), wanted, found)
    else:
        wide = (outer, count, inner)
        source = x.reshape((outer, length, inner))
        embedding.gather_columns(source, index.reshape(wide), out.reshape(wide))


def gather(plan: Plan) -> Kernel | None:
    """See `embedding.gather`; few elements of a large x are no work for threads, either.

    Its attribute `of_line` makes a kernel that takes the index along `dim` alone, where it is the
    same throughout the other dimensions; so does that of `scatter`.
    """
    if not _has_one_shape(plan):
        return None
    x, index = plan.operands
    assert isinstance(x, TensorMeta) and isinstance(index, TensorMeta)
    dim = plan.params["dim"]
    outer, length, inner = outer_length_inner(shape_of(plan), dim)
    shape, dtype = plan.meta.shape, plan.meta.dtype.dtype
    sizes = outer, length, shape[dim], inner
    if are_small(x, plan.meta):  # a line is shorter than the index
        kernel: Any = partial(embedding.gather)
        if are_small(index):
            kernel = on_two(plan, partial(_gather_entry(dtype), *sizes))
        kernel.of_line = lambda: on_two(plan, partial(_gather_entry(dtype, _gather_line), *sizes))
        return kernel
    if 0 in x.shape or not are_small(index, plan.meta):
        return None
    step = partial(_gather_entry(dtype), *sizes)

    def run(x: Array, index: Array, **_: Any) -> Array:
        out = np.empty(shape, dtype)
        try:
            step(x, index, out)
        except BufferError:  # x is not copied for a few of its elements
            return embedding.gather(x, index, dim=dim)
        return out

    return run


@compiled
def _gather_line(
    outer: int, length: int, count: int, inner: int, x: Array, line: Array, out: Array
) -> None:
    if inner == 1:
        embedding.gather_line(x.reshape((outer, length)), line, out.reshape((outer, count)))
    else:
        found = out.reshape((outer, count, inner))
        embedding.gather_slices(x.reshape((outer, length, inner)), line, found)


@cache
def _gather_entry(dtype: np.dtype[Any], step: Any = _gather) -> Callable[..., Any]:
    return entry(step, 4, dtype, INT64, dtype)


@compiled
def _scatter(
    outer: int,
    length: int,
    count: int,
    inner: int,
    add: int,
    x: Array,
    index: Array,
    src: Array,
    out: Array,
) -> bool:
    for i in range(x.size):
        out[i] = x[i]
    if inner == 1:
        places, values = index.reshape((outer, count)), src.reshape((outer, count))
        return embedding.scatter_rows(places, values, out.reshape((outer, length)), add == 1)
    wide = (outer, count, inner)
    target = out.reshape((outer, length, inner))
    return embedding.scatter_columns(index.reshape(wide), src.reshape(wide), target, add == 1)


def scatter(plan: Plan) -> Kernel | None:
    """See `embedding.scatter`, which a line in a large array does not need either."""
    if not _has_one_shape(plan) or len(set(dtypes_of(plan)[::2])) > 1 or 0 in plan.meta.shape:
        return None
    dim, index = plan.params["dim"], plan.operands[1]
    assert isinstance(index, TensorMeta)
    outer, length, inner = outer_length_inner(shape_of(plan), dim)
    is_sum = plan.params["reduce"] == "add"
    sizes = outer, length, index.shape[dim], inner, int(is_sum)
    shape, dtype = plan.meta.shape, plan.meta.dtype.dtype
    if not is_small(plan):
        of_any: Any = partial(embedding.scatter)
        of_any.of_line = lambda: _scatter_large_line(plan, sizes)
        return of_any if index.size else None

    def kernel_of(function: Any) -> Any:
        step = partial(_scatter_entry(dtype, function), *sizes)

        def run(x: Array, index: Array, src: Array, **_: Any) -> Array:
            out = np.empty(shape, dtype)
            try:
                fits = step(x, index, src, out)
            except BufferError:
                fits = step(*map(in_order, (x, index, src)), out)
            if not fits:
                raise embedding.out_of_range(length)
            return out

        return flat(run)

    kernel = kernel_of(_scatter)
    kernel.of_line = lambda: kernel_of(_scatter_line)
    return kernel


def _scatter_large_line(plan: Plan, sizes: tuple[int, ...]) -> Kernel:
    dim, index, dtype = plan.params["dim"], plan.operands[1], plan.meta.dtype.dtype
    assert isinstance(index, TensorMeta)
    step, of_line = partial(_put_entry(dtype), *sizes), [1] * index.ndim
    of_line[dim] = -1

    def run(x: Array, line: Array, src: Array, **params: Any) -> Array:
        if order_in_memory([x]) is not None:
            index_of_all = np.broadcast_to(line.reshape(of_line), index.shape)
            return embedding.scatter(x, index_of_all, src, **params)
        out = embedding.copied_or_filled(x)
        try:
            fits = step(line, src, out)
        except BufferError:
            fits = step(contiguous(line), contiguous(src), out)
        if not fits:
            raise embedding.out_of_range(sizes[1])
        return out

    return run


@compiled
def _scatter_line(
    outer: int,
    length: int,
    count: int,
    inner: int,
    add: int,
    x: Array,
    line: Array,
    src: Array,
    out: Array,
) -> bool:
    for i in range(x.size):
        out[i] = x[i]
    return _put_line(outer, length, count, inner, add, line, src, out)


@compiled
def _put_line(
    outer: int, length: int, count: int, inner: int, add: int, line: Array, src: Array, out: Array
) -> bool:
    if not _is_within(length, line):
        return False
    if inner == 1:
        target = out.reshape((outer, length))
        embedding.scatter_line(line, src.reshape((outer, count)), target, add == 1)
    else:
        slices = out.reshape((outer, length, inner))
        embedding.scatter_slices(line, src.reshape((outer, count, inner)), slices, add == 1)
    return True


@cache
def _put_entry(dtype: np.dtype[Any]) -> Callable[..., Any]:
    return entry(_put_line, 5, INT64, dtype, dtype)


@cache
def _scatter_entry(dtype: np.dtype[Any], step: Any) -> Callable[..., Any]:
    return entry(step, 5, dtype, INT64, dtype, dtype)


@compiled
def _take(width: int, x: Array, index: Array, out: Array) -> None:
    last = x.size // width - 1
    if width == 1:
        for i in range(index.size):
            out[i] = x[min(max(index[i], 0), last)]
        return
    for i in range(index.size):
        row = min(max(index[i], 0), last) * width
        for j in range(width):
            out[i * width + j] = x[row + j]


def take(plan: Plan) -> Kernel | None:
    """See `embedding.take`."""
    x, index = plan.operands
    if not is_small(plan) or not isinstance(x, TensorMeta) or not isinstance(index, TensorMeta):
        return None
    if x.dtype.dtype not in FLOATS or index.dtype.dtype != INT64:
        return None
    return on_two(plan, partial(_take_entry(x.dtype.dtype), math.prod(x.shape[1:])))


@cache
def _take_entry(dtype: np.dtype[Any]) -> Callable[..., Any]:
    return entry(_take, 1, dtype, INT64, dtype)


@compiled
def _scatter_add(width: int, g: Array, index: Array, out: Array) -> None:
    for i in range(index.size):
        row = index[i] * width
        for j in range(width):
            out[row + j] += g[i * width + j]


def scatter_add(plan: Plan) -> Kernel | None:
    """See `embedding.scatter_add`; its indices are in range."""
    g, index = plan.operands
    if not is_small(plan) or not isinstance(g, TensorMeta) or not isinstance(index, TensorMeta):
        return None
    if g.dtype.dtype not in NUMBERS or index.dtype.dtype != INT64:
        return None
    step = partial(_scatter_add_entry(g.dtype.dtype), math.prod(plan.meta.shape[1:]))
    return on_two(plan, step, np.zeros)


@cache
def _scatter_add_entry(dtype: np.dtype[Any]) -> Callable[..., Any]:
    return entry(_scatter_add, 1, dtype, INT64, dtype)


# -- conditions ------------------------------------------------------------------------------------


@compiled
def _is_within(extent: int, index: Array) -> bool:
    fits = True
    for i in range(index.size):
        fits &= (index[i] >= 0) & (index[i] < extent)
    return fits


@cache
def _within_entry() -> Callable[..., Any]:
    return entry(_is_within, 1, INT64)


def is_within(data: Array, extent: int) -> Any:
    """As `reference.is_within`."""
    if data.dtype is INT64 and data.nbytes < buffers.POOLED_FROM:
        try:
            return _within_entry()(extent, data)
        except BufferError:
            pass
    return reference.is_within(data, extent)
