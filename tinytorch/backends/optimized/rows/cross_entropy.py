"""Cross entropy of logits with class labels, and its gradient, in one pass over the rows.

    loss = mean_i ( log sum_j exp(x_ij) - x_{i, t_i} )
    dx_ij = g / n (softmax(x_i)_j - [j = t_i])

The composition log_softmax, gather, mean would write and read an array as large as the logits twice
over; here the loss needs no such array at all, and the gradient one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.rows.rows import as_rows
from tinytorch.backends.optimized.rows.softmax import EXP_STEPS, softmax_and_losses
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared


@kernel
def _row_losses(x: Array, target: Array, losses: Array) -> None:
    softmax_and_losses(x, target, x.dtype.type(1), None, losses)


@kernel
def _backward(x: Array, target: Array, scale: float, dx: Array) -> None:
    softmax_and_losses(x, target, x.dtype.type(scale), dx, None)


@kernel
def _losses_and_gradient(x: Array, target: Array, losses: Array, dx: Array) -> None:
    """Both, with the exponentials made once; the gradient is that of the mean of the losses."""
    softmax_and_losses(x, target, x.dtype.type(1.0 / x.shape[0]), dx, losses)


@kernel
def mean(losses: Array) -> Any:
    """In float64: an error of the sum is an error of every later comparison."""
    total = 0.0
    for i in range(losses.size):
        total += losses[i]
    return total / losses.size


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
    _run_losses(rows.size * EXP_STEPS, rows, contiguous(target), losses)
    return np.array(mean(losses), x.dtype)


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
        _run_backward(rows.size * EXP_STEPS, rows, contiguous(target), scale, dx)
    return dx
