"""Convolution with images as lanes: for batches of small images.

An element (row, column, channel) of many images becomes one row of memory, and vectors run over
images:

    x[row, column, channel][image]   -->   y[row, column, channel][image]

Every output position then sums over exactly those taps that lie inside the image: there is neither
padding nor a gap between rows, and no vector has idle lanes, however small the image. For each row
of the convolution's kernel, the weights and the elements under them are matrices whose rows follow
one another; `chain_kernel` adds up their products. The price is to transpose the images before and
after, which is small where the sums have many terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.backends.optimized.conv.chain_kernel import make_in_blocks
from tinytorch.backends.optimized.conv.geometry import BATCH, TOGETHER
from tinytorch.backends.optimized.conv.loops import Sums, over_items
from tinytorch.backends.optimized.gemm.blocking import balanced
from tinytorch.backends.optimized.gemm.panels import REGISTER_BYTES, TILE_ROWS
from tinytorch.dtypes import Array
from tinytorch.jit.entries import Entries, array_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import Matrix, Rows, Stack

Pair = tuple[int, int]


@kernel
def row_bytes(images: int, itemsize: int) -> int:
    """Bytes of a row of so many images: whole vectors."""
    return (images * itemsize + REGISTER_BYTES - 1) // REGISTER_BYTES * REGISTER_BYTES


def make_batch(dtype: Any, tile: Callable[..., None], pack: Callable[..., None]) -> Entries:
    in_blocks = make_in_blocks(tile, dtype.bitwidth // 8)

    @kernel
    def to_lanes(x: Array, first: int, count: int, target: int, ld: int) -> None:
        """Images first .. first+count-1, to rows (row, column, channel) of lanes."""
        channels, height, width = x.shape[1:]
        if x.strides[2] == width * x.strides[3]:  # the rows follow one another
            height, width = 1, height * width
        for c in range(channels):
            for i in range(height):
                source = address(x) + first * x.strides[0] + c * x.strides[1] + i * x.strides[2]
                at = target + (i * width * channels + c) * ld
                elements = Matrix(source, x.strides[0], x.strides[3])
                pack(count, width, elements, Rows(at, channels * ld))

    @kernel
    def from_lanes(
        source: int, ld: int, begin: int, end: int, y: Array, first: int, count: int
    ) -> None:
        """Rows begin .. end-1 of the results, to images first .. first+count-1."""
        channels, height, width = y.shape[1:]
        area, skip = height * width * y.itemsize, begin * width
        for c in range(channels):
            lanes = Matrix(source + (skip * channels + c) * ld, channels * ld, y.itemsize)
            at = address(y) + (first * channels + c) * area + skip * y.itemsize
            pack((end - begin) * width, count, lanes, Rows(at, channels * area))

    @kernel
    def sums(
        ld: int,
        itemsize: int,
        shape: tuple[int, int, int],
        x: int,
        w: int,
        start_from: int,
        size: Pair,
        stride: Pair,
        padding: Pair,
        begin: int,
        end: int,
        result: Pair,
        y: int,
    ) -> None:
        """Rows begin .. end-1 of y (rows, width, out_channels) from x (height, width, channels)."""
        (height, width, channels), (out_width, out_channels) = shape, result
        ldw = size[0] * size[1] * channels * itemsize
        rows = balanced(out_channels, TILE_ROWS[ld // REGISTER_BYTES])
        for i in range(begin, end):
            top = i * stride[0] - padding[0]
            first, last = max(0, -top), min(size[0], height - top)
            for j in range(out_width):
                left = j * stride[1] - padding[1]
                start, stop = max(0, -left), min(size[1], width - left)
                source = x + ((top + first) * width + left + start) * channels * ld
                weights = w + (first * size[1] + start) * channels * itemsize
                target = y + (i * out_width + j) * out_channels * ld
                right = Stack(source, ld, width * channels * ld)
                for o in range(0, out_channels, rows):
                    in_blocks(
                        min(rows, out_channels - o),
                        ld // itemsize,
                        last - first,
                        (stop - start) * channels,
                        Stack(weights + o * ldw, ldw, size[1] * channels * itemsize),
                        right,
                        Rows(start_from + o * ld if start_from else 0, ld),
                        Rows(target + o * ld, ld),
                    )

    @kernel
    def items(s: Sums, pieces: int, begin: int, end: int, scratch: int) -> None:
        x, w, bias, y, geometry = s.x, s.w, s.bias, s.y, s.geometry
        images, (channels, height, width) = geometry[TOGETHER], x.shape[1:]
        windows = (
            (geometry[BATCH.kernel_height], geometry[BATCH.kernel_width]),
            (geometry[BATCH.stride_height], geometry[BATCH.stride_width]),
            (geometry[BATCH.padding_height], geometry[BATCH.padding_width]),
        )
        share = (y.shape[2] + pieces - 1) // pieces
        result, held = scratch + channels * height * width * row_bytes(images, x.itemsize), -1
        biases = result + y.shape[1] * y.shape[2] * y.shape[3] * row_bytes(images, x.itemsize)
        for item in range(begin, end):
            panel, start = item // pieces, item % pieces * share
            stop, first = min(start + share, y.shape[2]), panel * images
            count = min(images, x.shape[0] - first)
            ld = row_bytes(count, x.itemsize)
            if panel != held:
                to_lanes(x, first, count, scratch, ld)
                for o in range(bias.size):  # a row of lanes for each channel
                    repeated = Matrix(address(bias) + o * x.itemsize, 0, 0)
                    pack(1, ld // x.itemsize, repeated, Rows(biases + o * ld, x.itemsize))
                held = panel
            if start < stop:
                sums(
                    ld,
                    x.itemsize,
                    (height, width, channels),
                    scratch,
                    address(w),
                    biases if bias.size else 0,
                    *windows,
                    start,
                    stop,
                    (y.shape[3], y.shape[1]),
                    result,
                )
                from_lanes(result, ld, start, stop, y, first, count)

    @kernel
    def arrange(w: Array, packed: Array) -> None:
        """Weights (out_channels, channels, taps) to (out_channels, taps, channels)."""
        channels, taps = w.shape[1:]
        for o in range(w.shape[0]):
            source = Matrix(address(w) + o * w.strides[0], w.strides[1], w.strides[2])
            target = Rows(address(packed) + o * packed.strides[0], channels * w.itemsize)
            pack(channels, taps, source, target)

    return Entries(
        **over_items(dtype, items), arrange=(arrange, array_type(dtype, 3), array_type(dtype, 2))
    )
