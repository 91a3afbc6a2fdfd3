"""Kernels along one dimension for small arrays of one shape, called without numba's dispatch.

The array is (outer, length, inner): `length` is along the dimension, and with inner = 1 elements
along it are neighbours. Which it is, the plan knows; the rest is one call of an entry for flat
arrays (`jit.entries.FlatArray`), where on larger arrays threads and layouts are looked at first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.elementwise.logarithms import log
from tinytorch.backends.optimized.elementwise.math import EXACT, exp, exp_of_negative
from tinytorch.backends.optimized.rows import cross, scans, selection, softmax
from tinytorch.backends.optimized.rows.order import number_key
from tinytorch.backends.optimized.rows.reductions import KERNELS
from tinytorch.dtypes import Array, Shape, TensorMeta
from tinytorch.jit import buffers, threads
from tinytorch.jit.contiguous import in_order
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import kernel
from tinytorch.op import Plan

Kernel = Callable[..., Array]

FLOATS = np.dtype(np.float32), np.dtype(np.float64)
NUMBERS = (*FLOATS, np.dtype(np.int64))
INT64 = np.dtype(np.int64)
compiled = partial(kernel, nogil=False)

# Numbers that move up by one in less than the calls around NumPy's sort take: each number moves up
# to as many times as there are places.
MOVES = 2**15


def entry(step: Any, sizes: int, *dtypes: np.dtype[Any]) -> Callable[..., Any]:
    """A kernel for flat arrays of these dtypes, after so many whole numbers."""
    arrays = [flat_type(from_dtype(dtype)) for dtype in dtypes]
    found: Callable[..., Any] = Entries(step=(step, *(types.intp,) * sizes, *arrays)).step
    return found


def outer_length_inner(shape: Shape, dim: int) -> tuple[int, int, int]:
    """The shape as (outer, length, inner)."""
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def dtypes_of(plan: Plan) -> list[np.dtype[Any]]:
    return [o.dtype.dtype for o in plan.operands if isinstance(o, TensorMeta)]


def is_small(plan: Plan) -> bool:
    return are_small(*(o for o in plan.operands if isinstance(o, TensorMeta)), plan.meta)


def are_small(*metas: TensorMeta) -> bool:
    return all(0 < m.nbytes < buffers.POOLED_FROM and m.shape for m in metas)


def flat(run: Any) -> Kernel:
    """The kernel, said to take arrays of any shape, which it reads in C order, and no parameters: a
    program then makes no views for it (`replay.program`)."""
    run.flat = True
    return run


def on_one(plan: Plan, step: Callable[..., Any]) -> Kernel:
    """The kernel that calls an entry on an array and on a new one for the result."""
    shape, dtype = plan.meta.shape, plan.meta.dtype.dtype

    def run(x: Array, **_: Any) -> Array:
        out = np.empty(shape, dtype)
        try:
            step(x, out)
        except BufferError:  # not in C order
            step(in_order(x), out)
        return out

    return flat(run)


def on_two(plan: Plan, step: Callable[..., Any], new: Callable[..., Array] = np.empty) -> Kernel:
    shape, dtype = plan.meta.shape, plan.meta.dtype.dtype

    def run(a: Array, b: Array, **_: Any) -> Array:
        out = new(shape, dtype)
        try:
            step(a, b, out)
        except BufferError:
            step(in_order(a), in_order(b), out)
        return out

    return flat(run)


def shape_of(plan: Plan) -> Shape:
    x = plan.operands[0]
    assert isinstance(x, TensorMeta)
    return x.shape


# -- where the extremes are ------------------------------------------------------------------------


@cache
def _where_entry(name: str, dtype: np.dtype[Any]) -> Callable[..., Any]:
    of_rows, of_columns = KERNELS[name]

    @compiled
    def of_arrays(outer: int, length: int, inner: int, x: Array, out: Array) -> None:
        """The first place of the extreme, or of a NaN."""
        if inner == 1:
            matrix, best = x.reshape((outer, length)), np.empty(outer, x.dtype)
            of_rows(matrix, best)
            for i in range(outer):
                row, extreme, at = matrix[i], best[i], 0
                for j in range(length):
                    if row[j] == extreme or row[j] != row[j]:
                        at = j
                        break
                out[i] = at
            return
        wide, places = x.reshape((outer, length, inner)), out.reshape((outer, inner))
        extremes = np.empty((outer, inner), x.dtype)
        of_columns(wide, extremes)
        for i in range(outer):
            best, at = extremes[i], places[i]
            at[:] = 0
            for r in range(length - 1, 0, -1):
                row = wide[i, r]
                for j in range(inner):
                    is_here = row[j] == best[j] or row[j] != row[j]
                    at[j] = r if is_here else at[j]
            row = wide[i, 0]
            for j in range(inner):
                at[j] = 0 if row[j] == best[j] or row[j] != row[j] else at[j]

    return entry(of_arrays, 3, dtype, INT64)


def extreme_at(plan: Plan) -> Kernel | None:
    """As NumPy's argmax and argmin: a NaN is the extreme, and of equal ones the first counts."""
    if not is_small(plan) or (dtype := dtypes_of(plan)[0]) not in FLOATS:
        return None
    entry = _where_entry({"argmax": "amax", "argmin": "amin"}[plan.op.name], dtype)
    return on_one(plan, partial(entry, *outer_length_inner(shape_of(plan), plan.params["dim"])))


# -- the first in order --------------------------------------------------------------------------


@cache
def _first_entry(dtype: np.dtype[Any]) -> Callable[..., Any]:
    key_of = number_key if dtype in FLOATS else selection.whole_key

    @kernel(nogil=False, fastmath=EXACT)
    def first(
        outer: int, length: int, inner: int, start: int, mask: int, x: Array, out: Array
    ) -> None:
        """As `selection.first`, of the lines of (outer, length, inner), from `start` on."""
        stop = start + out.size // (outer * inner)
        wide, places = x.reshape((outer, length, inner)), out.reshape((outer, stop - start, inner))
        keys = np.empty(length, np.int64)
        best, indices = np.empty(stop, np.int64), np.empty(stop, np.int64)
        for i in range(outer):
            for k in range(inner):
                for j in range(length):
                    keys[j] = key_of(wide[i, j, k], mask)
                for j in range(stop):
                    selection.insert(best, indices, j, keys[j], j)
                for j in range(stop, length):
                    if keys[j] < best[stop - 1]:
                        selection.insert(best, indices, stop - 1, keys[j], j)
                for j in range(start, stop):
                    places[i, j - start, k] = indices[j]

    return entry(first, 5, dtype, INT64)


def partial_argsort(plan: Plan) -> Kernel | None:
    """See `selection.partial_argsort`; the first few only."""
    params, (dtype, *_) = plan.params, dtypes_of(plan)
    if not is_small(plan) or dtype not in NUMBERS:
        return None
    outer, length, inner = outer_length_inner(shape_of(plan), params["dim"])
    stop, size = params["start"] + params["length"], outer * length * inner
    is_sorted = size * stop > MOVES and selection.pays_sorted(size, length, stop)
    if stop > selection.FEW or is_sorted:
        return None
    mask = -1 if params["descending"] else 0
    step = _first_entry(dtype)
    return on_one(plan, partial(step, outer, length, inner, params["start"], mask))


# -- along a dimension -----------------------------------------------------------------------------


def _softmax_columns(is_log: bool) -> Any:
    @compiled
    def columns(x: Array, out: Array) -> None:
        """Of (outer, length, inner), whole rows at a time."""
        inner = x.shape[2]
        shifts, totals = np.empty(inner, x.dtype), np.empty(inner, x.dtype)
        for i in range(x.shape[0]):
            first = x[i, 0]
            for j in range(inner):
                shifts[j], totals[j] = first[j], 0
            for r in range(1, x.shape[1]):
                row = x[i, r]
                for j in range(inner):
                    shifts[j] = row[j] if row[j] > shifts[j] else shifts[j]
            for r in range(x.shape[1]):
                row, result = x[i, r], out[i, r]
                for j in range(inner):
                    e = exp_of_negative(row[j] - shifts[j])
                    totals[j] += e
                    result[j] = e
            for j in range(inner):
                totals[j] = log(totals[j]) if is_log else 1 / totals[j]
            for r in range(x.shape[1]):
                row, result = x[i, r], out[i, r]
                if is_log:
                    for j in range(inner):
                        result[j] = (row[j] - shifts[j]) - totals[j]
                else:
                    for j in range(inner):
                        result[j] *= totals[j]

    return columns


def _softmax_columns_backward(is_log: bool) -> Any:
    @compiled
    def columns(g: Array, y: Array, out: Array) -> None:
        """Of (outer, length, inner); y is the result of softmax, or of its logarithm."""
        inner = g.shape[2]
        totals = np.empty(inner, g.dtype)
        for i in range(g.shape[0]):
            totals[:] = 0
            for r in range(g.shape[1]):
                upper, row = g[i, r], y[i, r]
                for j in range(inner):
                    totals[j] += upper[j] if is_log else upper[j] * row[j]
            for r in range(g.shape[1]):
                upper, row, result = g[i, r], y[i, r], out[i, r]
                if is_log:
                    for j in range(inner):
                        result[j] = upper[j] - exp(row[j]) * totals[j]
                else:
                    for j in range(inner):
                        result[j] = row[j] * (upper[j] - totals[j])

    return columns


ALONG: dict[str, tuple[Any, Any]] = {
    **scans.KERNELS,
    "cumprod_backward": scans.BACKWARD_KERNELS,
    "cross": cross.KERNELS,
    "softmax": (softmax.KERNELS["softmax"], _softmax_columns(False)),
    "log_softmax": (softmax.KERNELS["log_softmax"], _softmax_columns(True)),
    "softmax_backward": (softmax.KERNELS["softmax_backward"], _softmax_columns_backward(False)),
    "log_softmax_backward": (
        softmax.KERNELS["log_softmax_backward"],
        _softmax_columns_backward(True),
    ),
}
"""Of rows (outer, length), and of columns (outer, length, inner)."""


@cache
def _along_entry(name: str, is_rows: bool, *dtypes: np.dtype[Any]) -> Callable[..., Any]:
    of_rows, of_columns = ALONG[name]

    def rows_of_one(outer: int, length: int, inner: int, x: Array, out: Array) -> None:
        of_rows(x.reshape((outer, length)), out.reshape((outer, length)))

    def columns_of_one(outer: int, length: int, inner: int, x: Array, out: Array) -> None:
        shape = (outer, length, inner)
        of_columns(x.reshape(shape), out.reshape(shape))

    def rows_of_two(outer: int, length: int, inner: int, g: Array, y: Array, out: Array) -> None:
        shape = (outer, length)
        of_rows(g.reshape(shape), y.reshape(shape), out.reshape(shape))

    def columns_of_two(outer: int, length: int, inner: int, g: Array, y: Array, out: Array) -> None:
        shape = (outer, length, inner)
        of_columns(g.reshape(shape), y.reshape(shape), out.reshape(shape))

    if len(dtypes) == 3:
        return entry(compiled(rows_of_two if is_rows else columns_of_two), 3, *dtypes)
    return entry(compiled(rows_of_one if is_rows else columns_of_one), 3, *dtypes)


def along(plan: Plan) -> Kernel | None:
    """What is in `ALONG`: see `softmax`, `scans` and `cross`."""
    (x, *_), dtypes = plan.operands, dtypes_of(plan)
    if not is_small(plan) or len(set(dtypes)) > 1 or dtypes[0] not in FLOATS:
        return None
    assert isinstance(x, TensorMeta)
    if softmax.EXP_STEPS * x.size >= threads.SERIAL_BELOW:
        return None
    outer, length, inner = outer_length_inner(x.shape, plan.params["dim"])
    entry = _along_entry(plan.op.name, inner == 1, *dtypes, plan.meta.dtype.dtype)
    step = partial(entry, outer, length, inner)
    return on_two(plan, step) if len(dtypes) == 2 else on_one(plan, step)
