"""Max and average pooling of images, with their gradients.

A plane is copied with its border, split into one plane for each row and column of the stride (its
*phases*, as `conv_plan` has them). There, element (i, j) of all windows is one range of memory,

    window (y, k) at y * pitch + k       its element (i, j) at that + offset(i, j)

so a plane is pooled by one long loop for each element of the window, which LLVM vectorises. Windows
of 2 by 2 side by side, the common case, need no copy (`pool_kernel`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.blocked.conv import output_size
from tinytorch.backends.optimized import buffers
from tinytorch.backends.optimized.library import kernel
from tinytorch.backends.optimized.llvm import address
from tinytorch.backends.optimized.phases import join_pairs, split_pairs
from tinytorch.backends.optimized.pool_kernel import max_of_windows, max_of_windows_backward
from tinytorch.backends.optimized.rows import shared
from tinytorch.dtypes import Array

Pair = tuple[int, int]

# -- planes with borders, in phases ---------------------------------------------------------------


@kernel
def _axis(size: int, windows: int, length: int, stride: int, padding: int, dilation: int) -> Pair:
    """Of an axis in phases: elements before the first one, and length with both borders."""
    before = (padding + stride - 1) // stride
    last = ((length - 1) * dilation - padding) // stride + windows - 1
    return before, before + max((size + stride - 1) // stride, last + 1)


@kernel
def _prepare(
    kind: Any, border: float, image: Pair, windows: Pair, kernel_size: Pair, stride: Pair,
    padding: Pair, dilation: Pair,
) -> tuple[Array, Pair, Array]:  # fmt: skip
    """Phases full of the border's value, where the image begins in each, and the offsets."""
    top, height = _axis(image[0], windows[0], kernel_size[0], stride[0], padding[0], dilation[0])
    left, pitch = _axis(image[1], windows[1], kernel_size[1], stride[1], padding[1], dilation[1])
    phases = np.full((stride[0], stride[1], height, pitch), border, kind)
    offsets = np.empty(kernel_size[0] * kernel_size[1], np.int64)
    for i in range(kernel_size[0]):
        row = i * dilation[0] - padding[0]
        for j in range(kernel_size[1]):
            column = j * dilation[1] - padding[1]
            phase = row % stride[0] * stride[1] + column % stride[1]
            place = (top + row // stride[0]) * pitch + left + column // stride[1]
            offsets[i * kernel_size[1] + j] = phase * height * pitch + place
    return phases, (top, left), offsets


@kernel(force_inline=True)
def _copy_every(source: Array, step: int, target: Array, target_step: int, count: int) -> None:
    for k in range(count):
        target[k * target_step] = source[k * step]


@kernel
def _split(plane: Array, phases: Array, begin: Pair) -> None:
    """Copy a plane into its phases."""
    (height, width), (down, across) = plane.shape, phases.shape[:2]
    for i in range(min(down, height)):
        rows = (height - i + down - 1) // down
        if across == 2:
            split_pairs(
                plane.dtype.type, width, rows, address(plane[i]), down * plane.strides[0],
                address(phases[i, 0, begin[0], begin[1] :]), phases.strides[1], phases.strides[2],
            )  # fmt: skip
            continue
        for j in range(min(across, width)):
            count = (width - j + across - 1) // across
            for r in range(rows):
                row, target = plane[i + r * down, j:], phases[i, j, begin[0] + r, begin[1] :]
                if across == 1:  # a constant step, for vector code
                    _copy_every(row, 1, target, 1, count)
                else:
                    _copy_every(row, across, target, 1, count)


@kernel
def _join(phases: Array, plane: Array, begin: Pair) -> None:
    """The inverse of `_split`."""
    (height, width), (down, across) = plane.shape, phases.shape[:2]
    for i in range(min(down, height)):
        rows = (height - i + down - 1) // down
        if across == 2:
            join_pairs(
                plane.dtype.type, width, rows, address(plane[i]), down * plane.strides[0],
                address(phases[i, 0, begin[0], begin[1] :]), phases.strides[1], phases.strides[2],
            )  # fmt: skip
            continue
        for j in range(min(across, width)):
            count = (width - j + across - 1) // across
            for r in range(rows):
                row, source = plane[i + r * down, j:], phases[i, j, begin[0] + r, begin[1] :]
                if across == 1:
                    _copy_every(source, 1, row, 1, count)
                else:
                    _copy_every(source, 1, row, across, count)


@kernel
def _windows_and_gaps(windows: Pair, phases: Array) -> int:
    """The length of all rows of windows, one pitch apart."""
    return (windows[0] - 1) * phases.shape[3] + windows[1]


# -- averages -------------------------------------------------------------------------------------


@kernel
def _avg_pool(x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair) -> None:
    """Sums over windows, divided by the size of the window; the border counts as 0."""
    kind, windows = x.dtype.type, out.shape[1:]
    scale = kind(1 / (kernel_size[0] * kernel_size[1]))
    phases, begin, offsets = _prepare(
        kind, 0, x.shape[1:], windows, kernel_size, stride, padding, (1, 1)
    )
    flat, pitch = phases.reshape(-1), phases.shape[3]
    sums = np.empty(_windows_and_gaps(windows, phases), kind)
    for n in range(x.shape[0]):
        _split(x[n], phases, begin)
        sums[:] = 0
        for t in range(offsets.size):
            source = flat[offsets[t] :]
            for q in range(sums.size):
                sums[q] += source[q]
        for y in range(windows[0]):
            for k in range(windows[1]):
                out[n, y, k] = sums[y * pitch + k] * scale


@kernel
def _avg_pool_backward(g: Array, dx: Array, kernel_size: Pair, stride: Pair, padding: Pair) -> None:
    """Every output element spreads evenly over its window."""
    kind, windows = g.dtype.type, g.shape[1:]
    scale = kind(1 / (kernel_size[0] * kernel_size[1]))
    phases, begin, offsets = _prepare(
        kind, 0, dx.shape[1:], windows, kernel_size, stride, padding, (1, 1)
    )
    flat, pitch = phases.reshape(-1), phases.shape[3]
    shares = np.zeros(_windows_and_gaps(windows, phases), kind)  # and zeros in the gaps
    for n in range(g.shape[0]):
        for y in range(windows[0]):
            for k in range(windows[1]):
                shares[y * pitch + k] = g[n, y, k] * scale
        flat[:] = 0
        for t in range(offsets.size):
            target = flat[offsets[t] :]
            for q in range(shares.size):
                target[q] += shares[q]
        _join(phases, dx[n], begin)


# -- maxima ---------------------------------------------------------------------------------------


@kernel
def _max_pool(
    x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    """x (planes, h, w) -> out (planes, oh, ow). The border counts as -inf."""
    windows = out.shape[1:]
    phases, begin, offsets = _prepare(
        x.dtype.type, -np.inf, x.shape[1:], windows, kernel_size, stride, padding, dilation
    )
    flat, pitch = phases.reshape(-1), phases.shape[3]
    best = np.empty(_windows_and_gaps(windows, phases), x.dtype)
    for n in range(x.shape[0]):
        _split(x[n], phases, begin)
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
def _places_of_max(
    x: Array, places: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    """Where, in flat planes, the windows have their first maximum: places (planes, oh, ow)."""
    windows = places.shape[1:]
    phases, begin, offsets = _prepare(
        x.dtype.type, -np.inf, x.shape[1:], windows, kernel_size, stride, padding, dilation
    )
    flat, pitch, size = phases.reshape(-1), phases.shape[3], _windows_and_gaps(windows, phases)
    best, element = np.empty(size, x.dtype), np.empty(size, np.int32)
    row_of = np.empty(offsets.size, np.int64)
    column_of = np.empty(offsets.size, np.int64)
    for t in range(offsets.size):
        row_of[t] = t // kernel_size[1] * dilation[0] - padding[0]
        column_of[t] = t % kernel_size[1] * dilation[1] - padding[1]
    for n in range(x.shape[0]):
        _split(x[n], phases, begin)
        _elements_of_max(flat, offsets, best, element)
        for y in range(windows[0]):
            for k in range(windows[1]):
                t = element[y * pitch + k]
                # only if all elements are -inf may one of the border have come first
                row = _inside(y * stride[0] + row_of[t], dilation[0])
                column = _inside(k * stride[1] + column_of[t], dilation[1])
                places[n, y, k] = row * x.shape[2] + column


@kernel
def _max_pool_backward(
    g: Array, x: Array, dx: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    places = np.empty((1, *g.shape[1:]), np.int64)
    for n in range(g.shape[0]):
        _places_of_max(x[n : n + 1], places, kernel_size, stride, padding, dilation)
        upper, place, result = g[n].reshape(-1), places.reshape(-1), dx[n].reshape(-1)
        result[:] = 0
        for q in range(place.size):
            result[place[q]] += upper[q]


@kernel
def _max_pool_select(
    v: Array, x: Array, out: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    places = np.empty((1, *out.shape[1:]), np.int64)
    for n in range(x.shape[0]):
        _places_of_max(x[n : n + 1], places, kernel_size, stride, padding, dilation)
        source, place, result = v[n].reshape(-1), places.reshape(-1), out[n].reshape(-1)
        for q in range(place.size):
            result[q] = source[place[q]]


# -- windows of 2 by 2 side by side ---------------------------------------------------------------


@kernel
def _max_pool_2x2(x: Array, out: Array) -> None:
    kind = x.dtype.type
    for n in range(x.shape[0]):
        for y in range(out.shape[1]):
            max_of_windows(
                kind, out.shape[2], address(x[n, 2 * y]), address(x[n, 2 * y + 1]),
                address(out[n, y]),
            )  # fmt: skip


@kernel
def _max_pool_backward_2x2(g: Array, x: Array, dx: Array) -> None:
    kind = x.dtype.type
    for n in range(g.shape[0]):
        for y in range(g.shape[1]):
            max_of_windows_backward(
                kind, g.shape[2], address(x[n, 2 * y]), address(x[n, 2 * y + 1]),
                address(g[n, y]), address(dx[n, 2 * y]), address(dx[n, 2 * y + 1]),
            )  # fmt: skip
        dx[n, :, 2 * g.shape[2] :] = 0  # the last row and column of an odd size are in no window
        dx[n, 2 * g.shape[1] :, :] = 0


_run_max_2x2 = shared(_max_pool_2x2, "x[:], out[:]")
_run_max = shared(_max_pool, "x[:], out[:], kernel_size, stride, padding, dilation")
_run_avg = shared(_avg_pool, "x[:], out[:], kernel_size, stride, padding")
_run_avg_backward = shared(_avg_pool_backward, "g[:], dx[:], kernel_size, stride, padding")
_run_max_backward = shared(
    _max_pool_backward, "g[:], x[:], dx[:], kernel_size, stride, padding, dilation"
)
_run_max_backward_2x2 = shared(_max_pool_backward_2x2, "g[:], x[:], dx[:]")
_run_select = shared(_max_pool_select, "v[:], x[:], out[:], kernel_size, stride, padding, dilation")


def _is_2x2(kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair) -> bool:
    return kernel_size == stride == (2, 2) and padding == (0, 0) and dilation == (1, 1)


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
    if _is_2x2(kernel_size, stride, padding, dilation):
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
    if _is_2x2(kernel_size, stride, padding, dilation):
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
