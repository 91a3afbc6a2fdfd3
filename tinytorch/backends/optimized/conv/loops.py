"""Convolution: the loops around the micro-kernels that take one image at a time.

Image by image, the input is copied into a buffer with zero padding; the matrix of all patches
("im2col") is never built. One of two micro-kernels then does the sums:

    positions as rows      y[position, channel] = sum over taps of x[position + tap] w[tap, channel]
                           The GEMM tile with a table of taps for the columns of A. Vectors run over
                           output channels, so stride, dilation and narrow images cost nothing; the
                           result is transposed at the end.
    positions as vectors   y[channel, position] = the same. Vectors run over positions, for few
                           output channels or few taps; `micro_kernel` has the picture.

Source: the table of taps in place of the im2col matrix is from Dukhan, The indirect convolution
algorithm, arXiv:1907.02129 (2019).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized.conv.geometry import (
    CORRELATION,
    PHASE,
    POSITIONS,
    STORE_PART,
    TOGETHER,
)
from tinytorch.backends.optimized.conv.phases import split_pairs
from tinytorch.backends.optimized.gemm.blocking import balanced
from tinytorch.backends.optimized.gemm.panels import (
    PANEL_VECTORS,
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
    panel_columns,
)
from tinytorch.dtypes import Array
from tinytorch.jit.entries import Entries, array_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import SIZE, Matrix, Rows, Stack


class Sums(NamedTuple):
    """What a convolution sums: y = bias + w * the taps of x, as a walk of `plan` says."""

    x: Array
    w: Array  # as the loops have it
    bias: Array  # one for each output channel, or none
    y: Array
    table: Array  # byte offsets of the taps
    walk: Array  # of phases or of stores
    geometry: Array
    in_place: int  # the image is read where it is
    groups: int


# -- loops over one image -------------------------------------------------------------------------


@cache
def make_pad_image(pack: Callable[..., None]) -> Callable[..., None]:
    """A kernel that lays out an image with its padding."""

    @kernel
    def pad_image(
        x: Array,
        phases_h: int,
        phases_w: int,
        origin: int,
        pitch: int,
        plane: int,
        target: int,
    ) -> None:
        """Copy an image (channels, height, width) into a zeroed buffer, phase by phase."""
        channels, height, width = x.shape
        for c in range(channels):
            for i in range(phases_h):
                rows = (height - i + phases_h - 1) // phases_h
                source, step = (
                    address(x) + c * x.strides[0] + i * x.strides[1],
                    phases_h * x.strides[1],
                )
                at = target + (c * phases_h + i) * phases_w * plane + origin
                if phases_w == 2 and x.strides[2] == x.itemsize:
                    phases = Stack(at, pitch, plane)
                    split_pairs(x.dtype.type, width, rows, Rows(source, step), phases)
                    continue
                for j in range(phases_w):
                    columns = (width - j + phases_w - 1) // phases_w
                    phase = Matrix(source + j * x.strides[2], phases_w * x.strides[2], step)
                    pack(columns, rows, phase, Rows(at + j * plane, pitch))

    return pad_image


# -- loops over images ----------------------------------------------------------------------------
#
# An item of work is one of `pieces` parts of an image (or of several together; the last element of
# the geometry says how many); there are several parts where there are fewer images than threads.
# `scratch` is this thread's: the padded image, then the results of a panel.


def make_positions(dtype: Any, tile: Callable[..., None], pack: Callable[..., None]) -> Entries:
    pad_image = make_pad_image(pack)

    @kernel
    def panel_of_image(
        s: Sums, x: int, w: int, bias: int, y: int, first: int, last: int, columns: int
    ) -> None:
        """Output rows first .. last-1 of `columns` channels: y[position, channel]."""
        phases, geometry, width, itemsize = s.walk, s.geometry, s.y.shape[3], s.y.itemsize
        pitch, read_h = geometry[POSITIONS.pitch], geometry[POSITIONS.read_rows]
        read_w = geometry[POSITIONS.read_columns] * itemsize
        write_h, write_w = geometry[POSITIONS.write_rows], geometry[POSITIONS.write_columns]
        ldw = columns * itemsize
        for f in range(phases.shape[0]):
            start, taps = phases[f, PHASE.start], phases[f, PHASE.taps]
            i0, j0 = phases[f, PHASE.row], phases[f, PHASE.column]
            positions = (width - j0 + write_w - 1) // write_w
            rows = balanced(positions, TILE_ROWS[(ldw + REGISTER_BYTES - 1) // REGISTER_BYTES])
            for i in range(first // write_h, (last - i0 + write_h - 1) // write_h):
                target = y + ((i * write_h + i0) * width + j0) * ldw
                for j in range(0, positions, rows):
                    tile(
                        min(rows, positions - j),
                        columns,
                        taps,
                        Rows(x + i * read_h * pitch + j * read_w, read_w),
                        address(s.table) + start * 8,
                        Rows(w + start * ldw, ldw),
                        Rows(bias, 0),
                        Rows(target + j * write_w * ldw, write_w * ldw),
                        0,
                    )

    @kernel
    def items(s: Sums, pieces: int, begin: int, end: int, scratch: int) -> None:
        x, w, bias, y, table, _, geometry, in_place, groups = s
        origin, pitch = geometry[POSITIONS.origin], geometry[POSITIONS.pitch]
        plane, write_h = geometry[POSITIONS.plane], geometry[POSITIONS.write_rows]
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
                    pad_image(x[image], 1, 1, origin, pitch, plane, scratch)
            for g in range(groups):
                o = 0
                while o < channels:
                    columns = panel_columns(channels - o, REGISTER_BYTES // itemsize)
                    at, ldw, skip = g * channels + o, columns * itemsize, first * width
                    weights = address(w) + at * taps * itemsize
                    begins = address(bias) + at * itemsize if bias.size else 0
                    panel_of_image(
                        s, source + g * own, weights, begins, result, first, last, columns
                    )
                    to = address(y) + (image * y.shape[1] + at) * area + skip * itemsize
                    made = Matrix(result + skip * ldw, ldw, itemsize)
                    pack(max(last - first, 0) * width, columns, made, Rows(to, area))
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
                source = Matrix(address(w) + at * w.strides[0], *w.strides)
                panel = Rows(address(packed) + at * taps * w.itemsize, columns * w.itemsize)
                pack(columns, taps, source, panel)
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
                    of_channel = Matrix(source, w.strides[2], w.strides[3])
                    pack(columns, taps, of_channel, Rows(address(scratch) + o * taps * ld, ld))
                panel = address(packed) + g * packed.strides[0] + c * depth * itemsize
                for k in range(order.size):
                    row = Matrix(address(scratch) + order[k] * ld, itemsize, ld)
                    pack(columns, 1, row, Rows(panel + k * ld, ld))
                c += columns
            scratch[:1, :1] = 0  # it must live until here

    matrix, weights, order = array_type(dtype, 2), array_type(dtype, 4), array_type(types.int64, 1)
    return Entries(
        **over_items(dtype, items),
        pack_weights=(pack_weights, matrix, SIZE, matrix),
        pack_transposed=(pack_transposed, weights, order, matrix),
    )


def make_vectors(dtype: Any, tile: Callable[..., None], pack: Callable[..., None]) -> Entries:
    pad_image = make_pad_image(pack)

    @kernel
    def by_vectors(
        s: Sums,
        channels: int,
        w: int,
        x: int,
        first: int,
        last: int,
        y: Rows,
        bias: int,
    ) -> None:
        """Vectors first .. last-1 of the positions, for all output channels."""
        itemsize, taps, entry = s.y.itemsize, s.w.shape[1], s.walk.shape[1] * 8
        table, stores, parts = address(s.table), address(s.walk), s.walk.shape[1] // STORE_PART
        v = first
        while v < last:
            vectors = PANEL_VECTORS[min(last - v, len(PANEL_VECTORS) - 1)]
            rows = balanced(channels, TILE_ROWS[vectors])
            for o in range(0, channels, rows):
                tile(
                    min(rows, channels - o),
                    vectors * REGISTER_BYTES // itemsize,
                    taps,
                    Rows(w + o * taps * itemsize, taps * itemsize),
                    x,
                    table,
                    stores + v * entry,
                    parts,
                    Rows(y.address + o * y.stride, y.stride),
                    bias + o * itemsize if bias else 0,
                    0,
                )
            v += vectors

    @kernel
    def items(s: Sums, pieces: int, begin: int, end: int, scratch: int) -> None:
        x, w, bias, y, _, stores, geometry, in_place, groups = s
        origin, pitch = geometry[CORRELATION.origin], geometry[CORRELATION.pitch]
        plane = geometry[CORRELATION.plane]
        phases_h = geometry[CORRELATION.phases_height]
        phases_w = geometry[CORRELATION.phases_width]
        _, channels, height, width = y.shape
        channels, taps, itemsize = channels // groups, w.shape[1], y.itemsize
        area = height * width * itemsize
        own = x.shape[1] // groups * phases_h * phases_w * plane
        share = (stores.shape[0] + pieces - 1) // pieces
        image, source = -1, scratch
        for item in range(begin, end):
            first = item % pieces * share
            if item // pieces != image:
                image = item // pieces
                if in_place:
                    source = address(x) + image * x.strides[0]
                else:
                    pad_image(x[image], phases_h, phases_w, origin, pitch, plane, scratch)
            for g in range(groups):
                at = g * channels
                weights = address(w) + at * taps * itemsize
                last = min(first + share, stores.shape[0])
                to = Rows(address(y) + (image * y.shape[1] + at) * area, area)
                begins = address(bias) + at * itemsize if bias.size else 0
                by_vectors(s, channels, weights, source + g * own, first, last, to, begins)

    return Entries(**over_items(dtype, items))


def over_items(dtype: Any, items: Callable[..., None]) -> dict[str, tuple[Any, ...]]:
    """A serial and a parallel kernel that do all items of work, with their argument types."""

    @kernel
    def serial(
        x: Array,
        w: Array,
        bias: Array,
        y: Array,
        table: Array,
        walk: Array,
        geometry: Array,
        in_place: int,
        groups: int,
        buffer: Array,
    ) -> None:
        together = geometry[TOGETHER]
        images = (y.shape[0] + together - 1) // together
        sums = Sums(x, w, bias, y, table, walk, geometry, in_place, groups)
        items(sums, 1, 0, images, address(buffer))

    @kernel(parallel=True)
    def parallel(
        count: int,
        x: Array,
        w: Array,
        bias: Array,
        y: Array,
        table: Array,
        walk: Array,
        geometry: Array,
        in_place: int,
        groups: int,
        buffer: Array,
    ) -> None:
        together = geometry[TOGETHER]
        images = (y.shape[0] + together - 1) // together
        pieces = 1 if images >= count else count
        share = (images * pieces + count - 1) // count
        for t in prange(count):
            sums = Sums(x, w, bias, y, table, walk, geometry, in_place, groups)
            end, own = min((t + 1) * share, images * pieces), address(buffer) + t * buffer.shape[1]
            items(sums, pieces, t * share, end, own)

    images, matrix, vector = (array_type(dtype, ndim) for ndim in (4, 2, 1))
    table, walk = (array_type(types.int64, ndim) for ndim in (1, 2))
    buffer = array_type(types.uint8, 2)
    arguments = (images, matrix, vector, images, table, walk, table, SIZE, SIZE, buffer)
    return {"items": (serial, *arguments), "items_parallel": (parallel, SIZE, *arguments)}
