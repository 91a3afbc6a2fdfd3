"""Group normalisation, and its gradients.

    xhat = (x - mean_g) r_g,   r_g = 1 / sqrt(var_g + eps),   out = xhat w_c + b_c

for every group g of neighbouring channels c of every sample; the variance is the biased one. A
group is a row in memory, and what is done to a row is what layer normalisation does, but that a
weight is shared by the positions of its channel: a row has one run of them for each channel. Where
runs are short, the weights are written out instead, one for each element of a row.

The shortcut var(x) = E[(x - c)^2] - E[x - c]^2 takes one pass over a row, but cancels where c is
far from the mean; there the variance is the mean of squared differences from it, in a second
pass.

Sources: Y. Wu, K. He, "Group normalization", ECCV 2018, section 3; T. Chan, G. Golub, R. LeVeque,
"Algorithms for computing the sample variance", The American Statistician 37, 1983 (the shift by c).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends.blocked.sums import squares, total
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared

FEW = 16  # positions for which a loop over them takes longer to begin than to run


@kernel(force_inline=True)
def _statistics(row: Any, eps: float) -> Any:
    """Mean, and 1 / sqrt(variance + eps).

    The shift is the row's first number. Where that is two standard deviations or more from the
    mean, the difference would lose bits.
    """
    real = row.dtype.type
    size, first = real(row.size), row[0] if row.size else real(0)
    shifted, spread = real(0), real(0)
    for j in range(row.size):
        difference = row[j] - first
        shifted += difference
        spread += difference * difference
    offset = shifted / size
    mean, variance = first + offset, spread / size - offset * offset
    if offset * offset > real(4) * variance:
        mean = total(row) / size
        variance = squares(row, mean) / size
    return mean, real(1) / np.sqrt(variance + real(eps))


@kernel(force_inline=True)
def _change_of_row(upper: Any, row: Any, w: Any, eps: float) -> Any:
    """What dx of a row is made of: mean and scale of the row, mean(h), and the factor of x - mean.

    What needs no mean is summed up in the pass that finds it.
    """
    real = row.dtype.type
    size = real(row.size)
    row_sum, sum_h = real(0), real(0)
    for j in range(row.size):
        row_sum += row[j]
        sum_h += upper[j] * w[j]
    mean, shift = row_sum / size, sum_h / size
    spread, along = real(0), real(0)
    for j in range(row.size):
        difference = row[j] - mean
        spread += difference * difference
        along += upper[j] * w[j] * difference
    scale = real(1) / np.sqrt(spread / size + real(eps))
    return mean, scale, shift, along * scale * scale / size


@kernel(force_inline=True)
def _written_out(weights: Any, positions: int) -> Any:
    """(groups, channels) as (groups, channels * positions): each as often as it is used."""
    groups, channels = weights.shape
    out = np.empty((groups, channels * positions), weights.dtype)
    for group in range(groups):
        for k in range(channels):
            for j in range(k * positions, (k + 1) * positions):
                out[group, j] = weights[group, k]
    return out


@kernel(force_inline=True)
def _of_elements(x: Any, w: Any, b: Any, eps: float, out: Any) -> None:
    for n in range(x.shape[0]):
        for group in range(x.shape[1]):
            row, result, factor, shift = x[n, group], out[n, group], w[group], b[group]
            mean, scale = _statistics(row, eps)
            for j in range(row.size):
                result[j] = (row[j] - mean) * scale * factor[j] + shift[j]


@kernel
def _forward(x: Array, w: Array, b: Array, eps: float, out: Array) -> None:
    """x and out are (n, groups, size), w and b (groups, channels of a group)."""
    positions = x.shape[2] // w.shape[1]
    if positions < FEW:
        _of_elements(x, _written_out(w, positions), _written_out(b, positions), eps, out)
        return
    for n in range(x.shape[0]):
        for group in range(x.shape[1]):
            mean, scale = _statistics(x[n, group], eps)
            for k in range(w.shape[1]):
                first, end = k * positions, (k + 1) * positions
                row, result = x[n, group, first:end], out[n, group, first:end]
                factor, shift = scale * w[group, k], b[group, k]
                for j in range(row.size):
                    result[j] = (row[j] - mean) * factor + shift


@kernel(force_inline=True)
def _sums(upper: Any, row: Any, mean: Any) -> Any:
    """sum g, and sum g (x - mean), over a run."""
    real = row.dtype.type
    both, along = real(0), real(0)
    for j in range(row.size):
        both += upper[j]
        along += upper[j] * (row[j] - mean)
    return both, along


@kernel(force_inline=True)
def _change_of_elements(g: Any, x: Any, w: Any, eps: float, dx: Any) -> None:
    for n in range(x.shape[0]):
        for group in range(x.shape[1]):
            upper, row, result, factor = g[n, group], x[n, group], dx[n, group], w[group]
            mean, scale, shift, slope = _change_of_row(upper, row, factor, eps)
            for j in range(row.size):
                result[j] = scale * (upper[j] * factor[j] - shift - (row[j] - mean) * slope)


@kernel
def _backward(g: Array, x: Array, w: Array, eps: float, dx: Array) -> None:
    real, size, positions = x.dtype.type, x.shape[2], x.shape[2] // w.shape[1]
    if positions < FEW:
        _change_of_elements(g, x, _written_out(w, positions), eps, dx)
        return
    for n in range(x.shape[0]):
        for group in range(x.shape[1]):
            mean, scale = _statistics(x[n, group], eps)
            shift, slope = real(0), real(0)
            for k in range(w.shape[1]):
                first, end = k * positions, (k + 1) * positions
                both, along = _sums(g[n, group, first:end], x[n, group, first:end], mean)
                shift += both * w[group, k]
                slope += along * w[group, k]
            shift, slope = shift / real(size), slope / real(size) * scale * scale
            for k in range(w.shape[1]):
                first, end = k * positions, (k + 1) * positions
                upper, row = g[n, group, first:end], x[n, group, first:end]
                result, factor = dx[n, group, first:end], w[group, k]
                for j in range(row.size):
                    result[j] = scale * (upper[j] * factor - shift - (row[j] - mean) * slope)


@kernel
def _weight(g: Array, x: Array, eps: float, dw: Array) -> None:
    """On one thread: all samples add to the same weights, dw (groups, channels of a group)."""
    positions = x.shape[2] // dw.shape[1]
    dw[:] = 0
    for n in range(x.shape[0]):
        for group in range(x.shape[1]):
            mean, scale = _statistics(x[n, group], eps)
            for k in range(dw.shape[1]):
                first, end = k * positions, (k + 1) * positions
                along = _sums(g[n, group, first:end], x[n, group, first:end], mean)[1]
                dw[group, k] += along * scale


_run_forward = shared(_forward, "x[:], w, b, eps, out[:]")
_run_backward = shared(_backward, "g[:], x[:], w, eps, dx[:]")

STEPS = 4  # additions per element, for the decision about threads


def _as_groups(x: Array, groups: int) -> Array:
    """x (n, c, ...) as a contiguous (n, groups, size of a group)."""
    return contiguous(x).reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)


def _by_groups(vector: Array, groups: int) -> Array:
    return contiguous(vector).reshape(groups, vector.size // groups)


def group_norm(x: Array, w: Array, b: Array, *, groups: int, eps: float) -> Array:
    """Normalise every group of channels of every sample, then scale and shift the channels.

    Args:
        x: (n, c, ...), float32 or float64.
        w, b: (c,).
        groups: of c / groups channels each.
        eps: added to the variance.
    """
    rows = _as_groups(x, groups)
    out = buffers.empty_like(rows)
    if x.size:
        w, b = _by_groups(w, groups), _by_groups(b, groups)
        _run_forward(rows.size * STEPS, rows, w, b, float(eps), out)
    return out.reshape(x.shape)


def group_norm_backward(g: Array, x: Array, w: Array, *, groups: int, eps: float) -> Array:
    """Gradient of `group_norm` for x."""
    upper, rows = _as_groups(g, groups), _as_groups(x, groups)
    dx = buffers.empty_like(rows)
    if x.size:
        w = _by_groups(w, groups)
        _run_backward(2 * rows.size * STEPS, upper, rows, w, float(eps), dx)
    return dx.reshape(x.shape)


def group_norm_weight(g: Array, x: Array, *, groups: int, eps: float) -> Array:
    """Gradient of `group_norm` for w, (c,): the sum over samples and positions of g xhat."""
    dw = np.zeros((groups, x.shape[1] // groups), x.dtype)
    if x.size:
        _weight(_as_groups(g, groups), _as_groups(x, groups), float(eps), dw)
    return dw.reshape(x.shape[1])
