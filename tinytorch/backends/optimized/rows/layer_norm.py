"""Layer normalisation over the last dimension, and its gradients.

    xhat = (x - mean(x)) r,   r = 1 / sqrt(var(x) + eps),   out = xhat w + b

With h = g w, the gradient for x is  dx = r (h - mean(h) - xhat mean(h xhat)): what h would change
in the mean and in the variance of the row is taken out of it.

The variance is the mean of squared differences from the mean, in a second pass over the row: the
shortcut E[x^2] - E[x]^2 cancels where the mean is large.

Source: J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016, arXiv:1607.06450.
"""

from __future__ import annotations

import numpy as np

from tinytorch.backends.optimized.rows.layer_norm_rows import add_weight, differentiate, normalise
from tinytorch.backends.optimized.rows.reductions import COLUMN_BLOCK
from tinytorch.backends.optimized.rows.rows import as_rows, from_rows
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.caches import streamed_from
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address, fence
from tinytorch.jit.parallel import shared

STREAMED_FROM = streamed_from()


@kernel(force_inline=True)
def _is_streamed(out: Array) -> int:
    """Whether the emitted rows of a result go past the caches."""
    return int(out.size * out.itemsize >= STREAMED_FROM)


@kernel
def _forward(x: Array, w: Array, b: Array, eps: float, out: Array) -> None:
    real, step = x.dtype.type, x.shape[1] * x.itemsize
    streamed = _is_streamed(out)
    row, to = address(x), address(out)
    for _ in range(x.shape[0]):
        normalise(real, row, x.shape[1], address(w), address(b), real(eps), streamed, to)
        row, to = row + step, to + step
    fence(real, streamed)


@kernel
def _backward(g: Array, x: Array, w: Array, eps: float, dx: Array) -> None:
    real, step = x.dtype.type, x.shape[1] * x.itemsize
    streamed = _is_streamed(dx)
    upper, row, to = address(g), address(x), address(dx)
    for _ in range(x.shape[0]):
        differentiate(real, upper, row, x.shape[1], address(w), real(eps), 0, streamed, to, 0, 0)
        upper, row, to = upper + step, row + step, to + step
    fence(real, streamed)


@kernel
def gradients(
    g: Array, x: Array, w: Array, eps: float, add: bool, dx: Array, dw: Array, db: Array
) -> None:
    """All three gradients in one pass over g and x, on one thread.

    Args:
        g, x: (n, d).
        add: dx is added to what is there.
        dx: (n, d); it shares no memory with g and x.
        dw, db: (d,).
    """
    real, step = x.dtype.type, x.shape[1] * x.itemsize
    streamed = _is_streamed(dx)
    upper, row, to = address(g), address(x), address(dx)
    parts = np.empty((2, x.shape[1]), x.dtype)
    dw_part, db_part = parts[0], parts[1]
    dw[:] = 0
    db[:] = 0
    for first in range(0, x.shape[0], COLUMN_BLOCK):
        parts[:] = 0
        for _ in range(first, min(first + COLUMN_BLOCK, x.shape[0])):
            differentiate(
                real, upper, row, x.shape[1], address(w), real(eps), int(add),
                streamed, to, address(dw_part), address(db_part),
            )  # fmt: skip
            upper, row, to = upper + step, row + step, to + step
        for j in range(dw.size):
            dw[j] += dw_part[j]
            db[j] += db_part[j]
    fence(real, streamed)


@kernel
def _weight(g: Array, x: Array, eps: float, dw: Array) -> None:
    """On one thread: all rows add to the same weights."""
    real, step = x.dtype.type, x.shape[1] * x.itemsize
    upper, row = address(g), address(x)
    dw[:] = 0
    for _ in range(x.shape[0]):
        add_weight(real, upper, row, x.shape[1], real(eps), address(dw))
        upper, row = upper + step, row + step


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
    w, b = contiguous(w), contiguous(b)
    _run_forward(rows.size * STEPS, rows, w, b, float(eps), out)
    return from_rows(out, x.shape, x.ndim - 1)


def layer_norm_backward(g: Array, x: Array, w: Array, *, eps: float) -> Array:
    """Gradient of `layer_norm` for x."""
    upper, rows = as_rows(g, g.ndim - 1), as_rows(x, x.ndim - 1)
    dx = buffers.empty_like(rows)
    w = contiguous(w)
    _run_backward(2 * rows.size * STEPS, upper, rows, w, float(eps), dx)
    return from_rows(dx, x.shape, x.ndim - 1)


def layer_norm_weight(g: Array, x: Array, *, eps: float) -> Array:
    """Gradient of `layer_norm` for w, (d,): the sum over rows of g xhat."""
    upper, rows = as_rows(g, g.ndim - 1), as_rows(x, x.ndim - 1)
    dw = np.empty(x.shape[-1], x.dtype)
    _weight(upper, rows, float(eps), dw)
    return dw
