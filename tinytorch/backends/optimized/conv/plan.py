"""Offsets of a convolution: padded images, offsets of taps, where outputs are stored.

Three operations have one form. Along each axis, with tap k, stride s, padding p and dilation d:

    forward     y[o]  = sum over k of w[k] * x[o * s + k * d - p]
    to x        dx[i] = sum over k of w[k] * dy[(i + p - k * d) / s], where s divides
    to w        dw[k] = sum over o of dy[o] * x[o * s + k * d - p]

Each is a sum over taps of an image read from another point on. Two layouts of the image serve it:

`Padded`        the image with zeros around it; the micro-kernel that has positions as rows reads
                single elements, so it takes any step between positions.
`Correlation`   for the micro-kernel that has positions as vectors: these must be adjacent. Split x
                into s *phases*, phase r holding the elements s * i + r. Then x[o * s + k * d - p]
                is element o + shift of phase r, with k * d - p = s * shift + r: stride 1 again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinytorch.backends.optimized.conv.geometry import (
    STORE,
    STORE_PART,
    BatchGeometry,
    CorrelationGeometry,
    PhaseRow,
    PositionsGeometry,
)
from tinytorch.backends.optimized.gemm.blocking import L2_BYTES
from tinytorch.backends.optimized.gemm.panels import (
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
)
from tinytorch.jit.cpu import host_vector_unit

Pair = tuple[int, int]
Shape = tuple[int, ...]
Table = NDArray[np.int64]


class Windows(NamedTuple):
    """Where a convolution reads its image: all are (vertical, horizontal), but for the groups."""

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    @property
    def axes(self) -> list[tuple[int, int, int, int]]:
        """Size, stride, padding and dilation of each axis."""
        return list(zip(self.size, self.stride, self.padding, self.dilation, strict=True))

    def output(self, image: Pair) -> Pair:
        """Height and width of the result, of those of the image."""
        height, width = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, (k, s, p, d) in zip(image, self.axes, strict=True)
        )
        return height, width


class Images(NamedTuple):
    """The images that one group reads or writes."""

    channels: int
    size: Pair


SLACK = 128
"""Bytes after an image that may be read (and are not used) by a vector at its end."""


class Tap(NamedTuple):
    """One tap along one axis: element `shift` + o of phase `phase` of the image, for output o."""

    kernel_index: int
    phase: int
    shift: int


Taps = tuple[Tap, ...]


def forward_taps(size: int, stride: int, padding: int, dilation: int) -> Taps:
    """The taps of one axis of a convolution of kernel size `size`."""
    positions = [(k, k * dilation - padding) for k in range(size)]
    return tuple(Tap(k, at % stride, at // stride) for k, at in positions)


def backward_taps(size: int, stride: int, padding: int, dilation: int, phase: int) -> Taps:
    """The taps that contribute to the elements `phase` (mod stride) of the input's gradient."""
    positions = [(k, phase + padding - k * dilation) for k in range(size)]
    return tuple(Tap(k, 0, at // stride) for k, at in positions if at % stride == 0)


class Padded(NamedTuple):
    """An image with zeros around it. All in bytes; int64 in the kernels.

    Args:
        origin: of the first element, after its padding.
        pitch: from row to row; what is right of a row is left of the next.
        plane: from channel to channel.
    """

    origin: int
    pitch: int
    plane: int


def padded(itemsize: int, image: Pair, before: Pair, after: Pair) -> Padded:
    """Lay out an image (height, width) with so many zeros before and after each axis."""
    pitch = image[1] + max(before[1], after[1])
    plane = (before[0] + image[0] + after[0]) * pitch + before[1]
    origin = before[0] * pitch + before[1]
    return Padded(origin * itemsize, pitch * itemsize, plane * itemsize)


@dataclass(frozen=True, eq=False)
class Positions:
    """How to walk through a padded image with positions as rows.

    Args:
        layout: of the image.
        table: byte offset of each tap (channel, row, column) from position 0, phase after phase.
        phases: for each phase of the output (one, but for the gradient of a strided convolution)
            its first tap, its number of taps, its first row and its first column (int64).
        geometry: a `PositionsGeometry` as an array.
    """

    layout: Padded
    table: Table
    phases: Table
    geometry: Table

    kernels: ClassVar[str] = "positions"  # which loops walk so

    @property
    def taps(self) -> int:
        """Terms of a sum."""
        return self.table.size // len(self.phases)

    @property
    def walk(self) -> Table:
        """The table that only these loops have."""
        return self.phases

    def scratch(self, x: Shape, y: Shape, in_place: bool) -> Pair:
        """Bytes a thread needs, of which those for the image must be zero: (zero, all)."""
        image = 0 if in_place else x[1] * self.layout.plane + SLACK
        return image, image + 2 * SLACK + y[2] * y[3] * TILE_VECTORS * REGISTER_BYTES


def forward_positions(itemsize: int, x: Images, windows: Windows) -> Positions:
    """The walk of the forward: every output is a sum over all taps of the padded image."""
    layout = padded(itemsize, x.size, windows.padding, windows.padding)
    rows, columns = ([k * d for k in range(size)] for size, _, _, d in windows.axes)
    table = _offsets(layout, itemsize, x.channels, rows, columns)
    phases = np.array([PhaseRow(0, table.size, 0, 0)])
    geometry = np.array(PositionsGeometry(*layout, *windows.stride, 1, 1, together=1))
    return Positions(layout, table, phases, geometry)


def backward_positions(
    itemsize: int, g: Images, output: Pair, windows: Windows
) -> tuple[Positions, Table]:
    """The walk of the input's gradient: for each phase its taps of the padded gradient g.

    Args:
        itemsize: bytes of an element.
        g: the gradient with respect to the output of `conv2d`.
        output: height and width of the input, whose gradient is computed.
        windows: of `conv2d`.

    Returns:
        The walk, and for each entry of its table the row of the weights (channel, row, column).
    """
    (channels, image), size, stride = g, windows.size, windows.stride
    taps = [[backward_taps(*axis, phase) for phase in range(axis[1])] for axis in windows.axes]
    ends = [
        [
            reach(of_phase, image[axis], -(-(output[axis] - phase) // stride[axis]))
            for phase, of_phase in enumerate(taps[axis])
        ]
        for axis in (0, 1)
    ]
    before, after = (
        (max(end[side] for end in ends[0]), max(end[side] for end in ends[1])) for side in (0, 1)
    )
    layout = padded(itemsize, image, before, after)
    tables, order, phases = [], [], []
    start = 0
    for i, rows in enumerate(taps[0]):
        for j, columns in enumerate(taps[1]):
            down = [before[0] + tap.shift for tap in rows]
            right = [before[1] + tap.shift for tap in columns]
            tables.append(_offsets(layout, itemsize, channels, down, right))
            order += [
                (c * size[0] + row.kernel_index) * size[1] + column.kernel_index
                for c in range(channels)
                for row in rows
                for column in columns
            ]
            phases.append(PhaseRow(start, tables[-1].size, i, j))
            start += tables[-1].size
    geometry = np.array(PositionsGeometry(*layout, 1, 1, *stride, together=1))
    walk = Positions(layout, np.concatenate(tables), np.array(phases), geometry)
    return walk, np.array(order, np.int64)


def _offsets(
    layout: Padded, itemsize: int, channels: int, rows: Sequence[int], columns: Sequence[int]
) -> Table:
    """Byte offsets of the elements (channel, row, column) of a padded image."""
    c = np.arange(channels)[:, None, None] * layout.plane
    i = np.array(rows, np.int64)[:, None] * layout.pitch
    return (c + i + np.array(columns, np.int64) * itemsize).reshape(-1)


@dataclass(frozen=True, eq=False)
class Correlation:
    """How to walk through an image split into phases with positions as vectors.

    Args:
        layout: of one phase of one channel.
        table: byte offset of each tap (channel, row, column) from output position 0.
        stores: for `conv_tile`: one entry for each vector of output positions.
        geometry: a `CorrelationGeometry` as an array.
        channel: bytes from one channel to the next.
        length: output positions including the gaps between rows.
    """

    layout: Padded
    table: Table
    stores: Table
    geometry: Table
    channel: int
    length: int

    kernels: ClassVar[str] = "vectors"

    @property
    def taps(self) -> int:
        """Terms of a sum."""
        return self.table.size

    @property
    def walk(self) -> Table:
        """The table that only these loops have."""
        return self.stores

    def scratch(self, x: Shape, y: Shape, in_place: bool) -> Pair:
        """Bytes a thread needs, of which those for the image must be zero: (zero, all)."""
        image = 0 if in_place else x[1] * self.channel + SLACK
        return image, image + SLACK


@lru_cache(maxsize=256)
def correlation(
    itemsize: int, x: Images, output: Pair, phases: Pair, rows: Taps, columns: Taps
) -> Correlation:
    """Lay out an image x for a sum over taps `rows` x `columns`.

    Args:
        itemsize: bytes of an element.
        x: the image.
        output: height and width of the result.
        phases: number of phases along both axes.
        rows, columns: the taps.
    """
    height, width = (-(-n // s) for n, s in zip(x.size, phases, strict=True))
    top, bottom = reach(rows, height, output[0])
    left, right = reach(columns, width, output[1])
    right = max(right, output[1] - width)  # a row of outputs fits into a row of the image
    layout = padded(itemsize, (height, width), (top, left), (bottom, right))
    pitch = layout.pitch // itemsize
    table = [
        ((c * phases[0] + row.phase) * phases[1] + column.phase) * layout.plane
        + (top + row.shift) * layout.pitch
        + (left + column.shift) * itemsize
        for c in range(x.channels)
        for row in rows
        for column in columns
    ]
    return Correlation(
        layout,
        np.array(table, np.int64),
        _stores(itemsize, output, pitch),
        np.array(CorrelationGeometry(*layout, *phases, together=1)),
        layout.plane * phases[0] * phases[1],
        (output[0] - 1) * pitch + output[1],
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """How to walk through images as lanes.

    Args:
        geometry: a `BatchGeometry` as an array; `together` is the images in a row of lanes.
        row: bytes of a row of lanes.
        taps: terms of a sum, those outside of the image as well.
        cost: FMAs of a vector for each element of the output.
    """

    geometry: Table
    row: int
    taps: int
    cost: float

    kernels: ClassVar[str] = "batch"
    table: ClassVar[Table] = np.empty(0, np.int64)
    walk: ClassVar[Table] = np.empty((0, 0), np.int64)

    def scratch(self, x: Shape, y: Shape, in_place: bool) -> Pair:
        """Bytes a thread needs, of which those for the image must be zero: (zero, all)."""
        return 0, (math.prod(x[1:]) + math.prod(y[1:]) + y[1]) * self.row + SLACK


Walk = Positions | Correlation | Batch


def batch(itemsize: int, n: int, x: Images, y: Images, windows: Windows) -> Batch:
    """The walk through n images x as lanes to n images y, without groups and dilation."""
    (channels, image), (out_channels, output) = x, y
    size, stride, padding, *_ = windows
    lanes = REGISTER_BYTES // itemsize
    vectors = 1 if n <= lanes else 2
    images = min(n, vectors * lanes)
    taps = float(channels)
    for m, o, k, s, p in zip(image, output, size, stride, padding, strict=True):
        inside = (min(k, m + p - i * s) - max(0, p - i * s) for i in range(o))
        taps *= sum(max(0, count) for count in inside) / o
    rows = -(-out_channels // -(-out_channels // TILE_ROWS[vectors]))
    before, after = channels * image[0] * image[1], out_channels * output[0] * output[1]
    row = vectors * REGISTER_BYTES
    # measured: a tile begins and ends in 35 cycles, changes to the next row of the kernel in 8; a
    # vector is transposed in 8, or, where images and results do not fit into the L2 cache, in 14
    sums = 1.05 * taps + (35 + 8 * size[0]) / (rows * vectors)
    transposition = 8 if (before + after) * row <= L2_BYTES else 14
    cost = -(-n // lanes) / n * sums + (before / after + 1) * transposition / lanes
    geometry = np.array(BatchGeometry(*size, *stride, *padding, together=images))
    return Batch(geometry, row, channels * size[0] * size[1], cost)


def reach(taps: Sequence[Tap], size: int, output: int) -> Pair:
    """How far the taps reach before the first and after the last of `size` elements."""
    shifts = [tap.shift for tap in taps] or [0]
    return max(0, -min(shifts)), max(0, output + max(shifts) - size)


def _stores(itemsize: int, output: Pair, pitch: int) -> Table:
    """The table `stores` for output rows that are `pitch` positions apart.

    The vectors of positions run through all rows and the gaps between them, or, where that takes
    hardly more vectors, start anew with each row. A vector is stored in parts, one for each row,
    and each part costs as much as the store of a whole vector.
    """
    lanes = host_vector_unit().register_bytes // itemsize
    height, width = output
    length = (height - 1) * pitch + width
    per_row = -(-width // lanes)
    by_rows = pitch > width and height * per_row <= 1.1 * -(-length // lanes)
    if by_rows:
        starts = (np.arange(height)[:, None] * pitch + np.arange(per_row) * lanes).reshape(-1)
    else:
        starts = np.arange(0, length, lanes)
    at = starts[:, None] + np.arange(lanes)
    row = at // pitch
    part = row - row[:, :1] if pitch > width else np.zeros_like(row)
    stored = (at % pitch < width) & (row < height) & ((part == 0) | (not by_rows))
    parts = int(part[stored].max(initial=0)) + 1
    stores = np.zeros((starts.size, STORE.target + STORE_PART * parts), np.int64)
    stores[:, STORE.source] = starts * itemsize
    for i in range(parts):
        target = (starts - (row[:, 0] + i) * (pitch - width)) * itemsize
        mask = np.where(stored & (part == i), 1 << np.arange(lanes), 0).sum(axis=1)
        stores[:, STORE.target + STORE_PART * i] = target
        stores[:, STORE.mask + STORE_PART * i] = mask
    return stores
