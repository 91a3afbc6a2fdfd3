"""Convolution as a matrix product: im2col, and its two gradients.

Every output position looks at a window of the input. Write the window as a column of numbers, the
columns of all positions side by side, and the convolution of one image is one matrix product:

    out (o, positions) = w (o, c kh kw) @ columns (c kh kw, positions)

The gradients are the two other products of the same three matrices: with g the gradient of out,

    gradient of w       = g @ columns.T            summed over the images
    gradient of columns = w.T @ g                  each element goes back to where it was taken from

The columns hold every input element up to kh kw times. That memory is the price; the optimized
backend does without it.

Source: K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural networks for
document processing", IWFHR 2006.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from tinytorch.backends.blocked.matmul import matmul_blocked
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.threads import run_parallel, threads_for
from tinytorch.shapes_conv import window_positions

Pair = tuple[int, int]


@kernel
def first_and_last(start: int, stride: int, count: int, size: int) -> tuple[int, int]:
    """Which of the `count` positions start, start + stride, ... lie within 0 .. size - 1.

    Returns:
        The index of the first, and the index after the last; equal if there are none.

    >>> first_and_last(-2, 2, 5, 4)  # -2, 0, 2, 4, 6
    (1, 3)
    """
    first = min(count, max(0, -(start // stride)))  # -(a // b) rounds -a / b up
    last = min(count, -((start - size) // stride))
    return first, max(first, last)


@kernel
def im2col(
    image: Array, columns: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair,
    out_size: Pair,
) -> None:  # fmt: skip
    """Write the windows of an image as columns.

    Row (channel, i, j) of the columns holds what element (i, j) of the window sees at every output
    position: a shifted copy of the channel, with zeros where the window hangs over the border. At
    output position (y, x) that is element (y stride[0] + i dilation[0] - padding[0], ...) of it.

    Args:
        image: (c, h, w).
        columns: (c kh kw, oh ow); overwritten.
        out_size: (oh, ow).
    """
    (kh, kw), (oh, ow) = kernel_size, out_size
    columns[:, :] = 0
    for element in range(kh * kw):
        i, j = element // kw, element % kw
        top, left = i * dilation[0] - padding[0], j * dilation[1] - padding[1]
        first_y, last_y = first_and_last(top, stride[0], oh, image.shape[1])
        first_x, last_x = first_and_last(left, stride[1], ow, image.shape[2])
        for channel in range(image.shape[0]):
            target, source = columns[channel * kh * kw + element], image[channel]
            for y in range(first_y, last_y):
                for x in range(first_x, last_x):
                    target[y * ow + x] = source[top + y * stride[0], left + x * stride[1]]


@kernel
def col2im(
    columns: Array, image: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair,
    out_size: Pair,
) -> None:  # fmt: skip
    """The adjoint of `im2col`: add every element of the columns to where it was taken from.

    Args:
        columns: (c kh kw, oh ow), as `im2col` writes them.
        image: (c, h, w); overwritten.
    """
    (kh, kw), (oh, ow) = kernel_size, out_size
    image[:, :, :] = 0
    for element in range(kh * kw):
        i, j = element // kw, element % kw
        top, left = i * dilation[0] - padding[0], j * dilation[1] - padding[1]
        first_y, last_y = first_and_last(top, stride[0], oh, image.shape[1])
        first_x, last_x = first_and_last(left, stride[1], ow, image.shape[2])
        for channel in range(image.shape[0]):
            target, source = image[channel], columns[channel * kh * kw + element]
            for y in range(first_y, last_y):
                for x in range(first_x, last_x):
                    target[top + y * stride[0], left + x * stride[1]] += source[y * ow + x]


# Each of the next three works on the images first to last - 1, so that threads can share a batch.


@kernel
def _forward(
    first: int, last: int, x: Array, w: Array, out: Array, kernel_size: Pair, stride: Pair,
    padding: Pair, dilation: Pair, out_size: Pair,
) -> None:  # fmt: skip
    """The convolution of the images first to last - 1: weights times columns, for each group.

    Args:
        x: (n, groups, c, h, w).
        w: (groups, o, c kh kw).
        out: (n, groups, o, oh ow); overwritten for these images.
    """
    columns = np.empty((w.shape[2], out.shape[3]), x.dtype)
    for n in range(first, last):
        for group in range(w.shape[0]):
            im2col(x[n, group], columns, kernel_size, stride, padding, dilation, out_size)
            matmul_blocked(w[group], columns, out[n, group])


@kernel
def _backward_input(
    first: int, last: int, g: Array, w_t: Array, out: Array, kernel_size: Pair, stride: Pair,
    padding: Pair, dilation: Pair, out_size: Pair,
) -> None:  # fmt: skip
    """Its gradient for x: columns = w_t times g, and each element goes back to where it was.

    Args:
        g: (n, groups, o, oh ow).
        w_t: (groups, c kh kw, o).
        out: (n, groups, c, h, w); overwritten for the images first to last - 1.
    """
    columns = np.empty((w_t.shape[1], g.shape[3]), g.dtype)
    for n in range(first, last):
        for group in range(w_t.shape[0]):
            matmul_blocked(w_t[group], g[n, group], columns)
            col2im(columns, out[n, group], kernel_size, stride, padding, dilation, out_size)


@kernel
def _backward_weight(
    first: int, last: int, x: Array, g: Array, total: Array, kernel_size: Pair, stride: Pair,
    padding: Pair, dilation: Pair, out_size: Pair,
) -> None:  # fmt: skip
    """Its gradient for w: g times the transposed columns, summed over the images.

    Args:
        x: (n, groups, c, h, w).
        g: (n, groups, o, oh ow).
        total: (groups, o, c kh kw); overwritten by the sum over the images first to last - 1.
    """
    columns = np.empty((total.shape[2], g.shape[3]), x.dtype)
    part = np.empty(total.shape[1:], x.dtype)
    total[:, :, :] = 0
    for n in range(first, last):
        for group in range(total.shape[0]):
            im2col(x[n, group], columns, kernel_size, stride, padding, dilation, out_size)
            matmul_blocked(g[n, group], np.ascontiguousarray(columns.T), part)
            total[group] += part


@kernel(parallel=True)
def _forward_parallel(
    threads: int, first: int, last: int, x: Array, w: Array, out: Array, kernel_size: Pair,
    stride: Pair, padding: Pair, dilation: Pair, out_size: Pair,
) -> None:  # fmt: skip
    for t in prange(threads):
        _forward(
            last * t // threads, last * (t + 1) // threads, x, w, out,
            kernel_size, stride, padding, dilation, out_size,
        )  # fmt: skip


@kernel(parallel=True)
def _backward_input_parallel(
    threads: int, first: int, last: int, g: Array, w_t: Array, out: Array, kernel_size: Pair,
    stride: Pair, padding: Pair, dilation: Pair, out_size: Pair,
) -> None:  # fmt: skip
    for t in prange(threads):
        _backward_input(
            last * t // threads, last * (t + 1) // threads, g, w_t, out,
            kernel_size, stride, padding, dilation, out_size,
        )  # fmt: skip


def output_size(size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    """How many positions a window takes along each of the two dimensions."""
    rows, columns = (
        window_positions(size[i], kernel[i], stride[i], padding[i], dilation[i]) for i in range(2)
    )
    return rows, columns


def conv2d(
    x: Array, w: Array, b: Array | None = None, *, stride: Pair, padding: Pair, dilation: Pair,
    groups: int,
) -> Array:  # fmt: skip
    """Cross-correlation of a batch of images with a set of filters.

    Args:
        x: (n, c, h, w).
        w: (o, c / groups, kh, kw).
        b: (o,), added to every position.

    Returns:
        (n, o, oh, ow).
    """
    (n, _, height, width), (o, cg, kh, kw) = x.shape, w.shape
    size = output_size((height, width), (kh, kw), stride, padding, dilation)
    out = np.empty((n, groups, o // groups, size[0] * size[1]), x.dtype)
    run_parallel(
        _forward_parallel, _forward, threads_for(out.size * cg * kh * kw), 0, n,
        np.ascontiguousarray(x).reshape(n, groups, cg, height, width),
        np.ascontiguousarray(w).reshape(groups, o // groups, cg * kh * kw),
        out, (kh, kw), stride, padding, dilation, size,
    )  # fmt: skip
    result = out.reshape(n, o, *size)
    if b is not None:
        result += b[:, None, None]
    return result


def conv2d_input(
    g: Array, w: Array, *, input_size: Pair, stride: Pair, padding: Pair, dilation: Pair,
    groups: int,
) -> Array:  # fmt: skip
    """Gradient of `conv2d` for its input: g (n, o, oh, ow) -> (n, c, *input_size)."""
    (n, o, oh, ow), (_, cg, kh, kw) = g.shape, w.shape
    w_t = w.reshape(groups, o // groups, cg * kh * kw).transpose(0, 2, 1)
    out = np.empty((n, groups, cg, *input_size), g.dtype)
    run_parallel(
        _backward_input_parallel, _backward_input, threads_for(g.size * cg * kh * kw), 0, n,
        np.ascontiguousarray(g).reshape(n, groups, o // groups, oh * ow),
        np.ascontiguousarray(w_t),
        out, (kh, kw), stride, padding, dilation, (oh, ow),
    )  # fmt: skip
    return out.reshape(n, groups * cg, *input_size)


def conv2d_weight(
    x: Array, g: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair,
    groups: int,
) -> Array:  # fmt: skip
    """Gradient of `conv2d` for its weight: (o, c / groups, kh, kw).

    On one thread: the images all add to the same weights.
    """
    (n, c, height, width), (_, o, oh, ow) = x.shape, g.shape
    cg, (kh, kw) = c // groups, kernel_size
    total = np.empty((groups, o // groups, cg * kh * kw), x.dtype)
    _backward_weight(
        0, n,
        np.ascontiguousarray(x).reshape(n, groups, cg, height, width),
        np.ascontiguousarray(g).reshape(n, groups, o // groups, oh * ow),
        total, kernel_size, stride, padding, dilation, (oh, ow),
    )  # fmt: skip
    return total.reshape(o, cg, kh, kw)
