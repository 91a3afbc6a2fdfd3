"""Gathering rows by index (an embedding lookup), and adding them back."""

from __future__ import annotations

import math

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel


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
def _gather_rows(x: Array, index: Array, out: Array) -> None:
    for i in range(index.shape[0]):
        for j in range(index.shape[1]):
            out[i, j] = x[i, index[i, j]]


@kernel
def _gather_columns(x: Array, index: Array, out: Array) -> None:
    for i in range(index.shape[0]):
        for j in range(index.shape[1]):
            for k in range(index.shape[2]):
                out[i, j, k] = x[i, index[i, j, k], k]


def gather(x: Array, index: Array, *, dim: int) -> Array:
    """out[i][j] = x[index[i][j]][j] (for dim 0).

    Args:
        x: float32, float64 or int64.
        index: int64, no larger than x but along `dim`.
    """
    if x.shape != index.shape:
        x = x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]
    out = buffers.empty(index.shape, x.dtype)
    if not out.size:
        return out
    inner = math.prod(index.shape[dim + 1 :])
    tail = (inner,) if inner > 1 else ()
    of_x, of_index = (-1, x.shape[dim], *tail), (-1, index.shape[dim], *tail)
    run = _gather_columns if tail else _gather_rows
    source, wanted = np.ascontiguousarray(x), np.ascontiguousarray(index)
    run(source.reshape(of_x), wanted.reshape(of_index), out.reshape(of_index))
    return out


def take(x: Array, index: Array) -> Array:
    """Rows of `x`, in the order of `index`.

    Args:
        x: (length, ...), float32 or float64.
        index: any shape, int64, each in 0 .. length - 1.

    Returns:
        index.shape + x.shape[1:].
    """
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
    flat = np.ascontiguousarray(index).reshape(-1)
    if width == 1:
        _scatter_add_numbers(flat, np.ascontiguousarray(g).reshape(-1), out.reshape(-1))
    else:
        _scatter_add(flat, np.ascontiguousarray(g).reshape(index.size, width), out)
    return out.reshape(length, *shape)


def dynamic_update_slice(a: Array, update: Array, start: Array, *, dim: int) -> Array:
    """A copy of `a` with `update` along `dim` from `start` on.

    Raises:
        IndexError: the slice would not lie within `a`.
    """
    first, most = int(start), a.shape[dim] - update.shape[dim]
    if not 0 <= first <= most:
        raise IndexError(f"a slice that begins at {first} must begin at 0 to {most}")
    out = np.array(a, order="C", copy=True)
    out[(slice(None),) * dim + (slice(first, first + update.shape[dim]),)] = update
    return out
