"""Offsets of a convolution: padded images, offsets of taps, where outputs are stored.

Three operations have one form. Along each axis, with tap k, stride s, padding p and dilation d:

    forward     y[o]  = sum over k of w[k] * x[o * s + k * d - p]
    to x        dx[i] = sum over k of w[k] * dy[(i + p - k * d) / s], where s divides
    to w        dw[k] = sum over o of dy[o] * x[o * s + k * d - p]

Each is a sum over taps of an image read from another point on. Two layouts of the image serve it:

`Padded`        the image with zeros around it, its channels last: the values of a position are a
                row of a matrix, with any step to the next position's.
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
from tinytorch.backends.optimized.gemm.blocking import L1_BYTES, L2_BYTES, LINE_BYTES
from tinytorch.backends.optimized.gemm.panels import (
    PANEL_VECTORS,
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


def whole_vectors(channels: int, itemsize: int) -> int:
    """So many channels, rounded up to whole vectors."""
    return -(-channels * itemsize // REGISTER_BYTES) * REGISTER_BYTES // itemsize


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
    """How to walk through a padded image with its channels last, with positions as rows.

    Args:
        layout: of the image.
        table: of each tap that is summed, phase after phase, which of the kernel's it is (int64).
        phases: a `PhaseRow` for each phase of the output (one, but for the gradient of a strided
            convolution).
        geometry: a `PositionsGeometry` as an array.
        taps: terms of a sum, on average.
        zeros: bytes of the image, if there are zeros around it.
    """

    layout: Padded
    table: Table
    phases: Table
    geometry: Table
    taps: int
    zeros: int

    kernels: ClassVar[str] = "positions"  # which loops walk so

    @property
    def walk(self) -> Table:
        """The table that only these loops have."""
        return self.phases

    def scratch(self, x: Shape, y: Shape, in_place: bool) -> Pair:
        """Bytes a thread needs, of which those for the image must be zero: (zero, all)."""
        panel = (y[2] * y[3] + 1) * TILE_VECTORS * REGISTER_BYTES  # results and a bias
        return self.zeros, self.layout.plane + SLACK + panel


Phase = tuple[Taps, Taps, Pair]  # taps along both axes, and the first output position


def _positions(
    itemsize: int,
    x: Images,
    windows: Windows,
    ends: tuple[Pair, Pair],
    phases: Sequence[Phase],
    strides: tuple[Pair, Pair],
) -> Positions:
    """The walk through images with `ends` zeros before and after them.

    Args:
        strides: from position to position of the image, and of the output.
    """
    group = x.channels * itemsize
    element = windows.groups * group
    layout = padded(element, x.size, *ends)
    order: list[int] = []
    table = []
    for rows, columns, first in phases:
        rows, columns = (tuple(sorted(taps, key=lambda tap: tap.shift)) for taps in (rows, columns))
        down, across = (
            taps[1].shift - taps[0].shift if taps[1:] else 1 for taps in (rows, columns)
        )
        runs = 1 if windows.groups == across == 1 or len(columns) <= 1 else len(columns)
        start, count = 0, len(rows) if columns else 0
        if count:
            start = (ends[0][0] + rows[0].shift) * layout.pitch
            start += (ends[0][1] + columns[0].shift) * element
        steps, weights = len(columns) // runs * x.channels, len(order) * x.channels
        down, across = down * layout.pitch, across * element
        table.append(PhaseRow(*first, start, count, down, runs, across, steps, weights))
        order += [r.kernel_index * windows.size[1] + c.kernel_index for r in rows for c in columns]
    (down, across), write = strides
    geometry = PositionsGeometry(
        *(*layout, group, down * layout.pitch, across * element, *write), together=1
    )
    return Positions(
        layout,
        np.array(order, np.int64),
        np.array(table),
        np.array(geometry),
        len(order) * x.channels // len(phases),
        layout.plane if layout.plane > element * x.size[0] * x.size[1] else 0,
    )


def forward_positions(itemsize: int, x: Images, windows: Windows) -> Positions:
    """The walk of the forward: every output is a sum over all taps of the padded image."""
    rows, columns = (forward_taps(k, 1, p, d) for k, _, p, d in windows.axes)
    ends, strides = (windows.padding, windows.padding), (windows.stride, (1, 1))
    return _positions(itemsize, x, windows, ends, [(rows, columns, (0, 0))], strides)


def backward_positions(itemsize: int, g: Images, output: Pair, windows: Windows) -> Positions:
    """The walk of the input's gradient: for each phase its taps of the padded gradient g.

    Args:
        itemsize: bytes of an element.
        g: the gradient with respect to the output of `conv2d`.
        output: height and width of the input, whose gradient is computed.
        windows: of `conv2d`.
    """
    stride = windows.stride
    taps = [[backward_taps(*axis, phase) for phase in range(axis[1])] for axis in windows.axes]
    ends = [
        [
            reach(of_phase, g.size[axis], -(-(output[axis] - phase) // stride[axis]))
            for phase, of_phase in enumerate(taps[axis])
        ]
        for axis in (0, 1)
    ]
    before, after = (
        (max(end[side] for end in ends[0]), max(end[side] for end in ends[1])) for side in (0, 1)
    )
    phases = [
        (rows, columns, (i, j))
        for i, rows in enumerate(taps[0])
        for j, columns in enumerate(taps[1])
    ]
    return _positions(itemsize, g, windows, (before, after), phases, ((1, 1), stride))


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
        panel = self.taps * (TILE_VECTORS * REGISTER_BYTES + 8)  # and its table
        image = 0 if in_place else x[1] * self.channel + SLACK
        return image, SLACK + (panel if in_place else image)


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
    row = vectors * REGISTER_BYTES
    sums = _chain_cost(taps, size[0], rows, vectors)
    cost = -(-n // lanes) / n * sums + _transposition_cost(x, y, row, lanes)
    geometry = np.array(BatchGeometry(*size, *stride, *padding, together=images))
    return Batch(geometry, row, channels * size[0] * size[1], cost)


def positions_cost(itemsize: int, x: Images, y: Images, windows: Windows) -> float:
    """FMAs of a vector for each element of y, summed with positions as rows."""
    lanes = REGISTER_BYTES // itemsize
    needed = -(-y.channels // lanes)
    vectors = PANEL_VECTORS[min(needed, len(PANEL_VECTORS) - 1)]
    rows = y.size[1] / -(-y.size[1] // TILE_ROWS[vectors])
    sums = _chain_cost(x.channels * math.prod(windows.size), windows.size[0], rows, vectors)
    return needed / y.channels * sums + _transposition_cost(x, y, itemsize, lanes)


def vectors_cost(walk: Correlation, area: int, windows: Windows) -> float:
    """FMAs of a vector for each of `area` elements of a channel, with positions as vectors.

    Measured: a fifth more where what the taps of a tile read does not stay in half of L1 for the
    tiles of other channels; a tile begins and ends in 35, and each part of a vector is stored.
    """
    read = walk.taps // windows.size[1] * (TILE_VECTORS * REGISTER_BYTES + LINE_BYTES)
    sums = walk.taps * (1.05 if read <= L1_BYTES // 2 else 1.26)
    sums += 35 / (TILE_ROWS[TILE_VECTORS] * TILE_VECTORS)
    vectors, parts = walk.stores.shape
    return vectors / area * (sums + parts - 1)


def _chain_cost(taps: float, pairs: int, rows: float, vectors: int) -> float:
    """FMAs that a tile of `chain_kernel` takes for each of its vectors.

    It has sums enough if one of two FMAs a cycle is never waited for, four cycles. A tile of one
    vector loads more than it multiplies, two in a cycle, and whatever comes from L2 takes turns
    with them. Measured: a tenth; a tile begins and ends in 35 FMAs, changes to the next pair in 8.
    """
    sums = rows * vectors
    limit = max(1, 1.1 * (rows + vectors) / sums, 8 / sums)
    return 1.05 * limit * taps + (35 + 8 * pairs) / sums


def _transposition_cost(x: Images, y: Images, row: int, lanes: int) -> float:
    """FMAs for each element of y, where x and y are transposed, in rows of so many bytes."""
    before, after = (channels * math.prod(size) for channels, size in (x, y))
    # measured: of a vector 8, or, where images and results do not fit into the L2 cache, 14
    return (before / after + 1) * (8 if (before + after) * row <= L2_BYTES else 14) / lanes


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
