"""What kernels over rows share: their layout, and what becomes of one row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinytorch.backends.optimized.elementwise.math import from_order_key, order_key
from tinytorch.dtypes import Array, Shape
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel


def as_rows(x: Array, dim: int) -> Array:
    """`x` as a contiguous (rows, x.shape[dim]); a view if `dim` is the last and memory allows."""
    if dim == 1 and x.ndim == 2 and x.flags.c_contiguous:
        return x
    last = x.ndim - 1
    if last < 0:
        return x.reshape(1, 1)
    moved = x if dim == last else x.transpose(*range(dim), *range(dim + 1, last + 1), dim)
    # the number of rows is given, not -1: there may be no elements
    return contiguous(moved).reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def from_rows(rows: Array, shape: Shape, dim: int) -> Array:
    """The inverse of `as_rows`: a contiguous array of this shape."""
    last = len(shape) - 1
    if dim == last or last < 0:
        return rows if last == 1 else rows.reshape(shape)
    moved = rows.reshape(*shape[:dim], *shape[dim + 1 :], shape[dim])
    return contiguous(moved.transpose(*range(dim), last, *range(dim, last)))


@kernel(force_inline=True)
def plus(a: Any, b: Any) -> Any:
    return a + b


@kernel(force_inline=True)
def times(a: Any, b: Any) -> Any:
    return a * b


@kernel(force_inline=True)
def largest(row: Any) -> Any:
    """The largest element. If there is a NaN, the result is a NaN or any element."""
    best = order_key(row[0])
    for j in range(1, row.size):
        key = order_key(row[j])
        best = key if key > best else best
    return from_order_key(best)


def map_rows(run: Callable[..., None], steps: int, dim: int, x: Array, *others: Array) -> Array:
    """Call a kernel that `shared` has made on the rows of some arrays; what it writes.

    Args:
        run: takes the work, the arrays as (rows, length), and the result, of the same shape.
        steps: elementary steps for each element.
        dim: a row's elements are neighbours along this dimension.
        x, others: arrays of one shape.
    """
    rows = as_rows(x, dim)
    out = buffers.empty_like(rows)
    work = steps * rows.size
    if work and others:
        run(work, rows, *[as_rows(other, dim) for other in others], out)
    elif work:  # without the list: it costs as much as a small kernel
        run(work, rows, out)
    return out if rows is x else from_rows(out, x.shape, dim)
