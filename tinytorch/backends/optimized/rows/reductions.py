"""Sums, maxima and minima over some dimensions.

Adjacent dimensions that are reduced count as one, and so do those between them: every reduction
is then a sequence of steps (outer, reduced, inner) -> (outer, inner), of which there are two kinds.
With inner = 1 a row becomes one number; otherwise whole rows are combined, element by element. Both
walk along memory.

Sums are made in blocks, and the blocks added up in float64 (rows) or a second time (columns), so
the error grows with the length of a block and not with the number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.blocked.sums import total
from tinytorch.backends.optimized.elementwise.math import from_order_key, order_key
from tinytorch.backends.optimized.rows.rows import plus, times
from tinytorch.dtypes import Array
from tinytorch.jit import buffers, threads
from tinytorch.jit.contiguous import contiguous, in_order, inverse, order_in_memory
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

BLOCK = 4096  # elements of a row summed in the array's own dtype
COLUMN_BLOCK = 128  # rows
SHORT = 15  # numbers of a row: too few for the widest vector
WIDE = 1024  # numbers of rows side by side: then the loop over them costs more than to begin it


Kernel = Callable[..., None]
Shape = tuple[int, ...]


@kernel
def _sum_rows(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        row, blocks = x[i], 0.0
        for first in range(0, row.size, BLOCK):
            blocks += total(row[first : first + BLOCK])
        out[i] = blocks


@kernel
def _sum_columns(x: Array, out: Array) -> None:
    part = np.empty(min(BLOCK, x.shape[2]), x.dtype)  # which stays in L1
    for i in range(x.shape[0]):
        for start in range(0, x.shape[2], BLOCK):
            result = out[i, start : start + BLOCK]
            result[:] = 0
            for first in range(0, x.shape[1], COLUMN_BLOCK):
                part[:] = 0
                for r in range(first, min(first + COLUMN_BLOCK, x.shape[1])):
                    row = x[i, r, start : start + BLOCK]
                    for j in range(row.size):
                        part[j] += row[j]
                for j in range(result.size):
                    result[j] += part[j]


@kernel
def _multiply_rows(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        row, product = x[i], x.dtype.type(1)
        for j in range(row.size):
            product *= row[j]
        out[i] = product


@kernel
def _multiply_columns(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        result = out[i]
        result[:] = 1
        for r in range(x.shape[1]):
            row = x[i, r]
            for j in range(row.size):
                result[j] *= row[j]


@kernel(force_inline=True)
def above(a: Any, b: Any) -> Any:
    return a > b


@kernel(force_inline=True)
def below(a: Any, b: Any) -> Any:
    return a < b


def _extreme(beats: Callable[[Any, Any], Any]) -> tuple[Kernel, Kernel]:
    """The element that beats all others, of rows and of columns; NaN if there is one."""

    @kernel(force_inline=True)
    def better(a: Any, b: Any) -> Any:
        return a if beats(a, b) else b

    @kernel(force_inline=True)
    def worse(a: Any, b: Any) -> Any:
        return b if beats(a, b) else a

    @kernel(force_inline=True)
    def of_short_rows(x: Array, out: Array) -> None:
        for i in range(x.shape[0]):
            best = x[i, 0]
            for j in range(1, x.shape[1]):
                # a NaN that is there stays: it is beaten by nothing
                best = x[i, j] if beats(x[i, j], best) or x[i, j] != x[i, j] else best
            out[i] = best

    @kernel
    def of_rows(x: Array, out: Array) -> None:
        if x.shape[1] <= SHORT:
            of_short_rows(x, out)
            return
        for i in range(x.shape[0]):
            row = x[i]
            # a NaN's key is at one of the two ends: the worst costs less than a look at each number
            best = worst = order_key(row[0])
            # a long row is read at four places at once: four streams are fetched ahead, not one
            n = row.size // 4 if row.size >= BLOCK else 0
            p, q, r, s = row[:n], row[n : 2 * n], row[2 * n : 3 * n], row[3 * n : 4 * n]
            for j in range(n):
                a, b, c, d = order_key(p[j]), order_key(q[j]), order_key(r[j]), order_key(s[j])
                best = better(better(better(a, b), better(c, d)), best)
                worst = worse(worse(worse(a, b), worse(c, d)), worst)
            rest = row[4 * n :]
            for j in range(rest.size):
                key = order_key(rest[j])
                best, worst = better(key, best), worse(key, worst)
            first, last = from_order_key(best), from_order_key(worst)
            out[i] = first if first == first and last == last else np.nan

    @kernel
    def of_columns(x: Array, out: Array) -> None:
        # two lines in turn: what may write a number back to where it was read is no vector code
        lines = np.empty((2, min(BLOCK, x.shape[2])), x.dtype)
        for i in range(x.shape[0]):
            for first in range(0, x.shape[2], BLOCK):
                part = out[i, first : first + BLOCK]
                for j in range(part.size):
                    lines[0, j] = x[i, 0, first + j]
                for r in range(1, x.shape[1]):
                    row = x[i, r, first : first + BLOCK]
                    best, result = lines[(r - 1) % 2], lines[r % 2]
                    for j in range(row.size):
                        wins = beats(row[j], best[j]) or row[j] != row[j]
                        result[j] = row[j] if wins else best[j]
                for j in range(part.size):
                    part[j] = lines[(x.shape[1] - 1) % 2, j]

    return of_rows, of_columns


KERNELS = {
    "sum": (_sum_rows, _sum_columns),
    "prod": (_multiply_rows, _multiply_columns),
    "amax": _extreme(above),
    "amin": _extreme(below),
}
"""Of rows, x (outer, reduced), and of columns, x (outer, reduced, inner)."""


def _of_integers(combine: Callable[[Any, Any], Any]) -> tuple[Kernel, Kernel]:
    """Rows and columns whose elements may be combined in any order; none is empty."""

    @kernel
    def of_rows(x: Array, out: Array) -> None:
        for i in range(x.shape[0]):
            row, result = x[i], x[i, 0]
            for j in range(1, row.size):
                result = x.dtype.type(combine(result, row[j]))
            out[i] = result

    @kernel
    def of_columns(x: Array, out: Array) -> None:
        for i in range(x.shape[0]):
            result = out[i]
            result[:] = x[i, 0]
            for r in range(1, x.shape[1]):
                row = x[i, r]
                for j in range(row.size):
                    result[j] = combine(result[j], row[j])

    return of_rows, of_columns


@kernel(force_inline=True)
def _larger(a: int, b: int) -> int:
    return max(a, b)


@kernel(force_inline=True)
def _smaller(a: int, b: int) -> int:
    return min(a, b)


_OF_INTEGERS = {
    name: _of_integers(combine)
    for name, combine in zip(KERNELS, (plus, times, _larger, _smaller), strict=True)
}
"""The same of int64, and of bool as bytes."""


def is_narrow(reduced: int, inner: int) -> bool:
    """Whether columns are so many and short that several rows are taken side by side."""
    return 1 < inner <= WIDE // 4 and reduced * inner >= 4 * WIDE


@kernel
def rows_beside(reduced: int, inner: int) -> int:
    """How many rows are taken side by side: without a rest, where half as many have none."""
    most = min(WIDE // inner, int(math.sqrt(reduced)))
    for count in range(most, most // 2, -1):
        if reduced % count == 0:
            return count
    return most


def _of_narrow(columns: Kernel) -> Kernel:
    """The same as `columns`, where that is so.

    A row of four numbers costs as much as one of a hundred: for each the loop is begun anew.
    """

    @kernel
    def narrow(x: Array, out: Array) -> None:
        outer, reduced, inner = x.shape
        beside = rows_beside(reduced, inner)
        count = reduced // beside
        whole = count * beside
        wide = np.empty((1, beside * inner), x.dtype)
        rest = np.empty((1, beside + reduced - whole, inner), x.dtype)
        for i in range(outer):
            numbers = x[i].reshape(reduced * inner)
            columns(numbers[: whole * inner].reshape((1, count, beside * inner)), wide)
            rest[0, :beside] = wide.reshape((beside, inner))
            rest[0, beside:] = x[i, whole:]
            columns(rest, out[i : i + 1])

    return narrow


_NARROW = {
    columns: _of_narrow(columns) for _, columns in (*KERNELS.values(), *_OF_INTEGERS.values())
}


def _kernel_of(name: str, dtype: np.dtype[Any], reduced: int, inner: int) -> Kernel:
    """The kernel for a step."""
    rows, columns = (KERNELS if dtype.kind == "f" else _OF_INTEGERS)[name]
    if inner == 1:
        return rows
    return _NARROW[columns] if is_narrow(reduced, inner) else columns


@lru_cache(4096)
def runs_of(shape: Shape, dims: Shape, keepdim: bool) -> tuple[list[tuple[int, int, int]], Shape]:
    """The steps (outer, reduced, inner) that reduce `dims`, and the shape of the result."""
    dims = tuple(sorted(dims))
    kept = tuple(1 if d in dims else s for d, s in enumerate(shape))
    result = kept if keepdim else tuple(s for d, s in enumerate(shape) if d not in dims)
    sizes, steps, last = list(shape), [], len(dims)
    while last:  # the last run of adjacent dimensions first: its steps are the cheapest
        first = last - 1
        while first and dims[first - 1] == dims[first] - 1:
            first -= 1
        a, b = dims[first], dims[last - 1] + 1
        steps.append((math.prod(sizes[:a]), math.prod(sizes[a:b]), math.prod(sizes[b:])))
        sizes[a:b] = [1] * (b - a)
        last = first
    return steps, result


def along_memory(
    reduce: Callable[..., Array], order: tuple[int, ...], dims: Shape, result: Shape
) -> Array:
    """A reduction of arrays that were turned into the order in which they are stored.

    Args:
        reduce: takes `dims` of the turned arrays, and keeps them.
        order: of the arrays' dimensions in memory (`order_in_memory`).
        dims: of the arrays as they were.
        result: its shape.
    """
    turned = tuple(i for i, d in enumerate(order) if d in dims)
    return reduce(dims=turned).transpose(inverse(order)).reshape(result)


@cache
def _shared(kernel: Kernel) -> Callable[..., None]:
    return shared(kernel, "x[:], out[:]")


def _reduction(name: str) -> Callable[..., Array]:
    def step(x: Array, outer: int, reduced: int, inner: int) -> Array:
        run = _shared(_kernel_of(name, x.dtype, reduced, inner))
        if inner == 1:
            out = np.empty(outer, x.dtype)
            run(x.size, x.reshape(outer, reduced), out)
        else:
            out = buffers.empty((outer, inner), x.dtype)
            run(x.size, x.reshape(outer, reduced, inner), out)
        return out

    def reduce(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        if not dims:
            return x.copy()
        if x.dtype.kind == "b":
            return reduce(x.view(np.uint8), dims=dims, keepdim=keepdim).view(np.bool_)
        steps, shape = runs_of(x.shape, dims, keepdim)
        order = order_in_memory([x]) if x.nbytes >= buffers.POOLED_FROM else None
        if order is not None:
            along = partial(reduce, x.transpose(order), keepdim=True)
            return along_memory(along, order, dims, shape)
        result: Any = contiguous(x)
        for outer, reduced, inner in steps:
            result = step(result, outer, reduced, inner)
        return result.reshape(shape)

    return reduce


def specialize(
    name: str, dtype: np.dtype[Any], shape: Shape, dims: Shape, keepdim: bool
) -> Callable[..., Array] | None:
    """The kernel for arrays of this shape alone, where that is one step on one thread; else None.

    On a small array most of the time would go into finding out which step it is.

    Args:
        name: one of `KERNELS`.
        dtype: float32, float64 or int64; for the largest and the smallest also bool.
    """
    if dtype.kind == "b":
        of_bytes = specialize(name, np.dtype(np.uint8), shape, dims, keepdim)
        return None if of_bytes is None else _of_truth(of_bytes)
    steps, result = runs_of(shape, dims, keepdim)
    if len(steps) != 1 or math.prod(shape) >= threads.SERIAL_BELOW:
        return None
    outer, reduced, inner = steps[0]
    step = _entry(_kernel_of(name, dtype, reduced, inner), dtype, inner == 1)

    def reduce(x: Array, **_: Any) -> Array:
        out = np.empty(result, dtype)
        try:
            step(outer, reduced, inner, x, out)
        except BufferError:  # not in C order
            step(outer, reduced, inner, in_order(x), out)
        return out

    reduce.gives_arrays = reduce.flat = True  # type: ignore[attr-defined]
    return reduce


def _of_truth(of_bytes: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(x: Array, **_: Any) -> Array:
        return of_bytes(x.view(np.uint8)).view(np.bool_)

    reduce.gives_arrays = True  # type: ignore[attr-defined]
    return reduce


@cache
def _entry(kernel_of_step: Kernel, dtype: np.dtype[Any], is_rows: bool) -> Callable[..., None]:
    """A kernel for flat arrays: takes outer, reduced, inner, x and out."""

    def of_rows(outer: int, reduced: int, inner: int, x: Array, out: Array) -> None:
        kernel_of_step(x.reshape((outer, reduced)), out)

    def of_columns(outer: int, reduced: int, inner: int, x: Array, out: Array) -> None:
        kernel_of_step(x.reshape((outer, reduced, inner)), out.reshape((outer, inner)))

    array = flat_type(from_dtype(dtype))
    size = types.intp
    step = kernel(of_rows if is_rows else of_columns)
    return Entries(step=(step, size, size, size, array, array)).step


_sum, _prod, _amax, _amin = map(_reduction, KERNELS)


def sum(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
    """Sum over `dims`; 0 where there is nothing to add.

    Args:
        x: any shape, float32, float64, or int64 with elements.
        dims: non-negative dimensions.
        keepdim: leave the reduced dimensions in place, with length 1.
    """
    return _sum(x, dims=dims, keepdim=keepdim)


def prod(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
    """Product over `dims`; 1 where there is nothing to multiply."""
    return _prod(x, dims=dims, keepdim=keepdim)


def amax(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
    """Largest element over `dims`; NaN if there is one. The reduced dimensions are not empty.

    Args:
        x: as for `sum`, or of bool.
    """
    return _amax(x, dims=dims, keepdim=keepdim)


def amin(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
    """Smallest element over `dims`; see `amax`."""
    return _amin(x, dims=dims, keepdim=keepdim)
