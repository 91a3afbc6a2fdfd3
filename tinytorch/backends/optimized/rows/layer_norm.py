"""Layer normalisation over the last dimension, and its gradients.

    xhat = (x - mean(x)) r,   r = 1 / sqrt(var(x) + eps),   out = xhat w + b

With h = g w, the gradient for x is  dx = r (h - mean(h) - xhat mean(h xhat)): what h would change
in the mean and in the variance of the row is taken out of it.

The variance is the mean of squared differences from the mean, in a second pass over the row: the
shortcut E[x^2] - E[x]^2 cancels where the mean is large.

Source: J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016, arXiv:1607.06450.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.blocked.sums import squares, total
from tinytorch.backends.optimized.rows.rows import as_rows, from_rows
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared


@kernel(force_inline=True)
def _statistics(row: Any, eps: float) -> Any:
    """Mean, and 1 / sqrt(variance + eps)."""
    real = row.dtype.type
    mean = total(row) / real(row.size)
    variance = squares(row, mean) / real(row.size)
    return mean, real(1) / np.sqrt(variance + real(eps))


@kernel
def _forward(x: Array, w: Array, b: Array, eps: float, out: Array) -> None:
    for i in range(x.shape[0]):
        row, result = x[i], out[i]
        mean, scale = _statistics(row, eps)
        for j in range(row.size):
            result[j] = (row[j] - mean) * scale * w[j] + b[j]


@kernel
def _backward(g: Array, x: Array, w: Array, eps: float, dx: Array) -> None:
    for i in range(x.shape[0]):
        upper, row, result = g[i], x[i], dx[i]
        mean, scale = _statistics(row, eps)
        real = x.dtype.type
        sum_h, along = real(0), real(0)
        for j in range(row.size):
            h = upper[j] * w[j]
            sum_h += h
            along += h * (row[j] - mean)
        shift = sum_h / real(row.size)
        slope = along * scale * scale / real(row.size)
        for j in range(row.size):
            h = upper[j] * w[j]
            result[j] = scale * (h - shift - (row[j] - mean) * slope)


@kernel
def _weight(g: Array, x: Array, eps: float, dw: Array) -> None:
    """On one thread: all rows add to the same weights."""
    dw[:] = 0
    for i in range(x.shape[0]):
        upper, row = g[i], x[i]
        mean, scale = _statistics(row, eps)
        for j in range(row.size):
            dw[j] += upper[j] * ((row[j] - mean) * scale)


_run_forward = shared(_forward, "x[:], w, b, eps, out[:]")
_run_backward = shared(_backward, "g[:], x[:], w, eps, dx[:]")

STEPS = 4  # additions per element, for the decision about threads


def layer_norm(x: Array, w: Array, b: Array, *, eps: float) -> Array:
    """Normalise the last dimension to mean 0 and variance 1, then scale by `w` and shift by `b`.

    Args:
        x: (..., d), float32 or float64.
        w, b: (d,).
        eps: added to the variance.
    """
    rows = as_rows(x, x.ndim - 1)
    out = buffers.empty_like(rows)
    w, b = np.ascontiguousarray(w), np.ascontiguousarray(b)
    _run_forward(rows.size * STEPS, rows, w, b, float(eps), out)
    return from_rows(out, x, x.ndim - 1)


def layer_norm_backward(g: Array, x: Array, w: Array, *, eps: float) -> Array:
    """Gradient of `layer_norm` for x."""
    upper, rows = as_rows(g, g.ndim - 1), as_rows(x, x.ndim - 1)
    dx = buffers.empty_like(rows)
    w = np.ascontiguousarray(w)
    _run_backward(2 * rows.size * STEPS, upper, rows, w, float(eps), dx)
    return from_rows(dx, x, x.ndim - 1)


def layer_norm_weight(g: Array, x: Array, *, eps: float) -> Array:
    """Gradient of `layer_norm` for w, (d,): the sum over rows of g xhat."""
    upper, rows = as_rows(g, g.ndim - 1), as_rows(x, x.ndim - 1)
    dw = np.empty(x.shape[-1], x.dtype)
    _weight(upper, rows, float(eps), dw)
    return dw
