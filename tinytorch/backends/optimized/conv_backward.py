"""Convolution, backward: the gradients with respect to the input and to the weights.

To the input: a convolution of the padded output gradient with the weights, channels exchanged. With
stride s every s-th row and column of the result sees its own subset of taps (a *phase*); the loops
of `conv` walk through them one after the other and write each into its place.

To the weights: for each tap a matrix product over the positions of all images,

    dw[tap][c, o] = sum over positions of x[c, position + tap] * g[position, o]

which is the GEMM tile again, with a table of positions for the columns of A; the output gradient is
transposed once for all taps. With few channels the tile would be nearly empty; then each element
of dw is a dot product of the gradient with a shifted image (`dot_kernel`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized import threads
from tinytorch.backends.optimized.buffers import empty, workspace
from tinytorch.backends.optimized.conv import cheapest, is_product, loops, sum_over_taps, zeroed
from tinytorch.backends.optimized.conv_loops import pad_image
from tinytorch.backends.optimized.conv_plan import (
    Correlation,
    Padded,
    Pair,
    Positions,
    Table,
    Walk,
    backward_positions,
    backward_taps,
    batch,
    correlation,
    forward_taps,
    padded,
)
from tinytorch.backends.optimized.cpu import host_vector_unit
from tinytorch.backends.optimized.dot_kernel import dot_tile_f32, dot_tile_f64
from tinytorch.backends.optimized.entries import SIZE, Entries, array_type
from tinytorch.backends.optimized.gemm import (
    DOT_COLUMNS,
    DOT_ROWS,
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
    balanced,
    panel_columns,
)
from tinytorch.backends.optimized.gemm_kernel import indirect_tile_f32, indirect_tile_f64
from tinytorch.backends.optimized.library import kernel
from tinytorch.backends.optimized.llvm import address
from tinytorch.backends.optimized.packing import pack_f32, pack_f64
from tinytorch.dtypes import Array

DOT_BYTES = 256 * 1024  # of padded images that dot products run through before they start again


# -- to the input ---------------------------------------------------------------------------------


class _InputPlan(NamedTuple):
    """What `conv2d_input` must know of a shape; made once."""

    walk: Walk
    order: Table | None  # for positions: the rows of the weights in the order of the taps
    in_place: bool


@lru_cache(maxsize=256)
def _input_plan(
    itemsize: int, n: int, out_channels: int, channels: int, image: Pair, output: Pair, size: Pair,
    stride: Pair, padding: Pair, dilation: Pair, groups: int,
) -> _InputPlan:  # fmt: skip
    """Lay out the gradient with respect to the input; channels are of one group."""
    lanes = host_vector_unit().register_bytes // itemsize
    if stride == (1, 1):
        taps = (
            backward_taps(k, 1, p, d, 0) for k, p, d in zip(size, padding, dilation, strict=True)
        )
        vectors = correlation(itemsize, out_channels, output, image, stride, *taps)
        if is_product(lanes, image, size, stride, padding):
            return _InputPlan(vectors, None, True)
        together = None
        if groups == 1 and dilation == (1, 1):
            border = (size[0] - 1 - padding[0], size[1] - 1 - padding[1])
            together = batch(
                itemsize, n, out_channels, output, channels, image, size, stride, border
            )
        walk = cheapest(lanes, channels, image[0] * image[1], vectors, together)
        if walk is not None:
            return _InputPlan(walk, None, False)
    positions, order = backward_positions(
        itemsize, out_channels, output, size, stride, padding, dilation, image
    )
    return _InputPlan(positions, order, False)


def conv2d_input(
    g: Array, w: Array, *,
    input_size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int,
) -> Array:  # fmt: skip
    """The gradient of `conv2d` with respect to its input.

    Args:
        g: (N, O, OH, OW), the gradient with respect to the output.
        w: (O, C / groups, kh, kw).
        input_size: (H, W).
        stride, padding, dilation, groups: as for `conv2d`.

    Returns:
        (N, C, H, W).
    """
    out_channels, output = g.shape[1], g.shape[2:]
    own, size = w.shape[1], (w.shape[2], w.shape[3])
    dx = empty((g.shape[0], own * groups, *input_size), g.dtype)
    if g.size == 0 or dx.size == 0:
        dx.fill(0)
        return dx
    plan = _input_plan(
        g.itemsize, g.shape[0], out_channels // groups, own, input_size, output, size,
        stride, padding, dilation, groups,
    )  # fmt: skip
    # (group, output channel, channel, tap): the sums run over output channels and taps
    by_group = w.reshape(groups, -1, own, size[0] * size[1])
    of_dtype = loops(plan.walk.kernels, g.itemsize)
    if isinstance(plan.walk, Correlation):
        weights = np.ascontiguousarray(by_group.transpose(0, 2, 1, 3)).reshape(groups * own, -1)
    elif isinstance(plan.walk, Positions):
        weights = workspace((groups, by_group[0].size), w.dtype)
        of_dtype.pack_transposed(np.ascontiguousarray(by_group), plan.order, weights)
    else:
        weights = workspace((own, by_group[0, :, 0].size), w.dtype)
        of_dtype.arrange(by_group[0].transpose(1, 0, 2)[:, :, ::-1], weights)
    in_place = plan.in_place and g.flags.c_contiguous
    sum_over_taps(plan.walk, g, weights, np.empty(0, g.dtype), dx, groups, in_place)
    return dx


# -- to the weights -------------------------------------------------------------------------------


def _make_entries(
    dtype: Any, tile: Callable[..., None], dot: Callable[..., None], pack: Callable[..., None]
) -> Entries:
    @kernel
    def taps_of_panel(
        x: int, panel: int, table: Array, offsets: Array, plane: int, channels: int, columns: int,
        acc: Array, step: int, start: int,
    ) -> None:  # fmt: skip
        """acc[tap][c, columns] += the products of all taps, for one image and panel of g."""
        itemsize = step // (acc.shape[1] * acc.shape[2])
        ldb, ldc = columns * itemsize, acc.shape[2] * itemsize
        rows = balanced(channels, TILE_ROWS[(ldb + REGISTER_BYTES - 1) // REGISTER_BYTES])
        for c in range(0, channels, rows):
            for t in range(offsets.size):
                target = start + t * step + c * ldc
                tile(
                    min(rows, channels - c), columns, table.size, x + c * plane + offsets[t], plane,
                    address(table), panel, ldb, target, ldc, target, ldc, 0,
                )  # fmt: skip

    @kernel
    def pack_positions(g: Array, n: int, first: int, columns: int, panel: int) -> None:
        """Channels first .. first+columns-1 of an image, to (positions, columns)."""
        height, width, ld = g.shape[2], g.shape[3], columns * g.itemsize
        if g.strides[2] == width * g.strides[3]:  # the rows follow one another
            height, width = 1, height * width
        source = address(g) + n * g.strides[0] + first * g.strides[1]
        for i in range(height):
            pack(
                columns, width, source + i * g.strides[2], g.strides[1], g.strides[3],
                panel + i * width * ld, ld,
            )  # fmt: skip

    @kernel
    def products_of(
        x: Array, g: Array, acc: Array, table: Array, offsets: Array, geometry: Array,
        in_place: int, groups: int, begin: int, end: int, scratch: int,
    ) -> None:  # fmt: skip
        """Add the products of images begin .. end-1 to acc (taps, channels, output channels)."""
        origin, pitch, plane = geometry[0], geometry[1], geometry[2]
        itemsize = g.itemsize
        channels, out_channels = x.shape[1] // groups, g.shape[1] // groups
        panel = scratch + (x.shape[1] * plane + 64) // 64 * 64
        step = acc.shape[1] * acc.shape[2] * itemsize
        for n in range(begin, end):
            source = scratch
            if in_place:
                source = address(x) + n * x.strides[0]
            else:
                pad_image(pack, x[n], 1, 1, origin, pitch, plane, scratch)
            for group in range(groups):
                o = 0
                while o < out_channels:
                    columns = panel_columns(out_channels - o, REGISTER_BYTES // itemsize)
                    at = group * out_channels + o
                    pack_positions(g, n, at, columns, panel)
                    taps_of_panel(
                        source + group * channels * plane, panel, table, offsets, plane,
                        channels, columns, acc, step, address(acc) + at * itemsize,
                    )  # fmt: skip
                    o += columns

    @kernel
    def products(
        x: Array, g: Array, acc: Array, table: Array, offsets: Array, geometry: Array,
        in_place: int, groups: int, buffer: Array,
    ) -> None:  # fmt: skip
        products_of(
            x, g, acc[0], table, offsets, geometry, in_place, groups, 0, x.shape[0],
            address(buffer),
        )  # fmt: skip

    @kernel(parallel=True)
    def products_parallel(
        count: int, x: Array, g: Array, acc: Array, table: Array, offsets: Array, geometry: Array,
        in_place: int, groups: int, buffer: Array,
    ) -> None:  # fmt: skip
        share = (x.shape[0] + count - 1) // count
        for t in prange(count):
            products_of(
                x, g, acc[t], table, offsets, geometry, in_place, groups, t * share,
                min((t + 1) * share, x.shape[0]), address(buffer) + t * buffer.shape[1],
            )  # fmt: skip

    @kernel
    def dots(
        x: Array, g: Array, dw: Array, table: Array, geometry: Array, groups: int, length: int,
        together: int, buffer: Array,
    ) -> None:  # fmt: skip
        """dw (output channels, taps) as dot products over `together` images at a time."""
        origin, pitch, plane = geometry[0], geometry[1], geometry[2]
        phases_h, phases_w = geometry[3], geometry[4]
        itemsize, taps = g.itemsize, table.size
        channels, out_channels = x.shape[1] // groups, g.shape[1] // groups
        plane_g = (g.shape[2] * pitch + 63) // 64 * 64
        own = channels * phases_h * phases_w * plane
        next_x, next_g = groups * own, g.shape[1] * plane_g
        images_x = address(buffer)
        images_g = images_x + (together * next_x + 128) // 64 * 64
        columns, rows = balanced(taps, DOT_COLUMNS), balanced(out_channels, DOT_ROWS)
        for n in range(0, x.shape[0], together):
            count = min(together, x.shape[0] - n)
            for i in range(count):
                at = images_x + i * next_x
                pad_image(pack, x[n + i], phases_h, phases_w, origin, pitch, plane, at)
                pad_image(pack, g[n + i], 1, 1, 0, pitch, plane_g, images_g + i * next_g)
            for group in range(groups):
                for t in range(0, taps, columns):
                    for o in range(0, out_channels, rows):
                        at = group * out_channels + o
                        target = address(dw) + (at * taps + t) * itemsize
                        dot(
                            min(rows, out_channels - o), min(columns, taps - t), length, count,
                            images_g + at * plane_g, plane_g, next_g, images_x + group * own, 0,
                            address(table) + t * 8, next_x, target if n else 0, taps * itemsize,
                            target, taps * itemsize, 0,
                        )  # fmt: skip

    @kernel
    def arrange(acc: Array, dw: Array) -> None:
        """(taps, channels, output channels) to (output channels, channels, taps)."""
        taps, channels, out_channels = acc.shape
        for c in range(channels):
            pack(
                taps, out_channels, address(acc) + c * acc.strides[1], acc.strides[0],
                acc.strides[2], address(dw) + c * dw.strides[1], dw.strides[0],
            )  # fmt: skip

    array = {ndim: array_type(dtype, ndim) for ndim in (2, 3, 4)}
    table, buffer = array_type(types.int64, 1), array_type(types.uint8, 2)
    arguments = (array[4], array[4], array[4], table, table, table, SIZE, SIZE, buffer)
    return Entries(
        products=(products, *arguments),
        products_parallel=(products_parallel, SIZE, *arguments),
        dots=(dots, array[4], array[4], array[2], table, table, SIZE, SIZE, SIZE, buffer),
        arrange=(arrange, array[3], array[3]),
    )


@cache
def _entries(itemsize: int) -> Entries:
    if itemsize == 4:
        return _make_entries(types.float32, indirect_tile_f32, dot_tile_f32, pack_f32)
    return _make_entries(types.float64, indirect_tile_f64, dot_tile_f64, pack_f64)


class _WeightPlan(NamedTuple):
    layout: Padded
    positions: Table  # byte offset of each output position, in the padded image
    taps: Table  # byte offset of each tap
    correlation: Correlation | None  # for dot products


@lru_cache(maxsize=256)
def _weight_plan(
    itemsize: int, channels: int, out_channels: int, image: Pair, output: Pair, size: Pair,
    stride: Pair, padding: Pair, dilation: Pair,
) -> _WeightPlan:  # fmt: skip
    """Lay out the gradient with respect to the weights, for one group."""
    layout = padded(itemsize, image, padding, padding)

    def offsets(count: Pair, step: Pair) -> Table:
        rows = np.arange(count[0])[:, None] * (step[0] * layout.pitch)
        return (rows + np.arange(count[1]) * (step[1] * itemsize)).reshape(-1)

    lanes = host_vector_unit().register_bytes // itemsize
    vectors = -(-out_channels // lanes)
    # how full the tile's registers, and its pipeline of eight multiply-adds, are
    tile = out_channels / (vectors * lanes) * min(1.0, channels * min(vectors, TILE_VECTORS) / 8)
    dots = correlation(
        itemsize, channels, image, output, stride,
        *(forward_taps(*a) for a in zip(size, stride, padding, dilation, strict=True)),
    )  # fmt: skip
    use_dots = tile < 0.8 * output[0] * output[1] / dots.length
    return _WeightPlan(
        layout, offsets(output, stride), offsets(size, dilation), dots if use_dots else None
    )


def conv2d_weight(
    x: Array, g: Array, *,
    kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int,
) -> Array:  # fmt: skip
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
    plan = _weight_plan(
        x.itemsize, own, out_channels // groups, x.shape[2:], g.shape[2:], kernel_size,
        stride, padding, dilation,
    )  # fmt: skip
    if plan.correlation is not None:
        _dots(x, g, dw, plan.correlation, groups)
        if np.isfinite(dw).all():
            return dw
        # Dot products run through the gaps between rows too, where g is zero, but not zero times
        # infinity or NaN. The other way does not.
    _products(x, g, dw.reshape(out_channels, own, -1), plan, groups)
    return dw


def _dots(x: Array, g: Array, dw: Array, plan: Correlation, groups: int) -> None:
    room_x = x.shape[1] * plan.channel
    room_g = g.shape[1] * (g.shape[2] * plan.layout.pitch + 63)
    together = max(1, min(x.shape[0], DOT_BYTES // (room_x + room_g)))
    _entries(x.itemsize).dots(
        x, g, dw.reshape(g.shape[1], -1), plan.table, plan.geometry, groups, plan.length, together,
        zeroed(1, together * (room_x + room_g) + 256),
    )  # fmt: skip


def _products(x: Array, g: Array, dw: Array, plan: _WeightPlan, groups: int) -> None:
    count = min(threads.threads_for(g.size * dw[0].size), x.shape[0])
    taps, positions = plan.taps.size, plan.positions.size
    acc = workspace((count, taps, dw.shape[1], dw.shape[0]), x.dtype)
    acc.fill(0)
    in_place = plan.layout.plane == x.strides[1] and x.flags.c_contiguous  # no padding
    room = x.shape[1] * plan.layout.plane + 128 + positions * TILE_VECTORS * REGISTER_BYTES
    of_dtype = _entries(x.itemsize)
    of_dtype.run(
        "products", count, x, g, acc, plan.positions, plan.taps, np.array(plan.layout), in_place,
        groups, zeroed(count, room),
    )  # fmt: skip
    of_dtype.arrange(acc[0] if count == 1 else acc.sum(axis=0), dw)
