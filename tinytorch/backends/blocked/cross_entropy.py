"""Cross entropy of logits with class labels and its gradient: a chain of ten ops as one loop.

    loss = mean_i ( log sum_j exp(x_ij) - x_{i, t_i} )
    dx_ij = g / n (softmax(x_i)_j - [j = t_i])

Op by op this is a dozen passes over the logits and as many arrays; a row of them fits the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.jit.buffers import empty
from tinytorch.jit.library import kernel


@kernel
def largest(row: Array) -> Any:
    """The largest element; NaN if there is one."""
    best = row[0]
    for j in range(row.size):
        best = row[j] if (row[j] > best) | (row[j] != row[j]) else best
    return best


@kernel
def _mean_loss(x: Array, target: Array) -> float:
    """The mean cross entropy of rows of logits, with the largest one taken off before the exp.

    Args:
        x: (n, classes).
        target: (n,), the right class of each row.
    """
    losses = 0.0
    for i in range(x.shape[0]):
        top, total = largest(x[i]), 0.0
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        losses += math.log(total) + top - x[i, target[i]]
    return losses / x.shape[0]


@kernel
def _gradient(x: Array, target: Array, scale: float, dx: Array) -> None:
    """dx = scale (softmax(x) - one_hot(target)), row by row.

    Args:
        x: (n, classes).
        target: (n,), the right class of each row.
        dx: as x, overwritten.
    """
    for i in range(x.shape[0]):
        top, total = largest(x[i]), 0.0
        for j in range(x.shape[1]):
            dx[i, j] = math.exp(x[i, j] - top)
            total += dx[i, j]
        for j in range(x.shape[1]):
            dx[i, j] *= scale / total
        dx[i, target[i]] -= scale


def cross_entropy(x: Array, target: Array) -> Array:
    """The mean over rows of -log_softmax(x)[i, target[i]]; NaN for no rows.

    Args:
        x: (n, classes), float32 or float64.
        target: (n,) int64, each in 0 .. classes - 1.

    Returns:
        A 0-d array.
    """
    if not x.size:
        return np.full((), np.nan, x.dtype)
    loss = _mean_loss(np.ascontiguousarray(x), np.ascontiguousarray(target))
    return np.array(loss, x.dtype)


def cross_entropy_backward(g: Array, x: Array, target: Array) -> Array:
    """Gradient of `cross_entropy` for x, (n, classes); g is the gradient of the loss, 0-d."""
    dx = empty(x.shape, x.dtype)
    if x.size:
        logits, labels = np.ascontiguousarray(x), np.ascontiguousarray(target)
        _gradient(logits, labels, float(g) / x.shape[0], dx)
    return dx
