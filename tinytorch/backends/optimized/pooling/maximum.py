"""Max pooling of images, with its gradient.

Windows of 2 by 2 side by side, the common case, need no copy of the plane (`pairs`); nor do those
of 1 by 2, whose row is both rows of such a window.
"""

from __future__ import annotations

import numpy as np

from tinytorch.backends.blocked.conv import output_size
from tinytorch.backends.optimized.conv.plan import Pair
from tinytorch.backends.optimized.pooling.pairs import max_pool_2x2, max_pool_backward_2x2
from tinytorch.backends.optimized.pooling.planes import planes_of, prepare, split, windows_and_gaps
from tinytorch.dtypes import Array
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared


@kernel
def max_pool(
    x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    """x (planes, h, w) -> out (planes, oh, ow). The border counts as -inf."""
    windows = out.shape[1:]
    phases, begin, offsets = prepare(
        x.dtype.type, -np.inf, x.shape[1:], windows, kernel_size, stride, padding, dilation
    )
    flat, pitch = phases.reshape(-1), phases.shape[3]
    best = np.empty(windows_and_gaps(windows, phases), x.dtype)
    for n in range(x.shape[0]):
        split(x[n], phases, begin)
        best[:] = flat[offsets[0] : offsets[0] + best.size]
        for t in range(1, offsets.size):
            source = flat[offsets[t] :]
            for q in range(best.size):
                v, value = source[q], best[q]
                best[q] = v if (v > value) | (v != v) else value
        for y in range(windows[0]):
            for k in range(windows[1]):
                out[n, y, k] = best[y * pitch + k]


@kernel
def _elements_of_max(flat: Array, offsets: Array, best: Array, element: Array) -> None:
    """Which element of its window (row by row) is the first maximum, for all windows.

    Args:
        flat, offsets: a plane in phases, and where the elements of the first window are.
        best, element: the maxima and their elements (int32), for all windows and the gaps between
            rows of windows; overwritten.
    """
    best[:] = flat[offsets[0] : offsets[0] + best.size]
    element[:] = 0
    for t in range(1, offsets.size):
        source, number = flat[offsets[t] :], np.int32(t)
        for q in range(best.size):
            v, value, earlier = source[q], best[q], element[q]
            # NaN is largest: a later element wins if it is greater, or the first NaN
            wins = (v > value) | ((v != v) & (value == value))
            best[q] = v if wins else value
            element[q] = number if wins else earlier


@kernel(force_inline=True)
def _inside(place: int, step: int) -> int:
    """A row or column of the border, moved on by steps to the first one inside."""
    while place < 0:
        place += step
    return place


@kernel
def _argmax_of_windows(
    x: Array, indices: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    """Where, in flat planes, the windows have their first maximum: indices (planes, oh, ow)."""
    windows = indices.shape[1:]
    phases, begin, offsets = prepare(
        x.dtype.type, -np.inf, x.shape[1:], windows, kernel_size, stride, padding, dilation
    )
    flat, pitch, size = phases.reshape(-1), phases.shape[3], windows_and_gaps(windows, phases)
    best, element = np.empty(size, x.dtype), np.empty(size, np.int32)
    row_of = np.empty(offsets.size, np.int64)
    column_of = np.empty(offsets.size, np.int64)
    for t in range(offsets.size):
        row_of[t] = t // kernel_size[1] * dilation[0] - padding[0]
        column_of[t] = t % kernel_size[1] * dilation[1] - padding[1]
    for n in range(x.shape[0]):
        split(x[n], phases, begin)
        _elements_of_max(flat, offsets, best, element)
        for y in range(windows[0]):
            for k in range(windows[1]):
                t = element[y * pitch + k]
                # only if all elements are -inf may one of the border have come first
                row = _inside(y * stride[0] + row_of[t], dilation[0])
                column = _inside(k * stride[1] + column_of[t], dilation[1])
                indices[n, y, k] = row * x.shape[2] + column


@kernel
def max_pool_backward(
    g: Array, x: Array, dx: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    indices = np.empty((1, *g.shape[1:]), np.int64)
    for n in range(g.shape[0]):
        _argmax_of_windows(x[n : n + 1], indices, kernel_size, stride, padding, dilation)
        upper, index, result = g[n].reshape(-1), indices.reshape(-1), dx[n].reshape(-1)
        result[:] = 0
        for q in range(index.size):
            result[index[q]] += upper[q]


@kernel
def max_pool_select(
    v: Array, x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    indices = np.empty((1, *out.shape[1:]), np.int64)
    for n in range(x.shape[0]):
        _argmax_of_windows(x[n : n + 1], indices, kernel_size, stride, padding, dilation)
        source, index, result = v[n].reshape(-1), indices.reshape(-1), out[n].reshape(-1)
        for q in range(index.size):
            result[q] = source[index[q]]


_run_max = shared(max_pool, "x[:], out[:], kernel_size, stride, padding, dilation")
_run_max_backward = shared(
    max_pool_backward, "g[:], x[:], dx[:], kernel_size, stride, padding, dilation"
)
_run_select = shared(max_pool_select, "v[:], x[:], out[:], kernel_size, stride, padding, dilation")
_run_max_2x2 = shared(max_pool_2x2, "x[:], out[:]")
_run_max_backward_2x2 = shared(max_pool_backward_2x2, "g[:], x[:], dx[:]")


def is_2x2(kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair) -> bool:
    """Whether windows are the usual ones, two by two side by side."""
    return kernel_size == stride == (2, 2) and padding == (0, 0) and dilation == (1, 1)


def max_pool2d(
    x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The largest element of every window; NaN if there is one.

    Args:
        x: (n, c, h, w), float32 or float64.
        kernel_size, stride, padding, dilation: (rows, columns).

    Returns:
        (n, c, oh, ow).
    """
    size = output_size(x.shape[2:], kernel_size, stride, padding, dilation)
    planes = planes_of(x)
    out = buffers.empty((planes.shape[0], *size), x.dtype)
    if is_2x2(kernel_size, stride, padding, dilation):
        _run_max_2x2(x.size, planes, out)
    elif kernel_size == stride == (1, 2) and padding == (0, 0) and dilation[1] == 1:
        rows = planes.reshape(-1, x.shape[3])  # each of which is above and below
        strides = rows.strides[0], 0, x.itemsize
        twice: Array = np.ndarray((rows.shape[0], 2, rows.shape[1]), x.dtype, rows, 0, strides)
        _run_max_2x2(2 * x.size, twice, out.reshape(-1, 1, size[1]))
    else:
        steps = out.size * kernel_size[0] * kernel_size[1]
        _run_max(steps, planes, out, kernel_size, stride, padding, dilation)
    return out.reshape(*x.shape[:2], *size)


def max_pool2d_backward(
    g: Array, x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """Gradient of `max_pool2d`: g (n, c, oh, ow) goes to the first maximum of each window of x."""
    upper, planes = planes_of(g), planes_of(x)
    dx = buffers.empty(planes.shape, g.dtype)
    if is_2x2(kernel_size, stride, padding, dilation):
        _run_max_backward_2x2(2 * x.size, upper, planes, dx)
    else:
        steps = 4 * g.size * kernel_size[0] * kernel_size[1]
        _run_max_backward(steps, upper, planes, dx, kernel_size, stride, padding, dilation)
    return dx.reshape(x.shape)


def max_pool2d_select(
    v: Array, x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The elements of v, of the shape of x, where x has the first maximum of each window."""
    size = output_size(x.shape[2:], kernel_size, stride, padding, dilation)
    planes = planes_of(x)
    out = buffers.empty((planes.shape[0], *size), v.dtype)
    steps = 4 * out.size * kernel_size[0] * kernel_size[1]
    _run_select(steps, planes_of(v), planes, out, kernel_size, stride, padding, dilation)
    return out.reshape(*x.shape[:2], *size)
