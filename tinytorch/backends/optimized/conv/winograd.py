"""Winograd convolution: 3x3 kernels, stride 1, with fewer multiplications, and less accuracy.

A tile of m x m outputs comes from a tile of (m + 2) x (m + 2) inputs by

    Y = A^T [ (G w G^T) * (B^T d B) ] A

with constant matrices, where * is elementwise; summed over channels, it is one matrix product for
each of the (m + 2)^2 elements. F(4, 3) needs 36 products for 16 outputs instead of 144, F(2, 3) 16
for 4 instead of 36. All transforms run on vectors of channels, so the images are first transposed
to channels last.

Accuracy: F(4, 3) evaluates polynomials at 0, 1, -1, 2 and -2, which cancels digits. In float32, on
inputs and outputs of unit variance with 64 to 256 channels, its largest error against float64 was
measured as 5e-5, of F(2, 3) as 4e-6, of the direct sum as 7e-6 to 2e-5. Hence opt-in.

Source: Lavin and Gray, Fast algorithms for convolutional neural networks, arXiv:1509.09308 (2015).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized.conv.conv2d import zeroed
from tinytorch.backends.optimized.gemm.blocking import L2_BYTES, LINE_BYTES, balanced
from tinytorch.backends.optimized.gemm.micro_kernel import gemm_tile_f32, gemm_tile_f64
from tinytorch.backends.optimized.gemm.packing import pack_f32, pack_f64
from tinytorch.backends.optimized.gemm.panels import (
    REGISTER_BYTES,
    TILE_ROWS,
    panel_columns,
)
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.buffers import empty, workspace
from tinytorch.jit.entries import Entries, array_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import (
    Value,
    VectorEmitter,
    address,
    i64,
    memory,
    vector_intrinsic,
)
from tinytorch.jit.operands import NOTHING, NOWHERE, SIZE, Matrix, Rows

CHUNK_BYTES = L2_BYTES // 2
"""Of transformed tiles that are multiplied together: they stay in the second-level cache, unless
the kernel is so large that reading it again for each such chunk is the greater evil."""

LARGE_KERNEL = 3 * CHUNK_BYTES
"""A chunk that is in no cache is written, read for its line, and read: three times its bytes."""

COSTS = {"transform": 4, "kernel": 30, "beyond L2": 30}
"""In multiply-adds of the direct sum: an element of a tile, for each element of a row of the
matrices, on its way in or out; an element of the transformed kernel; the same once more, and again
for each pass, where that kernel is larger than the second-level cache."""

# fmt: off
MATRICES: dict[int, dict[str, Array]] = {
    2: {
        "G": np.array([[1, 0, 0], [.5, .5, .5], [.5, -.5, .5], [0, 0, 1]]),
        "B": np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
        "A": np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
    },
    4: {
        "G": np.array([[1/4, 0, 0], [-1/6, -1/6, -1/6], [-1/6, 1/6, -1/6],
                       [1/24, 1/12, 1/6], [1/24, -1/12, 1/6], [0, 0, 1]]),
        "B": np.array([[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
                       [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]),
        "A": np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0],
                       [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
    },
}
"""For each m the matrices G, B^T and A^T."""
# fmt: on


def emit_combination(e: VectorEmitter, row: Array, vectors: list[Value]) -> Value:
    """The sum of row[i] * vectors[i]; zeros cost nothing, ones no multiplication."""
    total = None
    for i in sorted(np.flatnonzero(row), key=lambda i: row[i] != 1):
        if total is None:
            total = vectors[i] if row[i] == 1 else e.builder.fmul(e.constant(row[i]), vectors[i])
        elif row[i] in (1, -1):
            total = (e.builder.fadd if row[i] == 1 else e.builder.fsub)(total, vectors[i])
        else:
            total = e.fma(e.constant(row[i]), vectors[i], total)
    return total


def emit_product(e: VectorEmitter, matrix: Array, vectors: list[Value]) -> list[Value]:
    """matrix @ vectors. Rows that are x + y and x - y share x and y, columns a sum and difference.

    The matrices have such pairs as they evaluate polynomials at a point and at its negative.
    """
    add, subtract = e.builder.fadd, e.builder.fsub
    matrix, vectors = matrix.astype(float), list(vectors)
    for i in range(len(vectors) - 1):
        left, right = matrix[:, i].copy(), matrix[:, i + 1].copy()
        if left.any() and (np.abs(left) == np.abs(right)).all():
            x, y = vectors[i : i + 2]
            vectors[i : i + 2] = add(x, y), subtract(x, y)
            matrix[:, i] = np.where(left == right, left, 0)
            matrix[:, i + 1] = np.where(left == right, 0, left)
    results: list[Value] = []
    for i, row in enumerate(matrix):
        if len(results) > i:
            continue
        following = matrix[i + 1] if i + 1 < len(matrix) else row
        plus, minus = (row + following) / 2, (row - following) / 2
        if plus.any() and minus.any() and not (plus * minus).any():
            x, y = emit_combination(e, plus, vectors), emit_combination(e, minus, vectors)
            results += [add(x, y), subtract(x, y)]
        else:
            results.append(emit_combination(e, row, vectors))
    return results


def _transform(name: str, m: int) -> Any:
    """The intrinsic for matrix @ tile @ matrix.T on vectors of channels."""
    matrix = MATRICES[m][name]
    rows, columns = matrix.shape

    def twin(dtype: Any, vectors: int, source: Matrix, target: Matrix, bias: int) -> None:
        size = vectors * REGISTER_BYTES // np.dtype(dtype).itemsize
        strides = (source.row, source.column)
        tile = memory(dtype, source.address, (columns, columns, size), strides)
        result = np.einsum("ia,jb,abc->ijc", matrix, matrix, tile)
        if bias:
            result += memory(dtype, bias, (size,))
        strides = (target.row, target.column)
        memory(dtype, target.address, (rows, rows, size), strides)[...] = result

    @vector_intrinsic(twin)
    def transform(
        e: VectorEmitter, vectors: Value, source: Matrix, target: Matrix, bias: Value
    ) -> None:
        given = e.builder.icmp_signed("!=", bias, i64(0))

        def step(state: list[Value]) -> list[Value]:
            x, y, b = state
            half = []
            for j in range(columns):
                at = e.at(x, e.mul(source.column, j))
                tile = [e.load(e.at(at, e.mul(source.row, i))) for i in range(columns)]
                half.append(emit_product(e, matrix, tile))
            (start,) = e.either(given, lambda: [e.load(b)], lambda: [e.zeros])
            for i in range(rows):
                at = e.at(y, e.mul(target.row, i))
                for j, value in enumerate(emit_product(e, matrix, [c[i] for c in half])):
                    to = e.at(at, e.mul(target.column, j))
                    e.store(e.builder.fadd(value, start), to)
            return [e.at(p, e.register_bytes) for p in state]

        starts = (source.address, target.address, bias)
        e.loop(vectors, [e.pointer(start) for start in starts], step)

    return transform


def _make_entries(
    m: int, dtype: Any, tile: Callable[..., None], pack: Callable[..., None]
) -> Entries:
    size = m + 2
    transform_weights, transform_input, transform_output = (_transform(f, m) for f in "GBA")

    @kernel
    def weights(w: Array, spread: Array, u: Array) -> None:
        """u[element] from w (o, c, 3, 3); `spread` is scratch memory (c, 9, o).

        It consists of panels, one after another, each (c, columns), as `multiply` reads them: a
        kernel that is larger than the caches is read in one stream.
        """
        out_channels, channels, item = w.shape[0], w.shape[1], w.itemsize
        ld = spread.strides[1]
        source = Matrix(address(w), w.strides[0], item)
        pack(out_channels, channels * 9, source, Rows(address(spread), ld))
        o = 0
        while o < u.shape[2]:
            columns = panel_columns(u.shape[2] - o, REGISTER_BYTES // item)
            panel = address(u) + o * u.shape[1] * item
            for c in range(channels):
                at = address(spread) + c * spread.strides[0] + o * item
                to = panel + c * columns * item
                transform_weights(
                    dtype,
                    columns * item // REGISTER_BYTES,
                    Matrix(at, 3 * ld, ld),
                    Matrix(to, size * u.strides[0], u.strides[0]),
                    0,
                )
            o += columns

    @kernel
    def multiply(
        count: int, channels: int, width: int, item: int, v: Rows, u: Rows, products: Rows
    ) -> None:
        """products[element] = v[element] @ u[element]: (tiles, channels) @ (channels, width).

        The strides are from element to element.
        """
        ld, lda = width * item, channels * item
        for element in range(size * size):
            o = 0
            while o < width:
                columns = panel_columns(width - o, REGISTER_BYTES // item)
                rows = balanced(count, TILE_ROWS[columns * item // REGISTER_BYTES])
                for i in range(0, count, rows):
                    left = Matrix(v.address + element * v.stride + i * lda, lda, item)
                    right = Rows(u.address + element * u.stride + o * lda, columns * item)
                    to = products.address + element * products.stride + i * ld + o * item
                    height = min(rows, count - i)
                    target = Rows(to, ld)
                    tile(height, columns, channels, left, right, NOWHERE, target, 0, NOTHING, 0)
                o += columns

    @kernel
    def images(
        x: Array, u: Array, bias: Array, y: Array, chunk: int, begin: int, end: int, scratch: int
    ) -> None:
        """Images begin .. end-1, `chunk` rows of tiles at a time."""
        _, channels, height, width = x.shape
        item = y.itemsize
        lanes = REGISTER_BYTES // item
        deep = (channels + lanes - 1) // lanes * lanes
        wide = u.shape[2]
        across, down = (width + m - 1) // m, (height + m - 1) // m
        line = (across * m + 2) * deep * item
        # from element to element of a tile a line more: powers of two would share their sets
        next_v = chunk * across * deep * item + LINE_BYTES
        next_product = chunk * across * wide * item + LINE_BYTES
        v = scratch + (down * m + 2) * line
        products = v + size * size * next_v
        result = products + size * size * next_product
        for n in range(begin, end):
            for h in range(height):
                at = address(x) + n * x.strides[0] + h * x.strides[2]
                target = Rows(scratch + (h + 1) * line + deep * item, deep * item)
                pack(channels, width, Matrix(at, x.strides[1], x.strides[3]), target)
            for first in range(0, down, chunk):
                tiles = min(chunk, down - first) * across
                for t in range(tiles):
                    i, j = (first + t // across) * m, t % across * m
                    tile_of_x = Matrix(scratch + i * line + j * deep * item, line, deep * item)
                    tile_of_v = Matrix(v + t * deep * item, size * next_v, next_v)
                    transform_input(dtype, deep // lanes, tile_of_x, tile_of_v, 0)
                kernels = Rows(address(u), u.strides[0])
                to = Rows(products, next_product)
                multiply(tiles, deep, wide, item, Rows(v, next_v), kernels, to)
                ld = wide * item
                for t in range(tiles):
                    i, j = t // across * m, t % across * m
                    product = Matrix(products + t * ld, size * next_product, next_product)
                    tile_of_y = Matrix(result + (i * across * m + j) * ld, across * m * ld, ld)
                    transform_output(dtype, wide // lanes, product, tile_of_y, address(bias))
                for h in range(first * m, min((first + chunk) * m, height)):
                    row = result + (h - first * m) * across * m * ld
                    at = address(y) + n * y.strides[0] + h * y.strides[2]
                    if y.strides[3] == item:
                        pack(width, y.shape[1], Matrix(row, ld, item), Rows(at, y.strides[1]))
                    else:  # channels last, as the result is
                        pack(y.shape[1], width, Matrix(row, item, ld), Rows(at, y.strides[3]))

    @kernel
    def serial(x: Array, u: Array, bias: Array, y: Array, chunk: int, buffer: Array) -> None:
        images(x, u, bias, y, chunk, 0, x.shape[0], address(buffer))

    @kernel(parallel=True)
    def parallel(
        count: int, x: Array, u: Array, bias: Array, y: Array, chunk: int, buffer: Array
    ) -> None:
        share = (x.shape[0] + count - 1) // count
        for t in prange(count):
            images(
                x, u, bias, y, chunk, t * share, min((t + 1) * share, x.shape[0]),
                address(buffer) + t * buffer.shape[1],
            )  # fmt: skip

    element = types.float32 if dtype is np.float32 else types.float64
    array = {ndim: array_type(element, ndim) for ndim in (1, 3, 4)}
    buffer = array_type(types.uint8, 2)
    arguments = (array[4], array[3], array[1], array[4], SIZE, buffer)
    return Entries(
        weights=(weights, array[4], array[3], array[3]),
        images=(serial, *arguments),
        images_parallel=(parallel, SIZE, *arguments),
    )


@cache
def _entries(m: int, itemsize: int) -> Entries:
    if itemsize == 4:
        return _make_entries(m, np.float32, gemm_tile_f32, pack_f32)
    return _make_entries(m, np.float64, gemm_tile_f64, pack_f64)


def pays(m: int, x: tuple[int, ...], out_channels: int, itemsize: int) -> bool:
    """Whether F(m, 3) takes less than the direct sum, if it has to transform the kernel first.

    Args:
        m: 4 or 2.
        x: the shape of the images.
        out_channels, itemsize: of the result.

    Example:
        >>> pays(4, (1, 64, 56, 56), 64, 4), pays(4, (1, 512, 7, 7), 512, 4)
        (True, False)
    """
    n, channels, height, width = x
    tiles, elements = n * -(-height // m) * -(-width // m), (m + 2) ** 2
    kernel = elements * channels * out_channels
    for_each = tiles + COSTS["kernel"]
    if kernel * itemsize > L2_BYTES:
        for_each += COSTS["beyond L2"] * (1 + n)
    transforms = elements * tiles * (channels + out_channels) * COSTS["transform"] * (m + 2)
    return kernel * for_each + transforms < 9 * n * height * width * channels * out_channels


class WinogradFilter:
    """A 3x3 kernel transformed once, for any number of convolutions with stride 1 and padding 1.

    Args:
        w: (O, C, 3, 3), float32 or float64.
        b: (O,) or None.
        m: 4 (fastest) or 2 (more accurate); see the errors above.
        allocate: makes the array of the transformed kernel, from its shape and dtype. The default
            takes from the pool, for a kernel that is soon dropped.

    Raises:
        ValueError: the kernel is not 3x3, or there are no transforms for m.
    """

    def __init__(
        self,
        w: Array,
        b: Array | None = None,
        *,
        m: int = 4,
        allocate: Callable[[tuple[int, ...], np.dtype[Any]], Array] = workspace,
    ) -> None:
        if w.shape[2:] != (3, 3) or m not in MATRICES:
            raise ValueError(
                f"Winograd convolution is for kernels of size 3x3 and m in {sorted(MATRICES)}, "
                f"not for size {w.shape[2]}x{w.shape[3]} and m={m}; use conv2d"
            )
        self.m, self.shape, dtype = m, w.shape, w.dtype
        out_channels, channels = w.shape[:2]
        lanes = REGISTER_BYTES // w.itemsize
        deep, wide = (-(-size // lanes) * lanes for size in (channels, out_channels))
        self._entries = _entries(m, w.itemsize)
        padded = allocate(((m + 2) ** 2, deep * wide + LINE_BYTES // w.itemsize), dtype)
        self._kernel = padded[:, : deep * wide].reshape((m + 2) ** 2, deep, wide)  # a view
        if channels < deep:
            self._kernel.fill(0)  # what stands for channels that are not there
        spread = workspace((max(channels, 1), 9, wide), dtype)
        spread[..., out_channels:] = 0
        self._entries.weights(np.ascontiguousarray(w), spread, self._kernel)
        self._bias = np.zeros(wide, dtype)
        if b is not None:
            self._bias[:out_channels] = b

    def convolve(self, x: Array, y: Array, most_threads: int | None = None) -> None:
        """Write the convolution of x into y.

        Args:
            x: (N, C, H, W) in the dtype of the kernel, with any strides.
            y: (N, O, H, W), with its rows or its channels innermost.
            most_threads: fewer than `threads` would take; None for these.
        """
        n, _, height, width = x.shape
        m = self.m
        elements, deep, wide = self._kernel.shape
        across, down = -(-width // m), -(-height // m)
        tile_bytes = elements * (deep + wide) * x.itemsize
        is_large = elements * deep * wide * x.itemsize > LARGE_KERNEL
        chunk = max(1, down if is_large else min(down, CHUNK_BYTES // (tile_bytes * across)))
        room = (down * m + 2) * (across * m + 2) * deep * x.itemsize
        room += (
            chunk * across * (tile_bytes + m * m * wide * x.itemsize) + elements * 2 * LINE_BYTES
        )
        count = min(threads.threads_for(n * tile_bytes * across * down), most_threads or n, n)
        buffers = zeroed(count, room)
        self._entries.run("images", count, x, self._kernel, self._bias, y, chunk, buffers)


def conv2d_winograd(x: Array, w: Array, b: Array | None = None, *, m: int = 4) -> Array:
    """`conv2d` with a 3x3 kernel, stride 1 and padding 1, by Winograd's F(m, 3).

    Args:
        x: (N, C, H, W), float32 or float64.
        w: (O, C, 3, 3).
        b: (O,) or None.
        m: 4 (fastest) or 2 (more accurate); see the errors above.

    Returns:
        (N, O, H, W).

    Raises:
        ValueError: the kernel is not 3x3, or there are no transforms for m.
    """
    transformed = WinogradFilter(w, b, m=m)
    y = empty((x.shape[0], w.shape[0], *x.shape[2:]), x.dtype)
    if y.size:
        transformed.convolve(x, y)
    return y
