"""Layer normalisation over the last dimension, and its gradients.

    xhat = (x - mean(x)) r,   r = 1 / sqrt(var(x) + eps),   out = xhat w + b

With h = g w, the gradient for x is  dx = r (h - mean(h) - xhat mean(h xhat)): what h would change
in the mean and in the variance of the row is taken out of it.

The shortcut var(x) = E[(x - c)^2] - E[x - c]^2 takes one pass over the row, but cancels where c is
far from the mean; there the variance is the mean of squared differences from the mean, in a second
pass.

Sources: J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016, arXiv:1607.06450; T. Chan,
G. Golub, R. LeVeque, "Algorithms for computing the sample variance", The American Statistician 37,
1983 (the shift by c).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.blocked.sums import squares, total
from tinytorch.backends.optimized.rows import layer_norm_rows
from tinytorch.backends.optimized.rows.layer_norm_rows import add_weight, differentiate, normalise
from tinytorch.backends.optimized.rows.reductions import COLUMN_BLOCK
from tinytorch.backends.optimized.rows.rows import as_rows, from_rows
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.contiguous import contiguous
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.parallel import shared


@kernel(force_inline=True)
def statistics(row: Any, eps: float) -> Any:
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
def is_short(x: Any) -> Any:
    """Whether its rows are for the kernels of `layer_norm_rows`."""
    return 0 < x.shape[1] * x.itemsize <= layer_norm_rows.MOST_BYTES


@kernel
def _forward(x: Array, w: Array, b: Array, eps: float, out: Array) -> None:
    real = x.dtype.type
    if is_short(x):
        row, to, step = address(x), address(out), x.shape[1] * x.itemsize
        for _ in range(x.shape[0]):
            normalise(real, row, x.shape[1], address(w), address(b), real(eps), to)
            row, to = row + step, to + step
        return
    for i in range(x.shape[0]):
        row, result = x[i], out[i]
        mean, scale = statistics(row, eps)
        for j in range(row.size):
            result[j] = (row[j] - mean) * scale * w[j] + b[j]


@kernel(force_inline=True)
def change_of_row(upper: Any, row: Any, w: Any, eps: float) -> Any:
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


@kernel
def _backward(g: Array, x: Array, w: Array, eps: float, dx: Array) -> None:
    real = x.dtype.type
    if is_short(x):
        upper, row, to, step = address(g), address(x), address(dx), x.shape[1] * x.itemsize
        for _ in range(x.shape[0]):
            differentiate(real, upper, row, x.shape[1], address(w), real(eps), 0, to, 0, 0)
            upper, row, to = upper + step, row + step, to + step
        return
    for i in range(x.shape[0]):
        upper, row, result = g[i], x[i], dx[i]
        mean, scale, shift, slope = change_of_row(upper, row, w, eps)
        for j in range(row.size):
            result[j] = scale * (upper[j] * w[j] - shift - (row[j] - mean) * slope)


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
    parts = np.empty((2, x.shape[1]), x.dtype)
    dw[:] = 0
    db[:] = 0
    for first in range(0, x.shape[0], COLUMN_BLOCK):
        parts[:] = 0
        dw_part, db_part = parts[0], parts[1]
        for i in range(first, min(first + COLUMN_BLOCK, x.shape[0])):
            if is_short(x):
                differentiate(
                    real, address(g) + i * step, address(x) + i * step, x.shape[1], address(w),
                    real(eps), int(add), address(dx) + i * step, address(dw_part), address(db_part),
                )  # fmt: skip
                continue
            upper, row, result = g[i], x[i], dx[i]
            mean, scale, shift, slope = change_of_row(upper, row, w, eps)
            # One loop: that no memory is shared is asked once. But lines of dx that were not read
            # are not near yet, and the stores of the sums would wait behind theirs.
            if add:
                for j in range(row.size):
                    u, difference = upper[j], row[j] - mean
                    result[j] += scale * (u * w[j] - shift - difference * slope)
                    dw_part[j] += u * (difference * scale)
                    db_part[j] += u
                continue
            for j in range(row.size):
                result[j] = scale * (upper[j] * w[j] - shift - (row[j] - mean) * slope)
            for j in range(row.size):
                dw_part[j] += upper[j] * ((row[j] - mean) * scale)
                db_part[j] += upper[j]
        for j in range(dw.size):
            dw[j] += dw_part[j]
            db[j] += db_part[j]


@kernel
def _weight(g: Array, x: Array, eps: float, dw: Array) -> None:
    """On one thread: all rows add to the same weights."""
    dw[:] = 0
    real = x.dtype.type
    if is_short(x):
        upper, row, step = address(g), address(x), x.shape[1] * x.itemsize
        for _ in range(x.shape[0]):
            add_weight(real, upper, row, x.shape[1], real(eps), address(dw))
            upper, row = upper + step, row + step
        return
    for i in range(x.shape[0]):
        upper, row = g[i], x[i]
        mean, scale = statistics(row, eps)
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
