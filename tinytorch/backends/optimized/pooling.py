"""Max and average pooling of images, with their gradients.

The forward passes combine whole rows: for each element (i, j) of the window, output row y takes in
input row y stride + i at columns x stride + j, a loop that LLVM vectorises. Gradients of a maximum
need its place too, which is found in the same way. Windows of 2 by 2 side by side, the common case,
have a version of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.blocked.conv import _first_and_last, output_size
from tinytorch.backends.optimized import buffers
from tinytorch.backends.optimized.library import kernel
from tinytorch.backends.optimized.rows import shared
from tinytorch.dtypes import Array

Pair = tuple[int, int]


@kernel
def _max_pool(
    x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    """x (planes, h, w) -> out (planes, oh, ow). The border counts as -inf."""
    for n in range(x.shape[0]):
        out[n, :, :] = -np.inf
        for i in range(kernel_size[0]):
            top = i * dilation[0] - padding[0]
            first_y, last_y = _first_and_last(top, stride[0], out.shape[1], x.shape[1])
            for j in range(kernel_size[1]):
                left = j * dilation[1] - padding[1]
                first, last = _first_and_last(left, stride[1], out.shape[2], x.shape[2])
                for y in range(first_y, last_y):
                    result = out[n, y, first:last]
                    row = x[n, top + y * stride[0], left + first * stride[1] :]
                    for k in range(result.size):
                        v = row[k * stride[1]]
                        result[k] = v if v > result[k] or v != v else result[k]


@kernel
def _avg_pool(x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair) -> None:
    """Sums over windows, divided by the size of the window; the border counts as 0."""
    scale = x.dtype.type(1 / (kernel_size[0] * kernel_size[1]))
    for n in range(x.shape[0]):
        out[n, :, :] = 0
        for i in range(kernel_size[0]):
            top = i - padding[0]
            first_y, last_y = _first_and_last(top, stride[0], out.shape[1], x.shape[1])
            for j in range(kernel_size[1]):
                left = j - padding[1]
                first, last = _first_and_last(left, stride[1], out.shape[2], x.shape[2])
                for y in range(first_y, last_y):
                    result = out[n, y, first:last]
                    row = x[n, top + y * stride[0], left + first * stride[1] :]
                    for k in range(result.size):
                        result[k] += row[k * stride[1]] * scale


@kernel
def _avg_pool_backward(g: Array, dx: Array, kernel_size: Pair, stride: Pair, padding: Pair) -> None:
    """Every output element spreads evenly over its window."""
    scale = g.dtype.type(1 / (kernel_size[0] * kernel_size[1]))
    for n in range(g.shape[0]):
        dx[n, :, :] = 0
        for i in range(kernel_size[0]):
            top = i - padding[0]
            first_y, last_y = _first_and_last(top, stride[0], g.shape[1], dx.shape[1])
            for j in range(kernel_size[1]):
                left = j - padding[1]
                first, last = _first_and_last(left, stride[1], g.shape[2], dx.shape[2])
                for y in range(first_y, last_y):
                    upper = g[n, y, first:last]
                    row = dx[n, top + y * stride[0], left + first * stride[1] :]
                    for k in range(upper.size):
                        row[k * stride[1]] += upper[k] * scale


@kernel(force_inline=True)
def _exceeds(later: Any, earlier: Any) -> Any:
    """Whether a later element takes the place of an earlier one as the maximum; NaN is largest."""
    return (later > earlier) | ((later != later) & (earlier == earlier))


@kernel
def _places_of_max(
    plane: Array, y: int, best: Array, place: Array, kernel_size: Pair, stride: Pair,
    padding: Pair, dilation: Pair,
) -> None:  # fmt: skip
    """Where, in the flat plane, the windows of output row y have their first maximum.

    Args:
        best, place: the maxima and their places, (ow,) each; overwritten.
    """
    place[:] = -1
    for i in range(kernel_size[0]):
        row = y * stride[0] - padding[0] + i * dilation[0]
        if not 0 <= row < plane.shape[0]:
            continue
        for j in range(kernel_size[1]):
            left = j * dilation[1] - padding[1]
            first, last = _first_and_last(left, stride[1], best.size, plane.shape[1])
            start = left + first * stride[1]
            source = plane[row, start:]
            values, places = best[first:last], place[first:last]
            here = row * plane.shape[1] + start
            for k in range(values.size):
                v, value, earlier = source[k * stride[1]], values[k], places[k]
                wins = (earlier < 0) | _exceeds(v, value)
                values[k] = v if wins else value
                places[k] = np.int32(here + k * stride[1]) if wins else earlier


@kernel
def _max_pool_backward(
    g: Array, x: Array, dx: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    best, place = np.empty(g.shape[2], x.dtype), np.empty(g.shape[2], np.int32)
    for n in range(g.shape[0]):
        result = dx[n].reshape(-1)
        result[:] = 0
        for y in range(g.shape[1]):
            _places_of_max(x[n], y, best, place, kernel_size, stride, padding, dilation)
            for k in range(place.size):
                result[place[k]] += g[n, y, k]


@kernel
def _max_pool_select(
    v: Array, x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    best, place = np.empty(out.shape[2], x.dtype), np.empty(out.shape[2], np.int32)
    for n in range(x.shape[0]):
        source = v[n].reshape(-1)
        for y in range(out.shape[1]):
            _places_of_max(x[n], y, best, place, kernel_size, stride, padding, dilation)
            for k in range(place.size):
                out[n, y, k] = source[place[k]]


# Windows of 2 by 2 side by side, in images of even width. Left and right neighbours form pairs, and
# the pairs of a whole plane lie behind each other, so one long loop treats them; rows may be short.


@kernel
def _max_of_pairs(plane: Array, best: Array) -> None:
    for q in range(best.size):
        left, right = plane[2 * q], plane[2 * q + 1]
        best[q] = right if _exceeds(right, left) else left


@kernel
def _max_pool_2x2(x: Array, out: Array) -> None:
    pairs = np.empty(x.shape[1] * x.shape[2] // 2, x.dtype)
    width = out.shape[2]
    for n in range(x.shape[0]):
        _max_of_pairs(x[n].reshape(-1), pairs)
        for y in range(out.shape[1]):
            result, rows = out[n, y], pairs[2 * y * width : 2 * (y + 1) * width]
            for k in range(width):
                upper, lower = rows[k], rows[width + k]
                result[k] = lower if _exceeds(lower, upper) else upper


@kernel
def _max_pool_backward_2x2(g: Array, x: Array, dx: Array) -> None:
    pairs = np.empty(x.shape[1] * x.shape[2] // 2, x.dtype)
    width, zero = g.shape[2], g.dtype.type(0)
    for n in range(g.shape[0]):
        plane, result = x[n].reshape(-1), dx[n].reshape(-1)
        _max_of_pairs(plane, pairs)
        # the gradient takes the place of the maxima: first to the right pair, ...
        for y in range(g.shape[1]):
            arriving, rows = g[n, y], pairs[2 * y * width : 2 * (y + 1) * width]
            for k in range(width):
                below = _exceeds(rows[width + k], rows[k])
                rows[k] = zero if below else arriving[k]
                rows[width + k] = arriving[k] if below else zero
        pairs[2 * g.shape[1] * width :] = 0  # the last row of an odd height is in no window
        # ... then to the right element of the pair
        for q in range(pairs.size):
            # all loads before the stores, or LLVM must assume that they might overlap
            left, right, arriving_here = plane[2 * q], plane[2 * q + 1], pairs[q]
            to_right = _exceeds(right, left)
            to_left = zero if to_right else arriving_here
            result[2 * q + 1] = arriving_here if to_right else zero
            result[2 * q] = to_left


_run_max_2x2 = shared(_max_pool_2x2, "x[:], out[:]")
_run_max = shared(_max_pool, "x[:], out[:], kernel_size, stride, padding, dilation")
_run_avg = shared(_avg_pool, "x[:], out[:], kernel_size, stride, padding")
_run_avg_backward = shared(_avg_pool_backward, "g[:], dx[:], kernel_size, stride, padding")
_run_max_backward = shared(
    _max_pool_backward, "g[:], x[:], dx[:], kernel_size, stride, padding, dilation"
)
_run_max_backward_2x2 = shared(_max_pool_backward_2x2, "g[:], x[:], dx[:]")
_run_select = shared(_max_pool_select, "v[:], x[:], out[:], kernel_size, stride, padding, dilation")


def _is_2x2(x: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair) -> bool:
    return (
        kernel_size == stride == (2, 2)
        and padding == (0, 0)
        and dilation == (1, 1)
        and x.shape[3] % 2 == 0
    )


def _planes(x: Array) -> Array:
    """(n, c, h, w) as a contiguous (n c, h, w)."""
    n, c, h, w = x.shape
    return np.ascontiguousarray(x).reshape(n * c, h, w)


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
    planes = _planes(x)
    out = buffers.empty((planes.shape[0], *size), x.dtype)
    if _is_2x2(x, kernel_size, stride, padding, dilation):
        _run_max_2x2(x.size, planes, out)
    else:
        steps = out.size * kernel_size[0] * kernel_size[1]
        _run_max(steps, planes, out, kernel_size, stride, padding, dilation)
    return out.reshape(*x.shape[:2], *size)


def max_pool2d_backward(
    g: Array, x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """Gradient of `max_pool2d`: g (n, c, oh, ow) goes to the first maximum of each window of x."""
    upper, planes = _planes(g), _planes(x)
    dx = buffers.empty(planes.shape, g.dtype)
    if _is_2x2(x, kernel_size, stride, padding, dilation):
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
    planes = _planes(x)
    out = buffers.empty((planes.shape[0], *size), v.dtype)
    steps = 4 * out.size * kernel_size[0] * kernel_size[1]
    _run_select(steps, _planes(v), planes, out, kernel_size, stride, padding, dilation)
    return out.reshape(*x.shape[:2], *size)


def avg_pool2d(x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair) -> Array:
    """The mean of every window; the zero border counts as part of it. Shapes as in `max_pool2d`."""
    size = output_size(x.shape[2:], kernel_size, stride, padding, (1, 1))
    planes = _planes(x)
    out = buffers.empty((planes.shape[0], *size), x.dtype)
    steps = out.size * kernel_size[0] * kernel_size[1]
    _run_avg(steps, planes, out, kernel_size, stride, padding)
    return out.reshape(*x.shape[:2], *size)


def avg_pool2d_backward(
    g: Array, *, input_size: Pair, kernel_size: Pair, stride: Pair, padding: Pair
) -> Array:
    """Gradient of `avg_pool2d` for an input (n, c, *input_size)."""
    upper = _planes(g)
    dx = buffers.empty((upper.shape[0], *input_size), g.dtype)
    steps = g.size * kernel_size[0] * kernel_size[1]
    _run_avg_backward(steps, upper, dx, kernel_size, stride, padding)
    return dx.reshape(*g.shape[:2], *input_size)
