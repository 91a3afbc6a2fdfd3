"""Average pooling of images, with its gradient."""

from __future__ import annotations

import numpy as np

from tinytorch.backends.blocked.conv import output_size
from tinytorch.backends.optimized.conv.plan import Pair
from tinytorch.backends.optimized.pooling.planes import (
    join,
    planes_of,
    prepare,
    split,
    windows_and_gaps,
)
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared


@kernel
def avg_pool(x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair) -> None:
    """Sums over windows, divided by the size of the window; the border counts as 0."""
    kind, windows = x.dtype.type, out.shape[1:]
    scale = kind(1 / (kernel_size[0] * kernel_size[1]))
    phases, begin, offsets = prepare(
        kind, 0, x.shape[1:], windows, kernel_size, stride, padding, (1, 1)
    )
    flat, pitch = phases.reshape(-1), phases.shape[3]
    sums = np.empty(windows_and_gaps(windows, phases), kind)
    for n in range(x.shape[0]):
        split(x[n], phases, begin)
        sums[:] = 0
        for t in range(offsets.size):
            source = flat[offsets[t] :]
            for q in range(sums.size):
                sums[q] += source[q]
        for y in range(windows[0]):
            for k in range(windows[1]):
                out[n, y, k] = sums[y * pitch + k] * scale


@kernel
def avg_pool_backward(g: Array, dx: Array, kernel_size: Pair, stride: Pair, padding: Pair) -> None:
    """Spread every output element evenly over its window."""
    kind, windows = g.dtype.type, g.shape[1:]
    scale = kind(1 / (kernel_size[0] * kernel_size[1]))
    phases, begin, offsets = prepare(
        kind, 0, dx.shape[1:], windows, kernel_size, stride, padding, (1, 1)
    )
    flat, pitch = phases.reshape(-1), phases.shape[3]
    shares = np.zeros(windows_and_gaps(windows, phases), kind)  # and zeros in the gaps
    for n in range(g.shape[0]):
        for y in range(windows[0]):
            for k in range(windows[1]):
                shares[y * pitch + k] = g[n, y, k] * scale
        flat[:] = 0
        for t in range(offsets.size):
            target = flat[offsets[t] :]
            for q in range(shares.size):
                target[q] += shares[q]
        join(phases, dx[n], begin)


_run_avg = shared(avg_pool, "x[:], out[:], kernel_size, stride, padding")
_run_avg_backward = shared(avg_pool_backward, "g[:], dx[:], kernel_size, stride, padding")


def avg_pool2d(x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair) -> Array:
    """The mean of every window; the zero border counts as part of it. Shapes as in `max_pool2d`."""
    size = output_size(x.shape[2:], kernel_size, stride, padding, (1, 1))
    planes = planes_of(x)
    out = buffers.empty((planes.shape[0], *size), x.dtype)
    steps = out.size * kernel_size[0] * kernel_size[1]
    _run_avg(steps, planes, out, kernel_size, stride, padding)
    return out.reshape(*x.shape[:2], *size)


def avg_pool2d_backward(
    g: Array, *, input_size: Pair, kernel_size: Pair, stride: Pair, padding: Pair
) -> Array:
    """Gradient of `avg_pool2d` for an input (n, c, *input_size)."""
    upper = planes_of(g)
    dx = buffers.empty((upper.shape[0], *input_size), g.dtype)
    steps = g.size * kernel_size[0] * kernel_size[1]
    _run_avg_backward(steps, upper, dx, kernel_size, stride, padding)
    return dx.reshape(*g.shape[:2], *input_size)
