"""Cross entropy of logits with class labels, and its gradient, in one pass over the rows.

    loss = mean_i ( log sum_j exp(x_ij) - x_{i, t_i} )
    dx_ij = g / n (softmax(x_i)_j - [j = t_i])

The composition log_softmax, gather, mean would write and read an array as large as the logits twice
over; here the loss needs no such array at all, and the gradient one.
"""

from __future__ import annotations

import numpy as np

from tinytorch.backends.optimized import buffers
from tinytorch.backends.optimized.library import kernel
from tinytorch.backends.optimized.math import exp_of_negative, log
from tinytorch.backends.optimized.rows import as_rows, largest, shared
from tinytorch.backends.optimized.softmax import EXP_STEPS
from tinytorch.dtypes import Array


@kernel
def _row_losses(x: Array, target: Array, losses: Array) -> None:
    for i in range(x.shape[0]):
        row = x[i]
        shift = largest(row)
        total = x.dtype.type(0)
        for j in range(row.size):
            total += exp_of_negative(row[j] - shift)
        losses[i] = log(total) - (row[target[i]] - shift)


@kernel
def _backward(x: Array, target: Array, scale: float, dx: Array) -> None:
    share = x.dtype.type(scale)
    for i in range(x.shape[0]):
        row, result = x[i], dx[i]
        shift = largest(row)
        total = x.dtype.type(0)
        for j in range(row.size):
            e = exp_of_negative(row[j] - shift)
            result[j] = e
            total += e
        factor = share / total
        for j in range(row.size):
            result[j] *= factor
        result[target[i]] -= share


_run_losses = shared(_row_losses, "x[:], target[:], losses[:]")
_run_backward = shared(_backward, "x[:], target[:], scale, dx[:]")


def cross_entropy(x: Array, target: Array) -> Array:
    """The mean over rows of -log_softmax(x)[i, target[i]].

    Args:
        x: (n, classes), float32 or float64.
        target: (n,) int64, each in 0 .. classes - 1.

    Returns:
        A 0-d array. NaN for n = 0, the mean of nothing.
    """
    rows = as_rows(x, 1)
    losses = np.empty(rows.shape[0], x.dtype)
    if not rows.size:
        return np.full((), np.nan, x.dtype)
    _run_losses(rows.size * EXP_STEPS, rows, np.ascontiguousarray(target), losses)
    # the sum of many rows in float64: an error of the sum is an error of every later comparison
    return np.asarray(losses.sum(dtype=np.float64) / rows.shape[0], x.dtype)


def cross_entropy_backward(g: Array, x: Array, target: Array) -> Array:
    """Gradient of `cross_entropy` for x, (n, classes).

    Args:
        g: 0-d, the gradient of the loss.
        x, target: as there.
    """
    rows = as_rows(x, 1)
    dx = buffers.empty_like(rows)
    if rows.size:
        scale = float(g) / rows.shape[0]
        _run_backward(rows.size * EXP_STEPS, rows, np.ascontiguousarray(target), scale, dx)
    return dx
