"""Batch normalisation where a channel has few positions in each sample, as after a linear layer.

x (n, channels, positions) is read as rows of all channels, or of so many that the sums of their
columns stay in L1: along one channel there would be one number in each cache line. The formulas are
those of `batch_norm`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel

FEW = 16  # positions: fewer than a cache line has numbers
_WIDTH = 512  # columns at once: up to five float64 for each, of 20 KiB


@kernel(force_inline=True)
def _columns_at_once(positions: int) -> int:
    """Of whole channels."""
    return _WIDTH // positions * positions


@kernel(force_inline=True)
def _join(values: Any, positions: int) -> None:
    """In the place of each column's value the sum over its channel."""
    for c in range(0, values.size, positions):
        every = 0.0
        for j in range(c, c + positions):
            every += values[j]
        for j in range(c, c + positions):
            values[j] = every


@kernel(force_inline=True)
def _shifts(x: Any, positions: int, first: int, end: int) -> Any:
    """For each column the first number of its channel: see above."""
    shifts = np.empty(end - first)
    for j in range(shifts.size):
        shifts[j] = x[0, first + j // positions * positions]
    return shifts


@kernel(force_inline=True)
def _moments(x: Any, positions: int, first: int, end: int) -> Any:
    """Mean, and sum of squared differences from it, of the channels of columns of x (n, k).

    In one pass and in float64, from the sums of differences from a number of the channel.
    """
    shifts = _shifts(x, positions, first, end)
    means, all_squares = np.zeros(shifts.size), np.zeros(shifts.size)
    for i in range(0, x.shape[0] // 4 * 4, 4):  # four rows for each time that the sums are read
        row1, row2 = x[i, first:end], x[i + 1, first:end]
        row3, row4 = x[i + 2, first:end], x[i + 3, first:end]
        for j in range(shifts.size):
            d1, d2 = row1[j] - shifts[j], row2[j] - shifts[j]
            d3, d4 = row3[j] - shifts[j], row4[j] - shifts[j]
            means[j] += (d1 + d2) + (d3 + d4)
            all_squares[j] += (d1 * d1 + d2 * d2) + (d3 * d3 + d4 * d4)
    for i in range(x.shape[0] // 4 * 4, x.shape[0]):
        row = x[i, first:end]
        for j in range(shifts.size):
            difference = row[j] - shifts[j]
            means[j] += difference
            all_squares[j] += difference * difference
    _join(means, positions)
    _join(all_squares, positions)
    for j in range(shifts.size):
        mean = means[j] / (x.shape[0] * positions)
        rest = all_squares[j] - mean * means[j]
        all_squares[j] = 0.0 if rest < 0.0 else rest  # a NaN stays
        means[j] = shifts[j] + mean
    return means, all_squares


@kernel(force_inline=True)
def move(x: Array, means: Array, variances: Array, momentum: float) -> None:
    """The running statistics (channels,) towards those of x (n, channels, positions)."""
    positions, x = x.shape[2], x.reshape(x.shape[0], -1)
    width = _columns_at_once(positions)
    for first in range(0, x.shape[1], width):
        end = min(first + width, x.shape[1])
        found, all_squares = _moments(x, positions, first, end)
        for j in range(0, found.size, positions):
            c = (first + j) // positions
            variance = all_squares[j] / (x.shape[0] * positions - 1)
            means[c] += momentum * (found[j] - means[c])
            variances[c] += momentum * (variance - variances[c])


@kernel(force_inline=True)
def forward(x: Array, w: Array, b: Array, eps: float, out: Array) -> None:
    """`batch_norm` of x (n, channels, positions); w and b (channels,)."""
    positions, x, out = x.shape[2], x.reshape(x.shape[0], -1), out.reshape(x.shape[0], -1)
    width, count = _columns_at_once(positions), x.shape[0] * positions
    for first in range(0, x.shape[1], width):
        end = min(first + width, x.shape[1])
        found, all_squares = _moments(x, positions, first, end)
        means, factors = found.astype(x.dtype), np.empty(found.size, x.dtype)
        shifts = np.empty_like(means)
        for j in range(means.size):
            c = (first + j) // positions
            factors[j], shifts[j] = w[c] / math.sqrt(all_squares[j] / count + eps), b[c]
        for i in range(x.shape[0]):
            row, result = x[i, first:end], out[i, first:end]
            for j in range(means.size):
                result[j] = (row[j] - means[j]) * factors[j] + shifts[j]


@kernel(force_inline=True)
def _sums(g: Any, x: Any, positions: int, first: int, end: int) -> Any:
    """Of the channels of columns: mean, sum of squared differences, sum g, sum g (x - mean).

    One pass, as in `_moments`.
    """
    shifts = _shifts(x, positions, first, end)
    means, all_squares = np.zeros(shifts.size), np.zeros(shifts.size)
    sums, along = np.zeros(shifts.size), np.zeros(shifts.size)
    for i in range(0, x.shape[0] // 2 * 2, 2):  # two rows for each time that the sums are read
        upper1, upper2 = g[i, first:end], g[i + 1, first:end]
        row1, row2 = x[i, first:end], x[i + 1, first:end]
        for j in range(shifts.size):
            d1, d2 = row1[j] - shifts[j], row2[j] - shifts[j]
            means[j] += d1 + d2
            all_squares[j] += d1 * d1 + d2 * d2
            sums[j] += upper1[j] + upper2[j]
            along[j] += upper1[j] * d1 + upper2[j] * d2
    for i in range(x.shape[0] // 2 * 2, x.shape[0]):
        upper, row = g[i, first:end], x[i, first:end]
        for j in range(shifts.size):
            difference = row[j] - shifts[j]
            means[j] += difference
            all_squares[j] += difference * difference
            sums[j] += upper[j]
            along[j] += upper[j] * difference
    for values in (means, all_squares, sums, along):
        _join(values, positions)
    for j in range(shifts.size):
        mean = means[j] / (x.shape[0] * positions)
        rest = all_squares[j] - mean * means[j]
        all_squares[j] = 0.0 if rest < 0.0 else rest  # a NaN stays
        along[j] -= mean * sums[j]
        means[j] = shifts[j] + mean
    return means, all_squares, sums, along


@kernel(force_inline=True)
def backward(g: Array, x: Array, w: Array, eps: float, dx: Array) -> None:
    """`batch_norm_backward` of g and x (n, channels, positions)."""
    n, positions = x.shape[0], x.shape[2]
    g, x, dx = g.reshape(n, -1), x.reshape(n, -1), dx.reshape(n, -1)
    width, count = _columns_at_once(positions), x.shape[0] * positions
    for first in range(0, x.shape[1], width):
        end = min(first + width, x.shape[1])
        found, all_squares, sums, along = _sums(g, x, positions, first, end)
        means, shifts = found.astype(x.dtype), (sums / count).astype(x.dtype)
        factors, slopes = np.empty_like(means), np.empty_like(means)
        for j in range(means.size):
            scale = 1.0 / math.sqrt(all_squares[j] / count + eps)
            factors[j] = scale * w[(first + j) // positions]
            slopes[j] = along[j] / count * scale * scale
        for i in range(x.shape[0]):
            upper, row, result = g[i, first:end], x[i, first:end], dx[i, first:end]
            for j in range(means.size):
                slope = (row[j] - means[j]) * slopes[j]
                result[j] = factors[j] * (upper[j] - shifts[j] - slope)


@kernel(force_inline=True)
def weight(g: Array, x: Array, eps: float, dw: Array) -> None:
    """`batch_norm_weight` of g and x (n, channels, positions)."""
    positions, g, x = x.shape[2], g.reshape(x.shape[0], -1), x.reshape(x.shape[0], -1)
    width, count = _columns_at_once(positions), x.shape[0] * positions
    for first in range(0, x.shape[1], width):
        end = min(first + width, x.shape[1])
        _, all_squares, _, along = _sums(g, x, positions, first, end)
        for j in range(0, along.size, positions):
            dw[(first + j) // positions] = along[j] / math.sqrt(all_squares[j] / count + eps)
