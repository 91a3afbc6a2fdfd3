"""Convolution: the loops around the micro-kernels that take one image at a time.

Image by image, the input is copied into a buffer with zero padding; the matrix of all patches
("im2col") is never built. One of two micro-kernels then does the sums:

    positions as rows      y[position, channel] = sum over taps of x[position + tap] w[tap, channel]
                           The image has its channels last, so that those of the taps of a row of
                           the kernel are adjacent: a matrix for each row, whose rows are positions
                           (`chain_kernel`). Vectors run over output channels, so stride, dilation
                           and narrow images cost nothing; image and result are transposed.
    positions as vectors   y[channel, position] = the same. Vectors run over positions, for few
                           output channels or few taps; `micro_kernel` has the picture.

A tap of an image with its channels first is in a line, and for each channel in a page, of its own:
there the same sums take up to a third longer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized.conv.chain_kernel import make_in_blocks
from tinytorch.backends.optimized.conv.geometry import (
    CORRELATION,
    PHASE,
    POSITIONS,
    STORE,
    STORE_PART,
    TOGETHER,
)
from tinytorch.backends.optimized.conv.phases import split_pairs
from tinytorch.backends.optimized.gemm.blocking import (
    L2_BYTES,
    NARROW_COPY,
    TILES_THAT_PAY,
    balanced,
    panels_walk_badly,
)
from tinytorch.backends.optimized.gemm.panels import (
    PACK_DEPTH,
    PANEL_VECTORS,
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
    even_tiles,
    panel_columns,
    row_bytes,
)
from tinytorch.dtypes import Array
from tinytorch.jit.entries import Entries, array_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import SIZE, Matrix, Rows, Stack
from tinytorch.jit.views import strided


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


@cache
def make_channels_last(pack: Callable[..., None]) -> Callable[..., None]:
    """A kernel that lays out an image with its padding and its channels last."""

    @kernel
    def channels_last(x: Array, origin: int, pitch: int, target: int) -> None:
        """Copy an image (channels, height, width) into a buffer, zeroed where it is not."""
        channels, height, width = x.shape
        element = channels * x.itemsize
        if pitch == width * element and x.strides[1] == width * x.strides[2]:
            height, width = 1, height * width  # no padding: the rows follow one another
        for i in range(height):
            row = Matrix(address(x) + i * x.strides[1], x.strides[0], x.strides[2])
            pack(channels, width, row, Rows(target + origin + i * pitch, element))

    return channels_last


# -- loops over images ----------------------------------------------------------------------------
#
# An item of work is one of `pieces` parts of an image (or of several together; the last element of
# the geometry says how many); there are several parts where there are fewer images than threads.
# `scratch` is this thread's: the padded image, then the results of a panel.


def make_positions(dtype: Any, tile: Callable[..., None], pack: Callable[..., None]) -> Entries:
    itemsize = dtype.bitwidth // 8
    in_blocks, channels_last = make_in_blocks(tile, itemsize), make_channels_last(pack)
    lanes = REGISTER_BYTES // itemsize

    @kernel
    def panel_of_image(
        s: Sums, x: int, w: int, bias: int, y: int, first: int, last: int, ldw: int
    ) -> None:
        """Output rows first .. last-1 of a panel of channels: y[position, channel]."""
        phases, geometry, width = s.walk, s.geometry, s.y.shape[3]
        read_h, read_w = geometry[POSITIONS.read_rows], geometry[POSITIONS.read_columns]
        write_h, write_w = geometry[POSITIONS.write_rows], geometry[POSITIONS.write_columns]
        for f in range(phases.shape[0]):
            count, down = phases[f, PHASE.rows], phases[f, PHASE.down]
            runs, across = phases[f, PHASE.runs], phases[f, PHASE.across]
            steps, weights = phases[f, PHASE.steps], w + phases[f, PHASE.weights] * ldw
            i0, j0 = phases[f, PHASE.row], phases[f, PHASE.column]
            positions = (width - j0 + write_w - 1) // write_w
            most, full = even_tiles(positions, ldw // REGISTER_BYTES)
            for i in range(first // write_h, (last - i0 + write_h - 1) // write_h):
                target = y + ((i * write_h + i0 - first) * width + j0) * ldw
                source, j = x + phases[f, PHASE.start] + i * read_h, 0
                while j < positions:
                    rows = most if j < full else most - 1
                    to = Rows(target + j * write_w * ldw, write_w * ldw)
                    for run in range(runs):
                        in_blocks(
                            rows,
                            ldw // itemsize,
                            count,
                            steps,
                            Stack(source + j * read_w + run * across, read_w, down),
                            Stack(weights + run * steps * ldw, ldw, runs * steps * ldw),
                            to if run else Rows(bias, 0),
                            to,
                        )
                    j += rows

    @kernel
    def items(s: Sums, pieces: int, begin: int, stop: int, scratch: int) -> None:
        x, w, bias, y, table, _, geometry, _, groups = s
        plane, write_h = geometry[POSITIONS.plane], geometry[POSITIONS.write_rows]
        _, channels, height, width = y.shape
        channels, area = channels // groups, height * width * itemsize
        depth = x.shape[1] // groups * table.size
        begins = scratch + (plane + 63) // 64 * 64
        result = begins + TILE_VECTORS * REGISTER_BYTES
        share = ((height + pieces - 1) // pieces + write_h - 1) // write_h * write_h
        image = -1
        for item in range(begin, stop):
            first = item % pieces * share
            last = min(first + share, height)
            if item // pieces != image:
                image = item // pieces
                origin, pitch = geometry[POSITIONS.origin], geometry[POSITIONS.pitch]
                channels_last(x[image], origin, pitch, scratch)
            for g in range(groups):
                o = 0
                while o < channels:
                    columns, at = panel_columns(channels - o, lanes), g * channels + o
                    ldw = row_bytes(columns, lanes)
                    weights = address(w) + g * w.strides[0] + o * depth * itemsize
                    if bias.size:
                        given = Matrix(address(bias) + at * itemsize, itemsize, 0)
                        pack(columns, 1, given, Rows(begins, 0))
                    source = scratch + g * geometry[POSITIONS.group]
                    start = begins if bias.size else 0
                    to = address(y) + (image * y.shape[1] + at) * area
                    block = max(L2_BYTES // 8 // (width * ldw * write_h), 1) * write_h
                    for i in range(first, last, block):  # its results stay in L2
                        end = min(i + block, last)
                        panel_of_image(s, source, weights, start, result, i, end, ldw)
                        made = Matrix(result, ldw, itemsize)
                        skip = i * width * itemsize
                        pack((end - i) * width, columns, made, Rows(to + skip, area))
                    o += columns

    @kernel
    def pack_weights(w: Array, order: Array, packed: Array) -> None:
        """(groups, channels of x, of y, taps) into panels of (order, channels of x, columns)."""
        groups, depth, channels, area = w.shape
        _, across, along, step = w.strides
        most = lanes * max(PACK_DEPTH // (lanes * area), 1)  # channels of x, in whole vectors
        scratch = np.empty((most * area, TILE_VECTORS * lanes), w.dtype)
        held = address(scratch)
        if channels % lanes:
            packed[:] = 0  # what is beyond the last channel is multiplied too, and not stored
        for g in range(groups):
            o = 0
            while o < channels:
                columns = panel_columns(channels - o, lanes)
                ld = row_bytes(columns, lanes)
                panel = address(packed) + g * packed.strides[0] + o * depth * area * itemsize
                source = address(w) + g * w.strides[0] + o * along
                for d in range(0, depth, most):
                    count = min(most, depth - d)
                    together = count if across == area * step else 1
                    for i in range(0, count, together):
                        of_channels = Matrix(source + (d + i) * across, along, step)
                        to = Rows(held + i * area * ld, ld)
                        pack(columns, together * area, of_channels, to)
                    for t in range(area):
                        of_tap = Matrix(held + order[t] * ld, itemsize, area * ld)
                        pack(columns, count, of_tap, Rows(panel + (t * depth + d) * ld, ld))
                o += columns
        scratch[:1, :1] = 0  # it must live until here

    weights, matrix = array_type(dtype, 4), array_type(dtype, 2)
    return Entries(
        **over_items(dtype, items),
        pack_weights=(pack_weights, weights, array_type(types.int64, 1), matrix),
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
        room: int,
    ) -> None:
        """Vectors first .. last-1 of the positions, for all output channels.

        Args:
            room: 0, or memory for a panel of an image that is read where it is, and for its table.
        """
        itemsize, taps, entry = s.y.itemsize, s.w.shape[1], s.walk.shape[1] * 8
        table, stores, parts = address(s.table), address(s.walk), s.walk.shape[1] // STORE_PART
        v = first
        while v < last:
            vectors = PANEL_VECTORS[min(last - v, len(PANEL_VECTORS) - 1)]
            rows = balanced(channels, TILE_ROWS[vectors])
            source, offsets, plane = x, table, s.geometry[CORRELATION.plane]
            many = channels > NARROW_COPY * TILES_THAT_PAY * rows
            if room and many and panels_walk_badly(taps, x, plane):
                begin, nbytes = s.walk[v, STORE.source], vectors * REGISTER_BYTES
                rows_of_x = Matrix(x + begin, itemsize, plane)
                pack(nbytes // itemsize, taps, rows_of_x, Rows(room, nbytes))
                source, offsets = room - begin, room + taps * TILE_VECTORS * REGISTER_BYTES
                of_panel = strided(np.int64, offsets, (taps,), (8,))
                for t in range(taps):
                    of_panel[t] = t * nbytes
            for o in range(0, channels, rows):
                tile(
                    min(rows, channels - o),
                    vectors * REGISTER_BYTES // itemsize,
                    taps,
                    Rows(w + o * taps * itemsize, taps * itemsize),
                    source,
                    offsets,
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
                room = scratch if in_place else 0
                by_vectors(s, channels, weights, source + g * own, first, last, to, begins, room)

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
