"""Softmax and log-softmax along a dimension that is not the last, with their gradients.

Whole rows are combined, element by element: to turn the array, so that its columns become rows, and
back would cost more. A block of columns is narrow enough to stay in L2 from one pass to the next.
The formulas are those of `softmax`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.elementwise.logarithms import log
from tinytorch.backends.optimized.elementwise.math import exp, exp_of_negative
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

LEAST_WIDTH = 8  # elements of a row
_BLOCK = 2**15  # numbers of one array in a block of columns
_LEAST_COLUMNS = 64


@kernel(force_inline=True)
def _columns_at_once(x: Any) -> int:
    return max(_BLOCK // x.shape[1], _LEAST_COLUMNS)


@kernel(force_inline=True)
def _largest(x: Any, n: int, first: int, end: int) -> Any:
    """The largest number of each column."""
    shifts = x[n, 0, first:end].copy()
    for i in range(1, x.shape[1]):
        row = x[n, i, first:end]
        for j in range(row.size):
            shifts[j] = row[j] if row[j] > shifts[j] else shifts[j]
    return shifts


@kernel
def _softmax(x: Array, out: Array) -> None:
    """x (n, d, columns) normalised over d."""
    real, width = x.dtype.type, _columns_at_once(x)
    for n in range(x.shape[0]):
        for first in range(0, x.shape[2], width):
            end = min(first + width, x.shape[2])
            shifts = _largest(x, n, first, end)
            totals = np.zeros_like(shifts)
            for i in range(x.shape[1]):
                row, result = x[n, i, first:end], out[n, i, first:end]
                for j in range(row.size):
                    e = exp_of_negative(row[j] - shifts[j])
                    result[j] = e
                    totals[j] += e
            for j in range(totals.size):
                totals[j] = real(1) / totals[j]
            for i in range(x.shape[1]):
                result = out[n, i, first:end]
                for j in range(result.size):
                    result[j] *= totals[j]


@kernel
def _log_softmax(x: Array, out: Array) -> None:
    width = _columns_at_once(x)
    for n in range(x.shape[0]):
        for first in range(0, x.shape[2], width):
            end = min(first + width, x.shape[2])
            shifts = _largest(x, n, first, end)
            totals = np.zeros_like(shifts)
            for i in range(x.shape[1]):
                row = x[n, i, first:end]
                for j in range(row.size):
                    totals[j] += exp_of_negative(row[j] - shifts[j])
            for j in range(totals.size):
                totals[j] = log(totals[j])
            for i in range(x.shape[1]):
                row, result = x[n, i, first:end], out[n, i, first:end]
                for j in range(row.size):
                    result[j] = (row[j] - shifts[j]) - totals[j]


@kernel
def _softmax_backward(g: Array, out: Array, dx: Array) -> None:
    """dx_j = out_j (g_j - sum_k g_k out_k)."""
    width = _columns_at_once(g)
    for n in range(g.shape[0]):
        for first in range(0, g.shape[2], width):
            end = min(first + width, g.shape[2])
            totals = np.zeros(end - first, g.dtype)
            for i in range(g.shape[1]):
                upper, y = g[n, i, first:end], out[n, i, first:end]
                for j in range(y.size):
                    totals[j] += upper[j] * y[j]
            for i in range(g.shape[1]):
                upper, y, result = g[n, i, first:end], out[n, i, first:end], dx[n, i, first:end]
                for j in range(y.size):
                    result[j] = y[j] * (upper[j] - totals[j])


@kernel
def _log_softmax_backward(g: Array, out: Array, dx: Array) -> None:
    """dx_j = g_j - exp(out_j) sum_k g_k."""
    width = _columns_at_once(g)
    for n in range(g.shape[0]):
        for first in range(0, g.shape[2], width):
            end = min(first + width, g.shape[2])
            totals = np.zeros(end - first, g.dtype)
            for i in range(g.shape[1]):
                upper = g[n, i, first:end]
                for j in range(upper.size):
                    totals[j] += upper[j]
            for i in range(g.shape[1]):
                upper, y, result = g[n, i, first:end], out[n, i, first:end], dx[n, i, first:end]
                for j in range(y.size):
                    result[j] = upper[j] - exp(y[j]) * totals[j]


softmax = shared(_softmax, "x[:], out[:]")
log_softmax = shared(_log_softmax, "x[:], out[:]")
softmax_backward = shared(_softmax_backward, "g[:], out[:], dx[:]")
log_softmax_backward = shared(_log_softmax_backward, "g[:], out[:], dx[:]")


def is_down(x: Array, dim: int) -> bool:
    """Whether rows along other dimensions than `dim` are long enough to be walked along."""
    return x.size > 0 and math.prod(x.shape[dim + 1 :]) >= LEAST_WIDTH


def map_columns(run: Callable[..., None], steps: int, dim: int, x: Array, *others: Array) -> Array:
    """Call one of these kernels on arrays of one shape, along `dim`; what it writes.

    Args:
        steps: elementary steps for each element.
    """
    shape = x.shape
    columns = (math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))
    arrays = [contiguous(each).reshape(columns) for each in (x, *others)]
    out = buffers.empty(columns, x.dtype)
    run(steps * x.size, *arrays, out)
    return out.reshape(shape)
