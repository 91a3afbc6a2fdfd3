"""Max pooling of images and its gradient, for many channels at a time.

One window has too few pixels for a vector, and which of them is the largest a processor guesses
wrongly every other time. So the planes (the channels of all images) become the last dimension, as
the images do in `conv`: then a window of all of them is a few rows, compared element by element.
"""

from __future__ import annotations

import numpy as np

from tinytorch.backends.blocked.conv import Pair, output_size
from tinytorch.backends.blocked.matmul import _transpose
from tinytorch.dtypes import Array
from tinytorch.jit.buffers import empty
from tinytorch.jit.library import kernel

PLANES = 64  # worked on at once: 64 planes of 8 by 8 pixels are 16 KiB, half of an L1 cache


@kernel
def keep_larger(row: Array, pixel: int, best: Array, where: Array) -> None:
    """best = max(best, row), element by element, and where that is a new one, where = pixel.

    The first of equal ones stays; NaN counts as larger than all. A negative `where` means that
    there is none yet.

    Args:
        row: the values of a pixel in all planes.
        best, where: the largest ones so far, and the pixels they are from.
    """
    for k in range(row.size):
        is_larger = (row[k] > best[k]) | ((row[k] != row[k]) & (best[k] == best[k]))
        wins = is_larger | (where[k] < 0)
        best[k] = row[k] if wins else best[k]
        where[k] = pixel if wins else where[k]


@kernel
def first_maxima(
    pixels: Array, width: int, corner: Pair, size: Pair, dilation: Pair, best: Array, where: Array
) -> None:
    """The first maximum of a window in each plane, and its pixel.

    Args:
        pixels: (h width, planes).
        corner: where the window begins; what hangs over the border does not count.
        best, where: (planes,); overwritten.
    """
    height = pixels.shape[0] // width
    where[:] = -1
    for i in range(size[0]):
        for j in range(size[1]):
            y, x = corner[0] + i * dilation[0], corner[1] + j * dilation[1]
            if 0 <= y < height and 0 <= x < width:
                pixel = y * width + x
                keep_larger(pixels[pixel], pixel, best, where)


@kernel
def _forward(
    x: Array, out: Array, width: Pair, size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    """x (planes, h w) -> out (planes, oh ow); `width` is (w, ow)."""
    for first in range(0, x.shape[0], PLANES):
        planes = x[first : first + PLANES]
        pixels = np.empty((x.shape[1], planes.shape[0]), x.dtype)
        maxima = np.empty((out.shape[1], planes.shape[0]), x.dtype)
        where = np.empty(planes.shape[0], np.int32)
        _transpose(planes, pixels)
        for q in range(out.shape[1]):
            i, j = q // width[1], q % width[1]
            corner = (i * stride[0] - padding[0], j * stride[1] - padding[1])
            first_maxima(pixels, width[0], corner, size, dilation, maxima[q], where)
        _transpose(maxima, out[first : first + PLANES])


@kernel
def _backward(
    g: Array,
    x: Array,
    dx: Array,
    width: Pair,
    size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> None:
    """Each element of g (planes, oh ow) is added to dx where its window has its maximum."""
    dx[:, :] = 0
    for first in range(0, x.shape[0], PLANES):
        planes, target = x[first : first + PLANES], dx[first : first + PLANES]
        pixels = np.empty((x.shape[1], planes.shape[0]), x.dtype)
        best, where = np.empty(planes.shape[0], x.dtype), np.empty(planes.shape[0], np.int32)
        _transpose(planes, pixels)
        for q in range(g.shape[1]):
            i, j = q // width[1], q % width[1]
            corner = (i * stride[0] - padding[0], j * stride[1] - padding[1])
            first_maxima(pixels, width[0], corner, size, dilation, best, where)
            for k in range(where.size):
                target[k, where[k]] += g[first + k, q]


def _planes(x: Array) -> Array:
    """(n, c, h, w) as contiguous (n c, h w)."""
    n, c, h, w = x.shape
    return np.ascontiguousarray(x).reshape(n * c, h * w)


def max_pool2d(
    x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The maximum of each window: x (n, c, h, w) -> (n, c, oh, ow)."""
    size = output_size(x.shape[2:], kernel_size, stride, padding, dilation)
    out = empty((x.shape[0] * x.shape[1], size[0] * size[1]), x.dtype)
    width = (x.shape[3], size[1])
    _forward(_planes(x), out, width, kernel_size, stride, padding, dilation)
    return out.reshape(*x.shape[:2], *size)


def max_pool2d_backward(
    g: Array, x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The gradient of `max_pool2d`: it goes to the first maximum of each window."""
    planes, width = _planes(x), (x.shape[3], g.shape[3])
    dx = empty(planes.shape, x.dtype)
    _backward(_planes(g), planes, dx, width, kernel_size, stride, padding, dilation)
    return dx.reshape(x.shape)
