"""Cross entropy of logits with class labels, and its gradient, in one pass over the rows.

    loss = mean_i ( log sum_j exp(x_ij) - x_{i, t_i} )
    dx_ij = g / n (softmax(x_i)_j - [j = t_i])

The composition log_softmax, gather, mean would write and read an array as large as the logits twice
over; here the loss needs no such array at all, and the gradient one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.backends.optimized.rows.rows import as_rows
from tinytorch.backends.optimized.rows.softmax import EXP_STEPS, softmax_and_losses
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.jit import buffers, threads
from tinytorch.jit.contiguous import contiguous, in_order
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared
from tinytorch.op import Plan


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


cross_entropy.gives_arrays = True  # type: ignore[attr-defined]


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


# -- small ones, called without numba's dispatch ---------------------------------------------------


@kernel(nogil=False)
def _small(n: int, classes: int, x: Array, target: Array, losses: Array, out: Array) -> None:
    _row_losses(x.reshape((n, classes)), target, losses)
    out[0] = mean(losses)


@kernel(nogil=False)
def _small_backward(n: int, classes: int, scale: float, x: Array, target: Array, dx: Array) -> None:
    shape = (n, classes)
    _backward(x.reshape(shape), target, scale, dx.reshape(shape))


@cache
def _entries(dtype: np.dtype[Any]) -> Entries:
    size, array, labels = types.intp, flat_type(from_dtype(dtype)), flat_type(types.int64)
    return Entries(
        forward=(_small, size, size, array, labels, array, array),
        backward=(_small_backward, size, size, types.float64, array, labels, array),
    )


def small(plan: Plan) -> Callable[..., Array] | None:
    """The kernel of `cross_entropy` for logits of this shape; None where they are many."""
    x = _small_logits(plan, 0)
    if x is None:
        return None
    (n, classes), dtype, run = x.shape, x.dtype.dtype, _entries(x.dtype.dtype).forward

    def kernel(x: Array, target: Array) -> Array:
        losses, out = np.empty(n, dtype), np.empty((), dtype)
        try:
            run(n, classes, x, target, losses, out)
        except BufferError:  # not in C order
            run(n, classes, in_order(x), in_order(target), losses, out)
        return out

    kernel.gives_arrays = True  # type: ignore[attr-defined]
    return kernel


def small_backward(plan: Plan) -> Callable[..., Array] | None:
    """The kernel of `cross_entropy_backward` for logits of this shape; None where they are many."""
    x = _small_logits(plan, 1)
    if x is None:
        return None
    (n, classes), dtype, run = x.shape, x.dtype.dtype, _entries(x.dtype.dtype).backward

    def kernel(g: Array, x: Array, target: Array) -> Array:
        dx, scale = np.empty((n, classes), dtype), float(g) / n
        try:
            run(n, classes, scale, x, target, dx)
        except BufferError:
            run(n, classes, scale, in_order(x), in_order(target), dx)
        return dx

    return kernel


def _small_logits(plan: Plan, position: int) -> TensorMeta | None:
    """The logits among the operands of a plan, where one thread takes them."""
    x = plan.operands[position]
    assert isinstance(x, TensorMeta)
    is_small = 0 < x.nbytes < buffers.POOLED_FROM and x.size * EXP_STEPS < threads.SERIAL_BELOW
    return x if is_small and x.dtype.dtype in (np.float32, np.float64) and x.ndim == 2 else None
