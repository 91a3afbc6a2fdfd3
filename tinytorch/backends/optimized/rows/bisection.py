"""Many rows at once, of lengths that Python would look at one by one.

Values are bisected, each into the row of its own; indices are drawn by the weights of a row; the
places of triangles, and of what is true, are written down, or the numbers that are there; equal
numbers are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends import reference
from tinytorch.backends.optimized.elementwise.math import EXACT
from tinytorch.dtypes import Array, Shape
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import in_order
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import kernel

_TYPES = tuple(map(np.dtype, (np.float32, np.float64, np.int64)))
_INT64 = np.dtype(np.int64)
AT_ONCE = 16  # elements that are passed over if none is true
MANY = 2048  # numbers: of fewer the calls take longer than to count them
TABLES = 4  # of counts: to add to one that was just written takes longer than to reach another


@kernel(fastmath=EXACT, force_inline=True)
def _is_before(a: Any, b: Any) -> Any:
    """Whether a < b; NaN is the largest number."""
    return a < b or (b != b and a == a)


@cache
def _entry(dtype: np.dtype[Any], is_right: bool) -> Callable[..., None]:
    @kernel(fastmath=EXACT)
    def bisect(length: int, count: int, rows: Array, values: Array, out: Array) -> None:
        out[:] = 0
        for i in range(values.size // count):
            row, left = rows[i * length : (i + 1) * length], length
            while left > 0:  # all values of a row at once: none waits for what another reads
                half = max(left // 2, 1)
                for k in range(i * count, (i + 1) * count):
                    value, here = values[k], row[out[k] + half - 1]
                    passes = not _is_before(value, here) if is_right else _is_before(here, value)
                    out[k] += half if passes else 0
                left = left - half

    arrays = [flat_type(from_dtype(t)) for t in (dtype, dtype, _INT64)]
    return Entries(step=(bisect, types.intp, types.intp, *arrays)).step


def bisected(rows: Array, values: Array, is_right: bool) -> Array:
    """As `reference.bisected`, without Python for each row."""
    if rows.ndim == 1 or rows.dtype not in _TYPES or not values.size:
        return reference.bisected(rows, values, is_right)
    out = np.empty(values.shape, _INT64)
    arrays = in_order(rows), in_order(values), out
    _entry(rows.dtype, is_right)(rows.shape[-1], values.shape[-1], *arrays)
    return out


@cache
def _drawing_entry(dtype: np.dtype[Any]) -> Callable[..., bool]:
    @kernel(fastmath=EXACT)
    def draw(length: int, count: int, weights: Array, u: Array, out: Array) -> bool:
        totals, fits = np.empty(length, np.float64), True
        for i in range(weights.size // length):
            row, total = weights[i * length : (i + 1) * length], 0.0
            for j in range(length):
                fits &= row[j] >= 0
                total += np.float64(row[j])
                totals[j] = total
            fits &= 0 < total < np.inf
            for k in range(i * count, (i + 1) * count):
                wanted, at, left = u[k] * total, 0, length
                while left > 1:
                    half = left // 2
                    at += half if totals[at + half - 1] <= wanted else 0
                    left -= half
                out[k] = at  # at most the last
        return fits

    arrays = [flat_type(from_dtype(t)) for t in (dtype, np.dtype(np.float64), _INT64)]
    return Entries(step=(draw, types.intp, types.intp, *arrays)).step


def drawn(weights: Array, u: Array) -> Array | None:
    """As `reference.drawn`; the sums of a row stay in the caches."""
    if weights.dtype not in _TYPES[:2]:
        return reference.drawn(weights, u)
    out = np.empty(u.shape, _INT64)
    arrays = in_order(weights), in_order(u), out
    return out if _drawing_entry(weights.dtype)(weights.shape[-1], u.shape[-1], *arrays) else None


@cache
def _places_entry() -> Callable[..., None]:
    @kernel
    def write(starts: Array, counts: Array, out: Array) -> None:
        at, half = 0, out.size // 2
        for i in range(counts.size):
            start, end = starts[i], at + counts[i]
            rows, columns = out[at:end], out[half + at : half + end]
            for j in range(rows.size):
                rows[j] = i
            for j in range(rows.size):
                columns[j] = start + j
            at = end

    return Entries(step=(write, *(flat_type(types.int64),) * 3)).step


def write_places(starts: Array, counts: Array, out: Array) -> None:
    """As `reference.write_places`, in one walk over the result."""
    _places_entry()(in_order(starts), in_order(counts), out)


@kernel(force_inline=True)
def _write_pair(i: int, j: int, starts: Array, out: Array) -> None:
    out[0], out[1] = i, j


@kernel(force_inline=True)
def _write_index(i: int, j: int, starts: Array, out: Array) -> None:
    last = out.size - 1
    for k in range(last):
        out[k] = starts[i * last + k]
    out[last] = j


@cache
def _positions_entry(is_matrix: bool) -> Callable[..., None]:
    write_one = _write_pair if is_matrix else _write_index

    @kernel
    def write(width: int, ndim: int, starts: Array, true: Array, out: Array) -> None:
        at = 0
        for i in range(true.size // width):
            row = true[i * width : (i + 1) * width]
            for begin in range(0, width, AT_ONCE):
                block, is_any = row[begin : begin + AT_ONCE], np.uint8(0)
                for j in range(block.size):
                    is_any |= block[j]
                if not is_any:
                    continue
                for j in range(block.size):
                    if at >= out.size:
                        return
                    write_one(i, begin + j, starts, out[at : at + ndim])
                    at += ndim * block[j]  # or it is written over: a branch costs more

    arrays = [flat_type(t) for t in (types.int64, types.uint8, types.int64)]
    return Entries(step=(write, types.intp, types.intp, *arrays)).step


def write_positions(shape: Shape, rows: Array, out: Array) -> None:
    """As `reference.write_positions`, in one walk over both."""
    starts = out if len(shape) == 2 else in_order(reference.row_starts(shape))
    step = _positions_entry(len(shape) == 2)
    step(rows.shape[1], len(shape), starts, rows.view(np.uint8), out)


@cache
def _compress_entry(itemsize: int) -> Callable[..., None]:
    @kernel
    def compress(x: Array, mask: Array, out: Array) -> None:
        at, i = 0, 0
        while at < out.size:
            out[at] = x[i]
            at += mask[i]  # or it is written over: a branch costs more
            i += 1

    bits = flat_type(from_dtype(np.dtype(f"u{itemsize}")))
    return Entries(step=(compress, bits, flat_type(types.uint8), bits)).step


def compressed(x: Array, mask: Array) -> Array:
    """As `x[mask]`, which branches at each element."""
    out, bits = buffers.empty((int(np.count_nonzero(mask)),), x.dtype), f"u{x.dtype.itemsize}"
    step = _compress_entry(x.dtype.itemsize)
    step(in_order(x).view(bits), in_order(mask).view(np.uint8), out.view(bits))
    return out


@cache
def _counting() -> Entries:
    @kernel
    def largest(x: Array) -> int:
        low, high = x[0], x[0]
        for i in range(x.size):
            low, high = min(low, x[i]), max(high, x[i])
        return high if low >= 0 else -1

    @kernel
    def count(x: Array, out: Array) -> None:
        tables, whole = np.zeros((TABLES, out.size), np.int64), x.size // TABLES * TABLES
        for i in range(0, whole, TABLES):
            tables[0, x[i]] += 1
            tables[1, x[i + 1]] += 1
            tables[2, x[i + 2]] += 1
            tables[3, x[i + 3]] += 1
        for i in range(whole, x.size):
            tables[0, x[i]] += 1
        for j in range(out.size):
            out[j] = tables[0, j] + tables[1, j] + tables[2, j] + tables[3, j]

    numbers = flat_type(types.int64)
    return Entries(largest=(largest, numbers), count=(count, numbers, numbers))


def counted(x: Array, minlength: int) -> Array:
    """As `np.bincount`, which counts in one table."""
    if x.dtype == _INT64 and x.size >= MANY:
        numbers, run = in_order(x), _counting()
        largest = run.largest(numbers)
        length = max(largest + 1, minlength)
        if largest >= 0 and length * TABLES <= x.size:
            out = np.empty(length, _INT64)
            run.count(numbers, out)
            return out
    return np.bincount(x, minlength=minlength)
