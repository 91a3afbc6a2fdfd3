"""Convolution on the tile of the matrix product, with nothing copied but the images themselves.

Write the window of an output position as a column of numbers, the columns of all positions side by
side, and a convolution is one matrix product (im2col):

    out (o, positions) = w (o, c kh kw) @ columns (c kh kw, positions)

The columns hold every pixel up to kh kw times. They need not exist. Lay the images out with the
*batch* as the last dimension: then row (channel, i, j) of the columns, for one row of outputs of
all images, is a slice of the padded images,

    columns[(channel, i, j)] = images[channel, y + i, j : j + ow, :]      ow n numbers in a row

and the tile of the matrix product is told where its rows begin (`window_starts`). Vectors are as
long as the images are many, so small images, which have short rows, are no slower than large ones.

The gradient for the weights is the product of the gradient of out with the transposed columns: sums
along the same slices (`dot_products`). The gradient for the images is a convolution itself, with
the weights turned by half a turn.

Sources: K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural networks for
document processing", IWFHR 2006 (im2col); M. Dukhan, "The indirect convolution algorithm", 2019 (a
table of where rows begin, in its place).
"""

from __future__ import annotations

import numpy as np
from numba import prange

from tinytorch.backends.blocked.matmul import (
    BLOCK_N,
    STRIP,
    TILE,
    _aligned,
    _multiply_tile,
    _transpose,
    dot_products,
)
from tinytorch.dtypes import Array
from tinytorch.jit.buffers import empty
from tinytorch.jit.library import kernel
from tinytorch.jit.threads import run_parallel, threads_for
from tinytorch.shapes_conv import window_positions

Pair = tuple[int, int]
Layout = tuple[int, int, int, int, int]


@kernel
def images_last(x: Array, images: Array, padding: Pair) -> None:
    """Write a batch into its layout, in which the images are the last dimension.

    Column j of a padded row is element j // phases of phase j % phases: with one phase, the row as
    it is. With as many phases as the horizontal stride, what an element of the window sees at
    neighbouring positions is side by side.

    Args:
        x: (n, c, h, w).
        images: (c + 1, h + 2 padding[0], phases, pitch, n), zeros; channel c stays zero. Its rows
            have room for phases pitch >= w + 2 padding[1] columns.

    >>> x, images = np.array([[[[1, 2]]], [[[3, 4]]]]), np.zeros((2, 1, 1, 4, 2), int)
    >>> images_last(x, images, (0, 1))
    >>> images[0, 0, 0].tolist()
    [[0, 0], [1, 3], [2, 4], [0, 0]]
    """
    phases = images.shape[2]
    for phase in range(phases):
        first = (phase - padding[1]) % phases
        start = (first + padding[1]) // phases
        for channel in range(x.shape[1]):
            for y in range(x.shape[2]):
                source = x[:, channel, y, first::phases]
                target = images[channel, padding[0] + y, phase]
                _transpose(source, target[start : start + source.shape[1]])


@kernel
def window_starts(layout: Layout, kernel_size: Pair, dilation: Pair) -> Array:
    """The offsets in the flat images at which rows of the columns begin, for the first row of
    outputs.

    Element (i, j) of the window sees row i dilation[0] and column j dilation[1] of its channel at
    output position (0, 0), and what follows there at the next ones.

    Args:
        layout: the shape of the images, as in `images_last`: (c + 1, rows, phases, pitch, n).

    Returns:
        For channel, i, j in this order c kh kw numbers, and as many more as make their count a
        multiple of TILE: where channel c begins, which is zero.
    """
    (channels, rows, phases, pitch, n), (kh, kw) = layout, kernel_size
    used = (channels - 1) * kh * kw
    starts = np.empty((used + TILE - 1) // TILE * TILE, np.int64)
    for k in range(starts.size):
        channel, i, j = k // (kh * kw), k // kw % kh * dilation[0], k % kw * dilation[1]
        if k >= used:
            channel, i, j = channels - 1, 0, 0
        row = (channel * rows + i) * phases + j % phases
        starts[k] = (row * pitch + j // phases) * n
    return starts


@kernel
def _laid_out(x: Array, padding: Pair, stride: Pair) -> tuple[Array, Layout, int]:
    """The images of x (n, c, h, w), flat, their layout, and how far apart rows of outputs are.

    STRIP zeros follow on the last image: the tile reads whole strips.
    """
    n, c, h, w = x.shape
    pitch = (w + 2 * padding[1] + stride[1] - 1) // stride[1]
    layout = (c + 1, h + 2 * padding[0], stride[1], pitch, n)
    row = stride[1] * pitch * n
    flat = np.zeros((c + 1) * layout[1] * row + STRIP, x.dtype)
    images_last(x, flat[: flat.size - STRIP].reshape(layout), padding)
    return flat, layout, stride[0] * row


@kernel
def _output_row(
    w: Array, b: Array, pixels: Array, starts: Array, c_rows: Array, out: Array
) -> None:
    """One row of outputs, of all images: weights times columns, plus the bias.

    Args:
        w: (o, c kh kw), both rounded up to multiples of TILE with zeros.
        b: (o,): what the sums start from.
        pixels: the flat images, from the row on that the first window begins with.
        starts: where the rows of the columns begin in them.
        c_rows: room for TILE rows of BLOCK_N numbers, flat.
        out: (n, o, ow), overwritten; n ow is at most BLOCK_N.
    """
    n, o, ow = out.shape
    for i in range(0, o, TILE):
        rows = range(min(TILE, o - i))
        for r in rows:
            c_rows[r * BLOCK_N : r * BLOCK_N + ow * n] = b[i + r]
        _multiply_tile(w[i : i + TILE], pixels, starts, c_rows, ow * n)
        for r in rows:
            row = c_rows[r * BLOCK_N : r * BLOCK_N + ow * n]
            _transpose(row.reshape(ow, n), out[:, i + r])


# Each of the next two works on the images first to last - 1, so that threads can share a batch.


@kernel
def _forward(
    first: int,
    last: int,
    x: Array,
    w: Array,
    b: Array,
    out: Array,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> None:
    """The convolution of the images first to last - 1, row by row of the outputs.

    As many images are taken at once as fill a row of BLOCK_N numbers.

    Args:
        x: (n, groups, c, h, w).
        w: (groups, o, c kh kw), both rounded up to multiples of TILE with zeros.
        b: (groups, o).
        out: (n, groups, o, oh, ow); overwritten for these images.
    """
    oh, ow = out.shape[3:]
    width, many = min(ow, BLOCK_N), max(1, BLOCK_N // ow)
    c_rows = _aligned(TILE * BLOCK_N, x)
    for n in range(first, last, many):
        end = min(n + many, last)
        for group in range(w.shape[0]):
            flat, layout, row = _laid_out(x[n:end, group], padding, stride)
            starts = window_starts(layout, kernel_size, dilation)
            for y in range(oh):
                for left in range(0, ow, width):
                    _output_row(
                        w[group], b[group], flat[y * row + left * (end - n) :], starts, c_rows,
                        out[n:end, group, :, y, left : left + width],
                    )  # fmt: skip


@kernel
def _backward_weight(
    first: int,
    last: int,
    x: Array,
    g: Array,
    total: Array,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> None:
    """Its gradient for w: g times the transposed columns, summed over images and rows of outputs.

    Args:
        x: (n, groups, c, h, w).
        g: (n, groups, o, oh, ow).
        total: (groups, o, c kh kw); overwritten by the sum over the images first to last - 1.
    """
    o, oh, ow = g.shape[2:]
    many = max(1, BLOCK_N // ow)
    part = np.empty(total.shape[1:], x.dtype)
    total[:, :, :] = 0
    for n in range(first, last, many):
        end = min(n + many, last)
        g_rows = np.empty((o, ow * (end - n)), x.dtype)
        for group in range(total.shape[0]):
            flat, layout, row = _laid_out(x[n:end, group], padding, stride)
            starts = window_starts(layout, kernel_size, dilation)[: total.shape[2]]
            for y in range(oh):
                for i in range(o):
                    _transpose(g[n:end, group, i, y], g_rows[i].reshape(ow, end - n))
                dot_products(g_rows, flat[y * row :], starts, part)
                total[group] += part


@kernel(parallel=True)
def _forward_parallel(
    threads: int,
    first: int,
    last: int,
    x: Array,
    w: Array,
    b: Array,
    out: Array,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> None:
    for t in prange(threads):
        _forward(
            last * t // threads, last * (t + 1) // threads, x, w, b, out,
            kernel_size, stride, padding, dilation,
        )  # fmt: skip


def output_size(size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    """How many positions a window takes along each of the two dimensions."""
    rows, columns = (
        window_positions(size[i], kernel[i], stride[i], padding[i], dilation[i]) for i in range(2)
    )
    return rows, columns


def conv2d(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
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
    og, depth = o // groups, cg * kh * kw
    weights = np.zeros((groups, -(-og // TILE) * TILE, -(-depth // TILE) * TILE), w.dtype)
    weights[:, :og, :depth] = w.reshape(groups, og, depth)
    bias = np.zeros(o, x.dtype) if b is None else np.ascontiguousarray(b)
    out = empty((n, groups, og, *size), x.dtype)
    run_parallel(
        _forward_parallel, _forward, threads_for(out.size * depth), 0, n,
        np.ascontiguousarray(x).reshape(n, groups, cg, height, width),
        weights, bias.reshape(groups, og), out, (kh, kw), stride, padding, dilation,
    )  # fmt: skip
    return out.reshape(n, o, *size)


def turned(w: Array, groups: int) -> Array:
    """Weights (o, c, kh, kw) turned by half a turn, and with outputs and inputs exchanged.

    Returns:
        (groups c, o / groups, kh, kw): the weights of the convolution that is the gradient.
    """
    o, c, kh, kw = w.shape
    each = w.reshape(groups, o // groups, c, kh, kw)[:, :, :, ::-1, ::-1]
    return each.transpose(0, 2, 1, 3, 4).reshape(groups * c, o // groups, kh, kw)


def conv2d_input(
    g: Array,
    w: Array,
    *,
    input_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """Gradient of `conv2d` for its input: g (n, o, oh, ow) -> (n, c, *input_size).

    At stride 1 pixel p takes part, with weight k, in output p - k: its gradient is a convolution of
    g with the turned weights. Larger strides keep some outputs of stride 1 and drop others: the
    gradient of those is 0, and costs as much arithmetic.
    """
    reach = [dilation[i] * (w.shape[i + 2] - 1) for i in range(2)]
    if stride != (1, 1):
        size = [input_size[i] + 2 * padding[i] - reach[i] for i in range(2)]
        every = np.zeros((*g.shape[:2], *size), g.dtype)
        every[:, :, :: stride[0], :: stride[1]] = g
        g = every
    # where the padding is wider than the window, the outermost outputs see no pixel
    top, left = (max(0, padding[i] - reach[i]) for i in range(2))
    inner = g[:, :, top : g.shape[2] - top, left : g.shape[3] - left]
    border = (max(0, reach[0] - padding[0]), max(0, reach[1] - padding[1]))
    return conv2d(
        inner, turned(w, groups), stride=(1, 1), padding=border, dilation=dilation, groups=groups
    )


def conv2d_weight(
    x: Array,
    g: Array,
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """Gradient of `conv2d` for its weight: (o, c / groups, kh, kw).

    On one thread: the images all add to the same weights.
    """
    (n, c, height, width), (_, o, oh, ow) = x.shape, g.shape
    cg, (kh, kw) = c // groups, kernel_size
    total = np.empty((groups, o // groups, cg * kh * kw), x.dtype)
    _backward_weight(
        0, n,
        np.ascontiguousarray(x).reshape(n, groups, cg, height, width),
        np.ascontiguousarray(g).reshape(n, groups, o // groups, oh, ow),
        total, kernel_size, stride, padding, dilation,
    )  # fmt: skip
    return total.reshape(o, cg, kh, kw)
