"""Max pooling of images and its gradient, window by window."""

from __future__ import annotations

import numpy as np

from tinytorch.backends.blocked.conv import Pair, output_size
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel


@kernel
def first_maximum(
    plane: Array, top: int, left: int, size: Pair, dilation: Pair
) -> tuple[int, int]:  # fmt: skip
    """Row and column in `plane` of a window's first maximum; NaN counts as larger than all.

    Args:
        plane: (h, w).
        top, left: where the window begins; what hangs over the border does not count.
    """
    row, column, best = -1, -1, plane[0, 0]
    for y in range(top, top + size[0] * dilation[0], dilation[0]):
        for x in range(left, left + size[1] * dilation[1], dilation[1]):
            if 0 <= y < plane.shape[0] and 0 <= x < plane.shape[1]:
                value = plane[y, x]
                if row < 0 or value > best or (value != value and best == best):
                    row, column, best = y, x, value
    return row, column


@kernel
def _forward(
    x: Array, out: Array, size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:  # fmt: skip
    """x (planes, h, w) -> out (planes, oh, ow)."""
    for n in range(x.shape[0]):
        plane = x[n]
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
                row, column = first_maximum(plane, top, left, size, dilation)
                out[n, i, j] = plane[row, column]


@kernel
def _backward(
    g: Array, x: Array, dx: Array, size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:  # fmt: skip
    """Each element of g (planes, oh, ow) is added to dx where its window has its maximum."""
    dx[:, :, :] = 0
    for n in range(x.shape[0]):
        plane = x[n]
        for i in range(g.shape[1]):
            for j in range(g.shape[2]):
                top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
                row, column = first_maximum(plane, top, left, size, dilation)
                dx[n, row, column] += g[n, i, j]


def _planes(x: Array) -> Array:
    """(n, c, h, w) as contiguous (n c, h, w)."""
    n, c, h, w = x.shape
    return np.ascontiguousarray(x).reshape(n * c, h, w)


def max_pool2d(
    x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The maximum of each window: x (n, c, h, w) -> (n, c, oh, ow)."""
    size = output_size(x.shape[2:], kernel_size, stride, padding, dilation)
    out = np.empty((x.shape[0] * x.shape[1], *size), x.dtype)
    _forward(_planes(x), out, kernel_size, stride, padding, dilation)
    return out.reshape(*x.shape[:2], *size)


def max_pool2d_backward(
    g: Array, x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The gradient of `max_pool2d`: it goes to the first maximum of each window."""
    planes = _planes(x)
    dx = np.empty_like(planes)
    _backward(_planes(g), planes, dx, kernel_size, stride, padding, dilation)
    return dx.reshape(x.shape)
