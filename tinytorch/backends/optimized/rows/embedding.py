"""Gathering rows by index (an embedding lookup), and adding them back."""

from __future__ import annotations

import math

import numpy as np

from tinytorch.backends.reference import within_reach
from tinytorch.backends.reference_movement import fill_array
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous, inverse, order_in_memory, pays_by_tiles
from tinytorch.jit.library import kernel

FEW = 64  # times as many elements are there as are read, where NumPy's loop over indices is cheap


@kernel
def _scatter_add(index: Array, g: Array, out: Array) -> None:
    """On one thread: several indices may name the same row."""
    for i in range(index.size):
        source, target = g[i], out[index[i]]
        for j in range(source.size):
            target[j] += source[j]


@kernel
def _scatter_add_numbers(index: Array, g: Array, out: Array) -> None:
    for i in range(index.size):
        out[index[i]] += g[i]


@kernel
def gather_rows(x: Array, index: Array, out: Array) -> None:
    """out[i, j] = x[i, index[i, j]]."""
    if index.shape[1] == 1:  # no loop to begin for each row
        for i in range(index.shape[0]):
            out[i, 0] = x[i, index[i, 0]]
        return
    for i in range(index.shape[0]):
        for j in range(index.shape[1]):
            out[i, j] = x[i, index[i, j]]


@kernel
def gather_columns(x: Array, index: Array, out: Array) -> None:
    """out[i, j, k] = x[i, index[i, j, k], k]."""
    for i in range(index.shape[0]):
        for j in range(index.shape[1]):
            for k in range(index.shape[2]):
                out[i, j, k] = x[i, index[i, j, k], k]


@kernel
def scatter_rows(index: Array, src: Array, out: Array, add: bool) -> bool:
    """Put or add each src[i, j] at out[i, index[i, j]]; False at the first that does not fit."""
    n = np.uint64(out.shape[1])
    if index.shape[1] == 1:
        for i in range(index.shape[0]):
            at = np.uint64(index[i, 0])  # of which a negative number is a large one
            if at >= n:
                return False
            out[i, at] = out[i, at] + src[i, 0] if add else src[i, 0]
        return True
    for i in range(index.shape[0]):
        for j in range(index.shape[1]):
            at = np.uint64(index[i, j])
            if at >= n:
                return False
            out[i, at] = out[i, at] + src[i, j] if add else src[i, j]
    return True


@kernel
def scatter_columns(index: Array, src: Array, out: Array, add: bool) -> bool:
    """Put or add each src[i, j, k] at out[i, index[i, j, k], k]; False at the first that does not
    fit."""
    n = np.uint64(out.shape[1])
    for i in range(index.shape[0]):
        for j in range(index.shape[1]):
            for k in range(index.shape[2]):
                at = np.uint64(index[i, j, k])
                if at >= n:
                    return False
                out[i, at, k] = out[i, at, k] + src[i, j, k] if add else src[i, j, k]
    return True


@kernel
def gather_line(x: Array, line: Array, out: Array) -> None:
    """out[i, j] = x[i, line[j]]."""
    places = np.empty(line.size, np.uint64)  # without a sign to be looked at in each row
    for j in range(line.size):
        places[j] = line[j] + (x.shape[1] if line[j] < 0 else 0)
    for i in range(out.shape[0]):
        source, target = x[i], out[i]
        for j in range(target.size):
            target[j] = source[places[j]]


@kernel
def gather_slices(x: Array, line: Array, out: Array) -> None:
    """out[i, j, :] = x[i, line[j], :]."""
    for i in range(out.shape[0]):
        for j in range(line.size):
            source, target = x[i, line[j]], out[i, j]
            for k in range(target.size):
                target[k] = source[k]


@kernel
def scatter_line(line: Array, src: Array, out: Array, add: bool) -> None:
    """Put or add each src[i, j] at out[i, line[j]]."""
    if line.size == 1:  # no loop to begin for each row
        at = line[0]
        for i in range(out.shape[0]):
            out[i, at] = out[i, at] + src[i, 0] if add else src[i, 0]
        return
    for i in range(out.shape[0]):
        values, row = src[i], out[i]
        for j in range(values.size):
            at = line[j]
            row[at] = row[at] + values[j] if add else values[j]


@kernel
def scatter_slices(line: Array, src: Array, out: Array, add: bool) -> None:
    """Put or add each src[i, j, :] at out[i, line[j], :]."""
    for i in range(out.shape[0]):
        for j in range(line.size):
            values, row = src[i, j], out[i, line[j]]
            for k in range(values.size):
                row[k] = row[k] + values[k] if add else values[k]


def _line_of(index: Array, dim: int) -> Array | None:
    """The index along `dim`, where it is the same throughout the others (a line, expanded)."""
    if index.ndim < 2 or not index.size:
        return None
    if any(index.strides[d] and n > 1 for d, n in enumerate(index.shape) if d != dim):
        return None
    return contiguous(index[(0,) * dim + (slice(None),) + (0,) * (index.ndim - dim - 1)])


def out_of_range(length: int) -> IndexError:
    """What `scatter` raises along a dimension of that length."""
    return IndexError(f"scatter: an index is not in 0 to {length - 1}")


def scatter(x: Array, index: Array, src: Array, *, dim: int, reduce: str) -> Array:
    """x, with src[i][j] put at [index[i][j]][j] (for dim 0), the last of several, or added there.

    Args:
        x, src: float32, float64 or int64.
        index: int64, no larger than x but along `dim`; src has its shape.
        reduce: "none" to put, "add" to add.

    Raises:
        IndexError: an index is negative or out of range.
    """
    line = _line_of(index, dim)
    order = None if line is None else order_in_memory([x])
    if order is not None:
        turned = (a.transpose(order) for a in (x, index, src))
        return scatter(*turned, dim=order.index(dim), reduce=reduce).transpose(inverse(order))
    out = copied_or_filled(x)
    near = within_reach(out, index, dim)
    if not index.size:
        return out
    inner = math.prod(index.shape[dim + 1 :])
    tail = (inner,) if inner > 1 else ()
    run = scatter_columns if tail else scatter_rows
    target = contiguous(near).reshape(-1, x.shape[dim], *tail)
    shape = (-1, index.shape[dim], *tail)
    values = contiguous(src).reshape(shape)
    if line is None:
        fits = run(contiguous(index).reshape(shape), values, target, reduce == "add")
    elif fits := bool(line.min() >= 0 and line.max() < x.shape[dim]):
        put = scatter_slices if tail else scatter_line
        put(line, values, target, reduce == "add")
    if not fits:
        raise out_of_range(x.shape[dim])
    if near.shape != out.shape:  # then the target is a copy
        near[...] = target.reshape(near.shape)
    return out


def copied_or_filled(x: Array) -> Array:
    """A copy in C order."""
    out = buffers.empty(x.shape, x.dtype)
    if out.size and not any(x.strides):  # one number, expanded: the zeros of a gradient
        fill_array(out, x[(0,) * x.ndim])
    else:
        np.copyto(out, contiguous(x) if pays_by_tiles(x) else x)
    return out


def gather(x: Array, index: Array, *, dim: int) -> Array:
    """out[i][j] = x[index[i][j]][j] (for dim 0).

    Args:
        x: float32, float64 or int64.
        index: int64, no larger than x but along `dim`.
    """
    if x.shape != index.shape:
        x = within_reach(x, index, dim)
    if FEW * index.size <= x.size and not x.flags.c_contiguous:  # of which less is read than copied
        return np.take_along_axis(x, index, dim)
    line = _line_of(index, dim)
    order = None if line is None else order_in_memory([x])
    if order is not None:
        along = gather(x.transpose(order), index.transpose(order), dim=order.index(dim))
        return along.transpose(inverse(order))
    out = buffers.empty(index.shape, x.dtype)
    if not out.size:
        return out
    inner = math.prod(index.shape[dim + 1 :])
    tail = (inner,) if inner > 1 else ()
    of_x, of_index = (-1, x.shape[dim], *tail), (-1, index.shape[dim], *tail)
    source = contiguous(x).reshape(of_x)
    if line is None:
        run = gather_columns if tail else gather_rows
        run(source, contiguous(index).reshape(of_index), out.reshape(of_index))
    elif tail:  # NumPy copies whole slices; "clip" is its mode without a check
        np.take(source, line, axis=1, out=out.reshape(of_index), mode="clip")
    else:
        gather_line(source, line, out.reshape(of_index))
    return out


def take(x: Array, index: Array) -> Array:
    """Rows of `x`, in the order of `index`.

    Args:
        x: (length, ...), of any dtype.
        index: any shape, int64, each in 0 .. length - 1.

    Returns:
        index.shape + x.shape[1:].
    """
    if not x.flags.c_contiguous:  # of which `np.take` would copy all rows first
        is_turned = x.ndim == 2 and index.ndim == 1 and x.T.flags.c_contiguous
        if is_turned and x.size >= FEW and x.dtype != np.float16:  # which numba does not have
            columns = np.empty((x.shape[1], index.size), x.dtype)
            gather_line(x.T, contiguous(index), columns)
            return columns.T
        return contiguous(x[index])
    out = buffers.empty(index.shape + x.shape[1:], x.dtype)
    # NumPy copies whole rows, as fast as memory allows. "clip" is its mode without a check.
    return np.take(x, index, axis=0, out=out, mode="clip")


def scatter_add(g: Array, index: Array, *, length: int) -> Array:
    """The adjoint of `take`: row i of `g` is added to row index[i] of zeros.

    Args:
        g: index.shape + (...).
        index: any shape, int64.
        length: rows of the result.

    Returns:
        (length, ...).
    """
    shape = g.shape[index.ndim :]
    width = math.prod(shape)
    out = buffers.empty((length, width), g.dtype)
    out[...] = 0
    flat = contiguous(index).reshape(-1)
    if width == 1:
        _scatter_add_numbers(flat, contiguous(g).reshape(-1), out.reshape(-1))
    else:
        _scatter_add(flat, contiguous(g).reshape(index.size, width), out)
    return out.reshape(length, *shape)
