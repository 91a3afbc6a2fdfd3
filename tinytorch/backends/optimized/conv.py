"""Convolution, forward: the loops around the micro-kernels, and the entry point on arrays.

Image by image, the input is copied into a buffer with zero padding; the matrix of all patches
("im2col") is never built. One of two micro-kernels then does the sums:

    positions as rows      y[position, channel] = sum over taps of x[position + tap] w[tap, channel]
                           The GEMM tile with a table of taps for the columns of A. Vectors run over
                           output channels, so stride, dilation and narrow images cost nothing; the
                           result is transposed at the end.
    positions as vectors   y[channel, position] = the same. Vectors run over positions, for few
                           output channels or few taps; `conv_kernel` has the picture.

A 1x1 convolution *is* a matrix product.

Source: the table of taps in place of the im2col matrix is from Dukhan, The indirect convolution
algorithm, arXiv:1907.02129 (2019).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized import threads
from tinytorch.backends.optimized.buffers import empty, workspace
from tinytorch.backends.optimized.conv_kernel import conv_tile_f32, conv_tile_f64
from tinytorch.backends.optimized.conv_plan import (
    SLACK,
    Correlation,
    Pair,
    Positions,
    correlation,
    forward_positions,
    forward_taps,
)
from tinytorch.backends.optimized.cpu import host_vector_unit
from tinytorch.backends.optimized.entries import SIZE, Entries, array_type
from tinytorch.backends.optimized.gemm import (
    PANEL_VECTORS,
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

# -- loops over one image -------------------------------------------------------------------------


@kernel
def pad_image(
    pack: Callable[..., None], x: Array, phases_h: int, phases_w: int, origin: int, pitch: int,
    plane: int, target: int,
) -> None:  # fmt: skip
    """Copy an image (channels, height, width) into a zeroed buffer, phase by phase."""
    channels, height, width = x.shape
    for c in range(channels):
        for i in range(phases_h):
            for j in range(phases_w):
                rows = (height - i + phases_h - 1) // phases_h
                columns = (width - j + phases_w - 1) // phases_w
                source = address(x) + c * x.strides[0] + i * x.strides[1] + j * x.strides[2]
                at = ((c * phases_h + i) * phases_w + j) * plane + origin
                pack(
                    columns, rows, source, phases_w * x.strides[2], phases_h * x.strides[1],
                    target + at, pitch,
                )  # fmt: skip


@kernel
def by_vectors(
    tile: Callable[..., None], itemsize: int, channels: int, taps: int, w: int, x: int, table: int,
    places: int, entry: int, parts: int, first: int, last: int, y: int, ldy: int, bias: int,
) -> None:  # fmt: skip
    """Vectors first .. last-1 of the positions, for all output channels."""
    v = first
    while v < last:
        vectors = PANEL_VECTORS[min(last - v, TILE_VECTORS)]
        rows = balanced(channels, TILE_ROWS[vectors])
        for o in range(0, channels, rows):
            tile(
                min(rows, channels - o), vectors * REGISTER_BYTES // itemsize, taps,
                w + o * taps * itemsize, taps * itemsize, x, table, places + v * entry, parts,
                y + o * ldy, ldy, bias + o * itemsize if bias else 0, 0,
            )  # fmt: skip
        v += vectors


# -- loops over images ----------------------------------------------------------------------------
#
# An item of work is one of `pieces` parts of an image; there are several where there are fewer
# images than threads. `scratch` is this thread's: the padded image, then the results of a panel.


def _make_positions(dtype: Any, tile: Callable[..., None], pack: Callable[..., None]) -> Entries:
    @kernel
    def panel_of_image(
        itemsize: int, x: int, w: int, bias: int, table: Array, phases: Array, geometry: Array,
        y: int, first: int, last: int, width: int, columns: int,
    ) -> None:  # fmt: skip
        """Output rows first .. last-1 of `columns` channels: y[position, channel]."""
        pitch, read_h, read_w = geometry[1], geometry[3], geometry[4] * itemsize
        write_h, write_w = geometry[5], geometry[6]
        ldw = columns * itemsize
        for f in range(phases.shape[0]):
            start, taps, i0, j0 = phases[f, 0], phases[f, 1], phases[f, 2], phases[f, 3]
            positions = (width - j0 + write_w - 1) // write_w
            rows = balanced(positions, TILE_ROWS[(ldw + REGISTER_BYTES - 1) // REGISTER_BYTES])
            for i in range(first // write_h, (last - i0 + write_h - 1) // write_h):
                target = y + ((i * write_h + i0) * width + j0) * ldw
                for j in range(0, positions, rows):
                    tile(
                        min(rows, positions - j), columns, taps,
                        x + i * read_h * pitch + j * read_w, read_w,
                        address(table) + start * 8, w + start * ldw, ldw, bias, 0,
                        target + j * write_w * ldw, write_w * ldw, 0,
                    )  # fmt: skip

    @kernel
    def items(
        x: Array, w: Array, bias: Array, y: Array, table: Array, phases: Array, geometry: Array,
        in_place: int, groups: int, pieces: int, begin: int, end: int, scratch: int,
    ) -> None:  # fmt: skip
        origin, pitch, plane, write_h = geometry[0], geometry[1], geometry[2], geometry[5]
        _, channels, height, width = y.shape
        channels, taps, itemsize = channels // groups, table.size, y.itemsize
        area = height * width * itemsize
        own = x.shape[1] // groups * plane
        result = scratch if in_place else scratch + (groups * own + 64) // 64 * 64
        share = ((height + pieces - 1) // pieces + write_h - 1) // write_h * write_h
        image, source = -1, scratch
        for item in range(begin, end):
            first = item % pieces * share
            last = min(first + share, height)
            if item // pieces != image:
                image = item // pieces
                if in_place:
                    source = address(x) + image * x.strides[0]
                else:
                    pad_image(pack, x[image], 1, 1, origin, pitch, plane, scratch)
            for g in range(groups):
                o = 0
                while o < channels:
                    columns = panel_columns(channels - o, REGISTER_BYTES // itemsize)
                    at, ldw, skip = g * channels + o, columns * itemsize, first * width
                    panel_of_image(
                        itemsize, source + g * own, address(w) + at * taps * itemsize,
                        address(bias) + at * itemsize if bias.size else 0, table, phases, geometry,
                        result, first, last, width, columns,
                    )  # fmt: skip
                    pack(
                        max(last - first, 0) * width, columns, result + skip * ldw, ldw, itemsize,
                        address(y) + (image * y.shape[1] + at) * area + skip * itemsize, area,
                    )  # fmt: skip
                    o += columns

    @kernel
    def pack_weights(w: Array, groups: int, packed: Array) -> None:
        """(groups * channels, taps) into panels of (taps, columns)."""
        channels, taps = w.shape[0] // groups, w.shape[1]
        for g in range(groups):
            o = 0
            while o < channels:
                columns = panel_columns(channels - o, REGISTER_BYTES // w.itemsize)
                at = g * channels + o
                pack(
                    columns, taps, address(w) + at * w.strides[0], w.strides[0], w.strides[1],
                    address(packed) + at * taps * w.itemsize, columns * w.itemsize,
                )  # fmt: skip
                o += columns

    @kernel
    def pack_transposed(w: Array, order: Array, packed: Array) -> None:
        """(groups, output channels, channels, taps) into panels of (order, columns)."""
        groups, out_channels, channels, taps = w.shape
        itemsize, depth = w.itemsize, out_channels * taps
        scratch = np.empty((depth, TILE_VECTORS * (REGISTER_BYTES // itemsize)), w.dtype)
        for g in range(groups):
            c = 0
            while c < channels:
                columns = panel_columns(channels - c, REGISTER_BYTES // itemsize)
                ld = columns * itemsize
                for o in range(out_channels):
                    source = address(w) + g * w.strides[0] + o * w.strides[1] + c * w.strides[2]
                    pack(
                        columns, taps, source, w.strides[2], w.strides[3],
                        address(scratch) + o * taps * ld, ld,
                    )  # fmt: skip
                panel = address(packed) + g * packed.strides[0] + c * depth * itemsize
                for k in range(order.size):
                    pack(
                        columns, 1, address(scratch) + order[k] * ld, itemsize, ld,
                        panel + k * ld, ld,
                    )  # fmt: skip
                c += columns
            scratch[:1, :1] = 0  # it must live until here

    matrix, weights, order = array_type(dtype, 2), array_type(dtype, 4), array_type(types.int64, 1)
    return Entries(
        **_over_items(dtype, items),
        pack_weights=(pack_weights, matrix, SIZE, matrix),
        pack_transposed=(pack_transposed, weights, order, matrix),
    )


def _make_vectors(dtype: Any, tile: Callable[..., None], pack: Callable[..., None]) -> Entries:
    @kernel
    def items(
        x: Array, w: Array, bias: Array, y: Array, table: Array, places: Array, geometry: Array,
        in_place: int, groups: int, pieces: int, begin: int, end: int, scratch: int,
    ) -> None:  # fmt: skip
        origin, pitch, plane = geometry[0], geometry[1], geometry[2]
        phases_h, phases_w = geometry[3], geometry[4]
        _, channels, height, width = y.shape
        channels, taps, itemsize = channels // groups, w.shape[1], y.itemsize
        area = height * width * itemsize
        own = x.shape[1] // groups * phases_h * phases_w * plane
        share = (places.shape[0] + pieces - 1) // pieces
        image, source = -1, scratch
        for item in range(begin, end):
            first = item % pieces * share
            if item // pieces != image:
                image = item // pieces
                if in_place:
                    source = address(x) + image * x.strides[0]
                else:
                    pad_image(pack, x[image], phases_h, phases_w, origin, pitch, plane, scratch)
            for g in range(groups):
                at = g * channels
                by_vectors(
                    tile, itemsize, channels, taps, address(w) + at * taps * itemsize,
                    source + g * own, address(table), address(places), places.shape[1] * 8,
                    places.shape[1] // 2, first, min(first + share, places.shape[0]),
                    address(y) + (image * y.shape[1] + at) * area, area,
                    address(bias) + at * itemsize if bias.size else 0,
                )  # fmt: skip

    return Entries(**_over_items(dtype, items))


def _over_items(dtype: Any, items: Callable[..., None]) -> dict[str, tuple[Any, ...]]:
    """A serial and a parallel kernel that do all items of work, with their argument types."""

    @kernel
    def serial(
        x: Array, w: Array, bias: Array, y: Array, table: Array, walk: Array, geometry: Array,
        in_place: int, groups: int, buffer: Array,
    ) -> None:  # fmt: skip
        items(
            x, w, bias, y, table, walk, geometry, in_place, groups, 1, 0, y.shape[0],
            address(buffer),
        )  # fmt: skip

    @kernel(parallel=True)
    def parallel(
        count: int, x: Array, w: Array, bias: Array, y: Array, table: Array, walk: Array,
        geometry: Array, in_place: int, groups: int, buffer: Array,
    ) -> None:  # fmt: skip
        pieces = 1 if y.shape[0] >= count else count
        share = (y.shape[0] * pieces + count - 1) // count
        for t in prange(count):
            items(
                x, w, bias, y, table, walk, geometry, in_place, groups, pieces, t * share,
                min((t + 1) * share, y.shape[0] * pieces), address(buffer) + t * buffer.shape[1],
            )  # fmt: skip

    images, matrix, vector = (array_type(dtype, ndim) for ndim in (4, 2, 1))
    table, walk = (array_type(types.int64, ndim) for ndim in (1, 2))
    buffer = array_type(types.uint8, 2)
    arguments = (images, matrix, vector, images, table, walk, table, SIZE, SIZE, buffer)
    return {"items": (serial, *arguments), "items_parallel": (parallel, SIZE, *arguments)}


@cache
def positions_kernels(itemsize: int) -> Entries:
    if itemsize == 4:
        return _make_positions(types.float32, indirect_tile_f32, pack_f32)
    return _make_positions(types.float64, indirect_tile_f64, pack_f64)


@cache
def vectors_kernels(itemsize: int) -> Entries:
    if itemsize == 4:
        return _make_vectors(types.float32, conv_tile_f32, pack_f32)
    return _make_vectors(types.float64, conv_tile_f64, pack_f64)


# -- on arrays ------------------------------------------------------------------------------------


def zeroed(count: int, nbytes: int) -> Array:
    """Zeroed scratch memory for `count` threads, in parts that begin on cache lines."""
    buffer = workspace((count, -(-(nbytes + SLACK) // 64) * 64), np.dtype(np.uint8))
    buffer.fill(0)
    return buffer


class _Plan(NamedTuple):
    """What `conv2d` must know of a shape; made once. One of the two layouts is used."""

    output: Pair
    positions: Positions | None
    vectors: Correlation
    in_place: bool  # no padding: read the image where it is, if it is contiguous


@lru_cache(maxsize=256)
def _plan(
    itemsize: int, channels: int, image: Pair, out_channels: int, size: Pair, stride: Pair,
    padding: Pair, dilation: Pair,
) -> _Plan:  # fmt: skip
    """Lay out the convolution of one group, and choose the micro-kernel."""
    axes = list(zip(size, stride, padding, dilation, strict=True))
    height, width = (
        (n + 2 * p - d * (k - 1) - 1) // s + 1 for n, (k, s, p, d) in zip(image, axes, strict=True)
    )
    lanes = host_vector_unit().register_bytes // itemsize
    vectors = correlation(
        itemsize, channels, image, (height, width), stride, *(forward_taps(*axis) for axis in axes)
    )
    in_place = is_product(lanes, image, size, stride, padding)
    if in_place or not prefer_positions(lanes, out_channels, height * width, vectors):
        return _Plan((height, width), None, vectors, in_place)
    positions = forward_positions(itemsize, channels, image, size, stride, padding, dilation)
    return _Plan((height, width), positions, vectors, padding == (0, 0))


def is_product(lanes: int, image: Pair, size: Pair, stride: Pair, padding: Pair) -> bool:
    """Whether a convolution is a matrix product of whole vectors: images serve as they are."""
    return size == stride == (1, 1) and padding == (0, 0) and image[0] * image[1] % lanes == 0


def prefer_positions(lanes: int, channels: int, area: int, plan: Correlation) -> bool:
    """Whether positions as rows are cheaper than as vectors, in FMAs of a full vector."""
    taps = plan.table.size
    needed = -(-channels // lanes)
    as_rows = taps * needed / channels * (1 + 0.12 / min(needed, TILE_VECTORS)) + 0.5
    as_vectors = plan.places.shape[0] / area * (taps * 1.05 + plan.places.shape[1] - 1)
    return as_rows < as_vectors


def conv2d(
    x: Array, w: Array, b: Array | None = None, *,
    stride: Pair, padding: Pair, dilation: Pair, groups: int,
) -> Array:  # fmt: skip
    """y[n, o] = b[o] + the sum over channels c of x[n, c] correlated with w[o, c].

    Args:
        x: (N, C, H, W), float32 or float64.
        w: (O, C / groups, kh, kw).
        b: (O,) or None.
        stride, padding, dilation: (vertical, horizontal).
        groups: output channels see only the input channels of their group.

    Returns:
        (N, O, OH, OW), OH = (H + 2 * padding - dilation * (kh - 1) - 1) // stride + 1.
    """
    out_channels, own = w.shape[:2]
    itemsize = x.itemsize
    plan = _plan(
        itemsize, own, x.shape[2:], out_channels // groups, w.shape[2:], stride, padding, dilation
    )
    y = empty((x.shape[0], out_channels, *plan.output), x.dtype)
    bias = np.empty(0, x.dtype) if b is None else np.ascontiguousarray(b)
    w = np.ascontiguousarray(w).reshape(out_channels, -1)
    in_place = plan.in_place and x.flags.c_contiguous
    if plan.positions is None:
        sum_by_vectors(x, w, bias, y, plan.vectors, groups, in_place)
    else:
        packed = workspace(w.shape, w.dtype)
        positions_kernels(itemsize).pack_weights(w, groups, packed)
        sum_by_positions(x, packed, bias, y, plan.positions, groups, in_place)
    return y


def sum_by_vectors(
    x: Array, w: Array, bias: Array, y: Array, plan: Correlation, groups: int, in_place: bool
) -> None:
    """y = bias + the sums of x over the taps, weighted by w (channels, taps)."""
    of_dtype = vectors_kernels(x.itemsize)
    count = threads.threads_for(y.size * plan.table.size)
    buffer = zeroed(count, 0 if in_place else x.shape[1] * plan.channel)
    of_dtype.run(
        "items", count, x, w, bias, y, plan.table, plan.places, plan.geometry, in_place, groups,
        buffer,
    )  # fmt: skip


def sum_by_positions(
    x: Array, w: Array, bias: Array, y: Array, plan: Positions, groups: int, in_place: bool
) -> None:
    """y = bias + the sums of x over the taps, weighted by w (packed by `pack_weights`)."""
    of_dtype = positions_kernels(x.itemsize)
    count = threads.threads_for(y.size * plan.table.size // len(plan.phases))
    room = 0 if in_place else x.shape[1] * plan.layout.plane
    room += 128 + y.shape[2] * y.shape[3] * TILE_VECTORS * REGISTER_BYTES
    of_dtype.run(
        "items", count, x, w, bias, y, plan.table, plan.phases, plan.geometry, in_place, groups,
        zeroed(count, room),
    )  # fmt: skip
