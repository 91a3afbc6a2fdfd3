"""The gradient of a convolution with respect to its weights.

For each tap it is a matrix product over the positions of all images,

    dw[o][tap, c] = sum over positions of g[o, position] * x[position + tap, c]

With the channels of the image last, the taps of a row of the kernel and their channels are
adjacent: one matrix, whose rows are the positions. `chain_kernel` adds up the products of all rows
of positions; the output gradient is read as it is. Where channels are too few to fill vectors, each
element of dw is a dot product of the gradient with a shifted image (`dot_kernel`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized.conv.chain_kernel import (
    chain_tile_f32,
    chain_tile_f64,
    make_in_blocks,
)
from tinytorch.backends.optimized.conv.conv2d import zeroed
from tinytorch.backends.optimized.conv.geometry import CORRELATION, PRODUCTS, ProductsGeometry
from tinytorch.backends.optimized.conv.loops import make_channels_last, make_pad_image
from tinytorch.backends.optimized.conv.plan import (
    SLACK,
    Correlation,
    Images,
    Pair,
    Shape,
    Table,
    Windows,
    correlation,
    forward_taps,
    padded,
)
from tinytorch.backends.optimized.gemm.blocking import DOT_ROW_BYTES, L2_BYTES, LINE_BYTES, balanced
from tinytorch.backends.optimized.gemm.dot_kernel import dot_tile_f32, dot_tile_f64
from tinytorch.backends.optimized.gemm.packing import pack_f32, pack_f64
from tinytorch.backends.optimized.gemm.panels import (
    DOT_COLUMNS,
    DOT_ROWS,
    PANEL_VECTORS,
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
)
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.buffers import empty, workspace
from tinytorch.jit.entries import Entries, array_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import SIZE, Matrix, Rows, Stack

DOT_BYTES = 256 * 1024  # of padded images that dot products run through before they start again


def _make_entries(
    dtype: Any, tile: Callable[..., None], dot: Callable[..., None], pack: Callable[..., None]
) -> Entries:
    pad_image, in_blocks = make_pad_image(pack), make_in_blocks(tile, dtype.bitwidth // 8)
    channels_last = make_channels_last(pack)

    @kernel
    def runs_of_image(
        itemsize: int,
        x: int,
        g: Rows,
        out_channels: int,
        runs: Array,
        geometry: Array,
        acc: Rows,
        ldr: int,
    ) -> None:
        """acc[o, run] += g[o] @ the elements of x under it, for the channels of a group."""
        step, next_row = geometry[PRODUCTS.step], geometry[PRODUCTS.next_row]
        positions, rows_of_g = geometry[PRODUCTS.positions], geometry[PRODUCTS.rows]
        next_g = geometry[PRODUCTS.next_gradient]
        width = ldr // REGISTER_BYTES
        # The elements of x that tiles of all output channels read stay in half of L2 meanwhile.
        room = L2_BYTES // 2 // min(step, TILE_VECTORS * REGISTER_BYTES + LINE_BYTES)
        depth = max(balanced(positions, room), 1)
        block = max(balanced(rows_of_g, max(room // depth, 1)) if depth == positions else 1, 1)
        for i in range(0, rows_of_g, block):
            for p in range(0, positions, depth):
                left, right = g.address + i * next_g + p * itemsize, x + i * next_row + p * step
                for t in range(runs.size):
                    v = 0
                    while v < width:
                        vectors = PANEL_VECTORS[min(width - v, len(PANEL_VECTORS) - 1)]
                        rows, skip = balanced(out_channels, TILE_ROWS[vectors]), v * REGISTER_BYTES
                        for o in range(0, out_channels, rows):
                            to = Rows(acc.address + o * acc.stride + t * ldr + skip, acc.stride)
                            in_blocks(
                                min(rows, out_channels - o),
                                vectors * REGISTER_BYTES // itemsize,
                                min(block, rows_of_g - i),
                                min(depth, positions - p),
                                Stack(left + o * g.stride, g.stride, next_g),
                                Stack(right + runs[t] + skip, step, next_row),
                                to,
                                to,
                            )
                        v += vectors

    @kernel
    def products_of(
        x: Array,
        g: Array,
        acc: Array,
        runs: Array,
        geometry: Array,
        groups: int,
        begin: int,
        end: int,
        scratch: int,
    ) -> None:
        """Add the products of images begin .. end-1 to acc (output channels, runs, vectors)."""
        own, out_channels = geometry[PRODUCTS.group], g.shape[1] // groups
        for n in range(begin, end):
            channels_last(x[n], geometry[PRODUCTS.origin], geometry[PRODUCTS.pitch], scratch)
            for group in range(groups):
                o = group * out_channels
                image = scratch + group * own
                upper = Rows(address(g) + n * g.strides[0] + o * g.strides[1], g.strides[1])
                to = Rows(address(acc) + o * acc.strides[0], acc.strides[0])
                ldr = acc.strides[1]
                runs_of_image(g.itemsize, image, upper, out_channels, runs, geometry, to, ldr)

    @kernel
    def products(
        x: Array, g: Array, acc: Array, runs: Array, geometry: Array, groups: int, buffer: Array
    ) -> None:
        products_of(x, g, acc[0], runs, geometry, groups, 0, x.shape[0], address(buffer))

    @kernel(parallel=True)
    def products_parallel(
        count: int,
        x: Array,
        g: Array,
        acc: Array,
        runs: Array,
        geometry: Array,
        groups: int,
        buffer: Array,
    ) -> None:
        share = (x.shape[0] + count - 1) // count
        for t in prange(count):
            end, own = min((t + 1) * share, x.shape[0]), address(buffer) + t * buffer.shape[1]
            products_of(x, g, acc[t], runs, geometry, groups, t * share, end, own)

    @kernel
    def dots(
        x: Array,
        g: Array,
        dw: Array,
        table: Array,
        geometry: Array,
        groups: int,
        length: int,
        together: int,
        buffer: Array,
    ) -> None:
        """dw (output channels, taps) as dot products over `together` images at a time."""
        origin, pitch = geometry[CORRELATION.origin], geometry[CORRELATION.pitch]
        plane = geometry[CORRELATION.plane]
        phases_h = geometry[CORRELATION.phases_height]
        phases_w = geometry[CORRELATION.phases_width]
        itemsize, taps = g.itemsize, table.size
        channels, out_channels = x.shape[1] // groups, g.shape[1] // groups
        plane_g = (g.shape[2] * pitch + 63) // 64 * 64
        own = channels * phases_h * phases_w * plane
        next_x, next_g = groups * own, g.shape[1] * plane_g
        images_x = address(buffer)
        images_g = images_x + (together * next_x + 128) // 64 * 64
        columns, rows = balanced(taps, DOT_COLUMNS), balanced(out_channels, DOT_ROWS)
        depth = max(balanced(length, DOT_ROW_BYTES // itemsize), 1)
        for n in range(0, x.shape[0], together):
            count = min(together, x.shape[0] - n)
            for i in range(count):
                at = images_x + i * next_x
                pad_image(x[n + i], phases_h, phases_w, origin, pitch, plane, at)
                pad_image(g[n + i], 1, 1, 0, pitch, plane_g, images_g + i * next_g)
            for group in range(groups):
                for t in range(0, taps, columns):
                    for o in range(0, out_channels, rows):
                        at = group * out_channels + o
                        to = Rows(address(dw) + (at * taps + t) * itemsize, taps * itemsize)
                        for p in range(0, length, depth):
                            skip = p * itemsize
                            dot(
                                min(rows, out_channels - o),
                                min(columns, taps - t),
                                min(depth, length - p),
                                count,
                                Stack(images_g + at * plane_g + skip, plane_g, next_g),
                                Stack(images_x + group * own + skip, 0, next_x),
                                address(table) + t * 8,
                                Rows(to.address if n or p else 0, to.stride),
                                to,
                                0,
                            )

    @kernel
    def arrange(acc: Array, dw: Array) -> None:
        """Sums (output channels, runs, vectors) to (output channels, channels, kh, kw)."""
        out_channels, channels, rows, columns = dw.shape
        itemsize, row = dw.itemsize, acc.strides[1]
        if acc.shape[1] == rows:  # a run is a row of the kernel
            across, down = channels * itemsize, row
        else:
            across, down = row, columns * row
        for o in range(out_channels):
            for i in range(rows):
                source = address(acc) + o * acc.strides[0] + i * down
                target = Rows(address(dw) + o * dw.strides[0] + i * dw.strides[2], dw.strides[1])
                pack(columns, channels, Matrix(source, across, itemsize), target)

    array = {ndim: array_type(dtype, ndim) for ndim in (2, 3, 4)}
    table, buffer = array_type(types.int64, 1), array_type(types.uint8, 2)
    arguments = (array[4], array[4], array[4], table, table, SIZE, buffer)
    return Entries(
        products=(products, *arguments),
        products_parallel=(products_parallel, SIZE, *arguments),
        dots=(dots, array[4], array[4], array[2], table, table, SIZE, SIZE, SIZE, buffer),
        arrange=(arrange, array[3], array[4]),
    )


@cache
def entries(itemsize: int) -> Entries:
    if itemsize == 4:
        return _make_entries(types.float32, chain_tile_f32, dot_tile_f32, pack_f32)
    return _make_entries(types.float64, chain_tile_f64, dot_tile_f64, pack_f64)


class _WeightPlan(NamedTuple):
    """What `conv2d_weight` must know of a shape; made once.

    Args:
        geometry: a `ProductsGeometry` as an array.
        runs: byte offset of each run of elements: a tap's channels or, where these are adjacent, a
            row of taps with theirs.
        vectors: elements of a run, rounded up to whole vectors.
        image: bytes of the image.
        correlation: for dot products; None if they cost more.
    """

    geometry: Table
    runs: Table
    vectors: int
    image: int
    correlation: Correlation | None


@lru_cache(maxsize=256)
def plan_conv2d_weight(
    itemsize: int, x: Shape, w: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> _WeightPlan:
    """Lay out the gradient with respect to weights of the shape w, with inputs of the shape x."""
    windows = Windows((w[2], w[3]), stride, padding, dilation, groups)
    channels, images = w[1], Images(w[1], (x[2], x[3]))
    output = windows.output(images.size)
    element = groups * channels * itemsize
    layout = padded(element, images.size, padding, padding)
    rows, columns = (np.arange(k) * d for k, d in zip(windows.size, dilation, strict=True))
    length = channels
    if groups == dilation[1] == 1:
        columns, length = columns[:1], channels * w[3]
    runs = (rows[:, None] * layout.pitch + columns * element).reshape(-1)
    lanes = REGISTER_BYTES // itemsize
    vectors = -(-length // lanes) * lanes
    height, width = output
    if stride[0] * layout.pitch == width * stride[1] * element:  # rows of positions are adjacent
        height, width = 1, height * width
    geometry = ProductsGeometry(
        origin=layout.origin,
        pitch=layout.pitch,
        group=channels * itemsize,
        step=stride[1] * element,
        next_row=stride[0] * layout.pitch,
        positions=width,
        rows=height,
        next_gradient=width * itemsize,
    )
    down, across = (forward_taps(*axis) for axis in windows.axes)
    dots = correlation(itemsize, images, output, stride, down, across)
    # how full the lanes are; dot products run through the gaps between rows
    use_dots = length / vectors < 0.8 * output[0] * output[1] / dots.length
    return _WeightPlan(
        np.array(geometry), runs, vectors, layout.plane + SLACK, dots if use_dots else None
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
    """The gradient of `conv2d` with respect to its weights.

    Args:
        x: (N, C, H, W), the input.
        g: (N, O, OH, OW), the gradient with respect to the output.
        kernel_size: (kh, kw).
        stride, padding, dilation, groups: as for `conv2d`.

    Returns:
        (O, C / groups, kh, kw).
    """
    out_channels, own = g.shape[1], x.shape[1] // groups
    dw = empty((out_channels, own, *kernel_size), x.dtype)
    if g.size == 0 or dw.size == 0:
        dw.fill(0)
        return dw
    plan = plan_conv2d_weight(x.itemsize, x.shape, dw.shape, stride, padding, dilation, groups)
    g = np.ascontiguousarray(g)
    if plan.correlation is not None:
        _dots(x, g, dw, plan.correlation, groups)
        if np.isfinite(dw).all():
            return dw
        # Dot products run through the gaps between rows too, where g is zero, but not zero times
        # infinity or NaN. The other way does not.
    _products(x, g, dw, plan, groups)
    return dw


def dots_together(plan: Correlation, x: tuple[int, ...], g: tuple[int, ...]) -> tuple[int, int]:
    """How many images dot products take at a time, and the bytes that these need padded.

    Args:
        x, g: shapes of the input and of the output's gradient.
    """
    room = x[1] * plan.channel + g[1] * (g[2] * plan.layout.pitch + 63)
    row_bytes = plan.length * np.dtype(np.float32).itemsize
    together = max(1, min(x[0], DOT_BYTES // room, DOT_ROW_BYTES // row_bytes))
    return together, together * room + 256


def _dots(x: Array, g: Array, dw: Array, plan: Correlation, groups: int) -> None:
    together, nbytes = dots_together(plan, x.shape, g.shape)
    entries(x.itemsize).dots(
        x, g, dw.reshape(g.shape[1], -1), plan.table, plan.geometry, groups, plan.length, together,
        zeroed(1, nbytes),
    )  # fmt: skip


def _products(x: Array, g: Array, dw: Array, plan: _WeightPlan, groups: int) -> None:
    count = min(threads.threads_for(g.size * dw[0].size), x.shape[0])
    acc = workspace((count, dw.shape[0], plan.runs.size, plan.vectors), x.dtype)
    acc.fill(0)
    of_dtype = entries(x.itemsize)
    of_dtype.run(
        "products", count, x, g, acc, plan.runs, plan.geometry, groups, zeroed(count, plan.image)
    )
    of_dtype.arrange(acc[0] if count == 1 else acc.sum(axis=0), dw)
