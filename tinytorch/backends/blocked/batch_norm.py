"""Batch normalisation with the statistics of the batch, and its gradients.

    xhat = (x - mean_c) r_c,   r_c = 1 / sqrt(var_c + eps),   out = xhat w_c + b_c

for every channel c, over the batch and all positions; the variance is the biased one. The formula
of the gradient is that of layer normalisation, with a channel in the place of a row. Where channels
have few positions, `batch_norm_columns` reads them all at once.

Source: S. Ioffe, C. Szegedy, "Batch normalization", ICML 2015, section 3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends.blocked import batch_norm_columns as columns
from tinytorch.backends.blocked.sums import squares, total
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel


@kernel(force_inline=True)
def _moments(x: Any, c: int) -> Any:
    """Mean, and sum of squared differences from it, of channel c of x (n, channels, positions).

    The sums over an image are added up in float64: a batch can have millions of elements.
    """
    all_values, all_squares = 0.0, 0.0
    for n in range(x.shape[0]):
        all_values += total(x[n, c])
    mean = x.dtype.type(all_values / (x.shape[0] * x.shape[2]))
    for n in range(x.shape[0]):
        all_squares += squares(x[n, c], mean)
    return mean, all_squares


@kernel(force_inline=True)
def _statistics(x: Any, c: int, eps: Any) -> Any:
    """Mean, and 1 / sqrt(variance + eps), of channel c of x (n, channels, positions)."""
    mean, all_squares = _moments(x, c)
    variance = all_squares / (x.shape[0] * x.shape[2])
    return mean, x.dtype.type(1.0 / math.sqrt(variance + eps))


@kernel
def _move(x: Array, means: Array, variances: Array, momentum: float) -> None:
    if x.shape[2] < columns.FEW:
        columns.move(x, means, variances, momentum)
        return
    for c in range(x.shape[1]):
        mean, all_squares = _moments(x, c)
        variance = all_squares / (x.shape[0] * x.shape[2] - 1)
        means[c] += momentum * (mean - means[c])
        variances[c] += momentum * (variance - variances[c])


@kernel
def _forward(x: Array, w: Array, b: Array, eps: float, out: Array) -> None:
    if x.shape[2] < columns.FEW:
        columns.forward(x, w, b, eps, out)
        return
    for c in range(x.shape[1]):
        mean, scale = _statistics(x, c, eps)
        factor = scale * w[c]
        for n in range(x.shape[0]):
            row, result = x[n, c], out[n, c]
            for j in range(row.size):
                result[j] = (row[j] - mean) * factor + b[c]


@kernel(force_inline=True)
def _sums(g: Any, x: Any, c: int, mean: Any) -> Any:
    """sum g, and sum g (x - mean), over channel c."""
    real = x.dtype.type
    upper_sum, along = 0.0, 0.0
    for n in range(x.shape[0]):
        upper, row = g[n, c], x[n, c]
        part, slope = real(0), real(0)
        for j in range(row.size):
            part += upper[j]
            slope += upper[j] * (row[j] - mean)
        upper_sum += part
        along += slope
    return upper_sum, along


@kernel
def _backward(g: Array, x: Array, w: Array, eps: float, dx: Array) -> None:
    if x.shape[2] < columns.FEW:
        columns.backward(g, x, w, eps, dx)
        return
    real, count = x.dtype.type, x.shape[0] * x.shape[2]
    for c in range(x.shape[1]):
        mean, scale = _statistics(x, c, eps)
        upper_sum, along = _sums(g, x, c, mean)
        shift, slope = real(upper_sum / count), real(along / count) * scale * scale
        factor = scale * w[c]
        for n in range(x.shape[0]):
            upper, row, result = g[n, c], x[n, c], dx[n, c]
            for j in range(row.size):
                result[j] = factor * (upper[j] - shift - (row[j] - mean) * slope)


@kernel
def _weight(g: Array, x: Array, eps: float, dw: Array) -> None:
    if x.shape[2] < columns.FEW:
        columns.weight(g, x, eps, dw)
        return
    for c in range(x.shape[1]):
        mean, scale = _statistics(x, c, eps)
        dw[c] = _sums(g, x, c, mean)[1] * scale


def _as_channels(x: Array) -> Array:
    """x (n, c, ...) as a contiguous (n, c, positions)."""
    return np.ascontiguousarray(x).reshape(*x.shape[:2], math.prod(x.shape[2:]))


def batch_norm(x: Array, w: Array, b: Array, *, eps: float) -> Array:
    """Normalise every channel to mean 0 and variance 1 over the batch, then scale and shift.

    Args:
        x: (n, c, ...), float32 or float64.
        w, b: (c,).
        eps: added to the variance.
    """
    channels = _as_channels(x)
    out = buffers.empty(channels.shape, x.dtype)
    if x.size:
        _forward(channels, np.ascontiguousarray(w), np.ascontiguousarray(b), float(eps), out)
    return out.reshape(x.shape)


def batch_norm_backward(g: Array, x: Array, w: Array, *, eps: float) -> Array:
    """Gradient of `batch_norm` for x, through the statistics as well."""
    channels = _as_channels(x)
    dx = buffers.empty(channels.shape, x.dtype)
    if x.size:
        _backward(_as_channels(g), channels, np.ascontiguousarray(w), float(eps), dx)
    return dx.reshape(x.shape)


def batch_norm_weight(g: Array, x: Array, *, eps: float) -> Array:
    """Gradient of `batch_norm` for w, (c,): the sum over batch and positions of g xhat."""
    dw = np.zeros(x.shape[1], x.dtype)
    if x.size:
        _weight(_as_channels(g), _as_channels(x), float(eps), dw)
    return dw


def running_statistics(x: Array, means: Array, variances: Array, *, momentum: float) -> None:
    """Move running means and variances, in place, towards those of a batch.

    Args:
        x: (n, channels, ...).
        means: (channels,).
        variances: (channels,), those without bias: with a sum divided by the count less one.
        momentum: from 0 (stay) to 1 (become those of x).
    """
    _move(_as_channels(x), means, variances, float(momentum))
