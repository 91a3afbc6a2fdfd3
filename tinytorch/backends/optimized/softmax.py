"""Softmax and log-softmax over one dimension, with their gradients.

    softmax(x)_j = exp(x_j - m) / sum_k exp(x_k - m),    m = max x

Subtracting the largest element changes nothing in exact arithmetic and keeps exp from overflowing.
A row is read from memory once; the second and third pass over it find it in the cache.

Source: Goodfellow, Bengio, Courville, "Deep learning", 2016, section 4.1.
"""

from __future__ import annotations

from tinytorch.backends.optimized import buffers
from tinytorch.backends.optimized.library import kernel
from tinytorch.backends.optimized.math import exp, exp_of_negative, log
from tinytorch.backends.optimized.rows import as_rows, from_rows, largest, shared
from tinytorch.dtypes import Array

EXP_STEPS = 8  # an exp costs about as much as this many additions


@kernel
def _softmax(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        row, result = x[i], out[i]
        shift = largest(row)
        total = x.dtype.type(0)
        for j in range(row.size):
            e = exp_of_negative(row[j] - shift)
            result[j] = e
            total += e
        scale = x.dtype.type(1) / total
        for j in range(row.size):
            result[j] *= scale


@kernel
def _log_softmax(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        row, result = x[i], out[i]
        shift = largest(row)
        total = x.dtype.type(0)
        for j in range(row.size):
            total += exp_of_negative(row[j] - shift)
        log_total = log(total)
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
def _log_softmax_backward(g: Array, out: Array, dx: Array) -> None:
    """dx_j = g_j - exp(out_j) sum_k g_k."""
    for i in range(g.shape[0]):
        upper, y, result = g[i], out[i], dx[i]
        total = g.dtype.type(0)
        for j in range(y.size):
            total += upper[j]
        for j in range(y.size):
            result[j] = upper[j] - exp(y[j]) * total


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
    rows = as_rows(x, dim)
    out = buffers.empty_like(rows)
    if rows.size:
        _run_softmax(rows.size * EXP_STEPS, rows, out)
    return from_rows(out, x, dim)


def log_softmax(x: Array, *, dim: int) -> Array:
    """x - log sum exp(x) along `dim`: the logarithm of `softmax`, without its underflow."""
    rows = as_rows(x, dim)
    out = buffers.empty_like(rows)
    if rows.size:
        _run_log_softmax(rows.size * EXP_STEPS, rows, out)
    return from_rows(out, x, dim)


def softmax_backward(g: Array, out: Array, *, dim: int) -> Array:
    """Gradient of `softmax` for its input, from its result `out`."""
    dx = buffers.empty_like(upper := as_rows(g, dim))
    _run_softmax_backward(g.size, upper, as_rows(out, dim), dx)
    return from_rows(dx, g, dim)


def log_softmax_backward(g: Array, out: Array, *, dim: int) -> Array:
    """Gradient of `log_softmax` for its input, from its result `out`."""
    dx = buffers.empty_like(upper := as_rows(g, dim))
    _run_log_softmax_backward(g.size * EXP_STEPS, upper, as_rows(out, dim), dx)
    return from_rows(dx, g, dim)
