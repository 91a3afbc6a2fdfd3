"""Softmax and log-softmax over one dimension, with their gradients.

    softmax(x)_j = exp(x_j - m) / sum_k exp(x_k - m),    m = max x

Subtracting the largest element changes nothing in exact arithmetic and keeps exp from overflowing.
A row is read from memory once; the second and third pass over it find it in the cache. Each pass
goes over a block of rows: that of one row ends with a chain of dependent steps (the lanes of a
register become one number), which the processor hides behind the next row.

Source: Goodfellow, Bengio, Courville, "Deep learning", 2016, section 4.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.blocked.sums import total
from tinytorch.backends.optimized.elementwise.logarithms import log
from tinytorch.backends.optimized.elementwise.math import exp, exp_of_negative
from tinytorch.backends.optimized.rows import softmax_columns as columns
from tinytorch.backends.optimized.rows.rows import largest, map_rows
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

EXP_STEPS = 8  # an exp costs about as much as this many additions
BLOCK = 2048  # elements of a block of rows; more, and memory waits too long for the next ones


@kernel(force_inline=True)
def _exponentials(x: Array, out: Any, shifts: Array, totals: Array) -> None:
    """Of every row its largest element, and the sum of exp(x - shift), which go to `out` if any."""
    for i in range(x.shape[0]):
        shifts[i] = largest(x[i])
    for i in range(x.shape[0]):
        row, shift, sum_e = x[i], shifts[i], x.dtype.type(0)
        for j in range(row.size):
            e = exp_of_negative(row[j] - shift)
            sum_e += e
            if out is not None:
                out[i, j] = e
        totals[i] = sum_e


@kernel(force_inline=True)
def softmax_and_losses(x: Array, target: Any, scale: Any, out: Any, losses: Any) -> None:
    """What softmax and cross entropy have in common; what is None is left out.

    Args:
        x: (n, d), both at least 1.
        target: (n,), a column for every row.
        scale: a number of the type of x.
        out: (n, d), becomes  scale softmax(x),  minus `scale` in the columns `target`.
        losses: (n,), becomes  -log softmax(x)  in the columns `target`.
    """
    n, block = x.shape[0], max(1, BLOCK // x.shape[1])
    shifts, totals = np.empty((2, min(block, n)), x.dtype)
    for first in range(0, n, block):
        rows = x[first : first + block]
        results = None if out is None else out[first : first + block]
        _exponentials(rows, results, shifts, totals)
        if losses is not None:
            for i in range(rows.shape[0]):  # by vectors: one alone takes as long as a short row
                losses[first + i] = log(totals[i])
        for i in range(rows.shape[0]):
            if losses is not None:
                losses[first + i] -= rows[i, target[first + i]] - shifts[i]
            if results is not None:
                result, factor = results[i], scale / totals[i]
                for j in range(result.size):
                    result[j] *= factor
                if target is not None:
                    result[target[first + i]] -= scale


@kernel
def _softmax(x: Array, out: Array) -> None:
    softmax_and_losses(x, None, x.dtype.type(1), out, None)


@kernel
def softmax_in_place(x: Array) -> None:
    """x becomes softmax(x): of two arrays LLVM would have to find out that they are one."""
    n, block = x.shape[0], max(1, BLOCK // x.shape[1])
    shifts = np.empty(min(block, n), x.dtype)
    for first in range(0, n, block):
        rows = x[first : first + block]
        for i in range(rows.shape[0]):
            shifts[i] = largest(rows[i])
        for i in range(rows.shape[0]):
            row, shift, sum_e = rows[i], shifts[i], x.dtype.type(0)
            for j in range(row.size):
                e = exp_of_negative(row[j] - shift)
                sum_e += e
                row[j] = e
            factor = x.dtype.type(1) / sum_e
            for j in range(row.size):
                row[j] *= factor


@kernel
def _log_softmax(x: Array, out: Array) -> None:
    n, block = x.shape[0], max(1, BLOCK // x.shape[1])
    shifts, totals = np.empty((2, min(block, n)), x.dtype)
    for first in range(0, n, block):
        rows, results = x[first : first + block], out[first : first + block]
        _exponentials(rows, None, shifts, totals)
        for i in range(rows.shape[0]):
            totals[i] = log(totals[i])
        for i in range(rows.shape[0]):
            row, result, shift, log_total = rows[i], results[i], shifts[i], totals[i]
            for j in range(row.size):
                result[j] = (row[j] - shift) - log_total


@kernel
def _softmax_backward(g: Array, out: Array, dx: Array) -> None:
    """dx_j = out_j (g_j - sum_k g_k out_k)."""
    for i in range(g.shape[0]):
        upper, y, result = g[i], out[i], dx[i]
        inner = g.dtype.type(0)
        for j in range(y.size):
            inner += upper[j] * y[j]
        for j in range(y.size):
            result[j] = y[j] * (upper[j] - inner)


@kernel
def softmax_backward_in_place(out: Array, g: Array) -> None:
    """g becomes the gradient for the input of softmax."""
    for i in range(g.shape[0]):
        upper, y = g[i], out[i]
        inner = g.dtype.type(0)
        for j in range(y.size):
            inner += upper[j] * y[j]
        for j in range(y.size):
            upper[j] = y[j] * (upper[j] - inner)


@kernel
def _log_softmax_backward(g: Array, out: Array, dx: Array) -> None:
    """dx_j = g_j - exp(out_j) sum_k g_k."""
    for i in range(g.shape[0]):
        upper, y, result = g[i], out[i], dx[i]
        upper_sum = total(upper)
        for j in range(y.size):
            result[j] = upper[j] - exp(y[j]) * upper_sum


KERNELS: dict[str, Any] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
}
"""Of rows, x (rows, length)."""

_run_softmax = shared(_softmax, "x[:], out[:]")
_run_log_softmax = shared(_log_softmax, "x[:], out[:]")
_run_softmax_backward = shared(_softmax_backward, "g[:], out[:], dx[:]")
_run_log_softmax_backward = shared(_log_softmax_backward, "g[:], out[:], dx[:]")


def softmax(x: Array, *, dim: int) -> Array:
    """exp(x) normalised to sum 1 along `dim`.

    Args:
        x: any shape, float32 or float64.
        dim: a non-negative dimension.
    """
    if columns.is_down(x, dim):
        return columns.map_columns(columns.softmax, EXP_STEPS, dim, x)
    return map_rows(_run_softmax, EXP_STEPS, dim, x)


def log_softmax(x: Array, *, dim: int) -> Array:
    """x - log sum exp(x) along `dim`: the logarithm of `softmax`, without its underflow."""
    if columns.is_down(x, dim):
        return columns.map_columns(columns.log_softmax, EXP_STEPS, dim, x)
    return map_rows(_run_log_softmax, EXP_STEPS, dim, x)


def softmax_backward(g: Array, out: Array, *, dim: int) -> Array:
    """Gradient of `softmax` for its input, from its result `out`."""
    if columns.is_down(g, dim):
        return columns.map_columns(columns.softmax_backward, 1, dim, g, out)
    return map_rows(_run_softmax_backward, 1, dim, g, out)


def log_softmax_backward(g: Array, out: Array, *, dim: int) -> Array:
    """Gradient of `log_softmax` for its input, from its result `out`."""
    if columns.is_down(g, dim):
        return columns.map_columns(columns.log_softmax_backward, EXP_STEPS, dim, g, out)
    return map_rows(_run_log_softmax_backward, EXP_STEPS, dim, g, out)
