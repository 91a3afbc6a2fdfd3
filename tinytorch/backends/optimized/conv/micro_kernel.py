"""The convolution micro-kernel: the GEMM tile, with a table for the rows of B (LLVM IR).

A convolution is the product of the weights, out_channels x taps, with a matrix that has one row for
each tap (channel, kernel row, kernel column) and one column for each output position. In an image
that carries its zero padding, laid out with a pitch P from row to row, the row of a tap is the
image itself, read from another point on:

    tap (c, i, j):   x + offset(c, i, j)  -->  x[q], x[q + 1], x[q + 2], ...   q = row * P + column

so the matrix is never built: a table holds the offset of each tap. Positions q beyond the width of
the output, at the end of each row, are computed and not stored. Where a vector runs across the end
of a row, its parts are stored one by one, with masks from a second table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tinytorch.backends.optimized.conv.geometry import STORE, STORE_PART
from tinytorch.backends.optimized.gemm.micro_kernel import emit_blocks, tile_table
from tinytorch.jit.library import export
from tinytorch.jit.llvm import (
    I64,
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)
from tinytorch.jit.operands import ROWS, SIZE, Rows


def _emit_conv_tile(e: VectorEmitter, arguments: Sequence[Value], rows: int, vectors: int) -> None:
    """One tile size."""
    taps, weights, x, table, stores, parts, result, bias, relu = arguments
    build, ldy = e.builder, result.stride
    places = (weights.address, x, table, stores, result.address, bias)
    w, x, table, stores, y, bias = (e.pointer(place) for place in places)
    size = e.add(e.mul(parts, 8 * STORE_PART), 8 * STORE.target)  # bytes of an entry of `stores`
    entries = [e.at(stores, e.mul(size, j)) for j in range(vectors)]
    starts = [e.at(x, e.load_scalar(entry, I64)) for entry in entries]

    def operands(walk: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        weight, tap = walk
        offset = e.load_scalar(tap, I64)
        row = [e.load(e.at(start, offset)) for start in starts]
        return weight, row, [e.at(weight, e.itemsize), e.at(tap, 8)]

    for entry in entries:
        target = e.at(y, e.load_scalar(e.at(entry, 8 * STORE.target), I64))
        for r in range(rows):
            e.prefetch(e.at(target, e.mul(ldy, r)), write=True)
    given = build.icmp_signed("!=", build.ptrtoint(bias, I64), i64(0))
    begin = e.either(
        given,
        lambda: [e.splat(e.load_scalar(e.at(bias, r * e.itemsize))) for r in range(rows)],
        lambda: [e.zeros] * rows,
    )
    floor = e.splat(e.floor(relu))
    blocks = emit_blocks(e, taps, weights.stride, rows, vectors, [w, table], operands)
    sums = [
        e.at_least(build.fadd(begin[i // vectors], value), floor) for i, value in enumerate(blocks)
    ]

    def store_part(state: list[Value]) -> list[Value]:
        for j, part in enumerate(state):
            mask_at = e.at(part, 8 * (STORE.mask - STORE.target))
            bits = build.trunc(e.load_scalar(mask_at, I64), ir.IntType(e.lanes))
            with build.if_then(build.icmp_unsigned("!=", bits, bits.type(0))):
                mask = build.bitcast(bits, e.mask)
                target = e.at(y, e.load_scalar(part, I64))
                for r in range(rows):
                    e.store(sums[r * vectors + j], e.at(target, e.mul(ldy, r)), mask)
        return [e.at(part, 8 * STORE_PART) for part in state]

    e.loop(parts, [e.at(entry, 8 * STORE.target) for entry in entries], store_part)


def _conv_tile_twin(dtype: Any, rows: int, columns: int, *arguments: Any) -> None:
    from tinytorch.jit.cpu import host_vector_unit

    taps, w, x, table, stores, parts, y, bias, relu = arguments
    lanes = host_vector_unit().register_bytes // np.dtype(dtype).itemsize
    offsets = memory(np.int64, table, (taps,))
    size = STORE.target + STORE_PART * parts
    for entry in memory(np.int64, stores, (-(-columns // lanes), size), (8 * size,)):
        matrix = np.stack(
            [memory(dtype, x + int(entry[STORE.source] + o), (lanes,)) for o in offsets]
        )
        result = memory(dtype, w.address, (rows, taps), (w.stride,)) @ matrix
        if bias:
            result += memory(dtype, bias, (rows, 1), (np.dtype(dtype).itemsize,))
        result = np.maximum(result, 0) if relu else result
        for target, bits in entry[STORE.target :].reshape(parts, STORE_PART):
            for lane in range(lanes):
                if int(bits) >> lane & 1:
                    at = y.address + int(target) + lane * result.itemsize
                    memory(dtype, at, (rows, 1), (y.stride,))[:, 0] = result[:, lane]


@vector_intrinsic(_conv_tile_twin)
def _conv_tile(e: VectorEmitter, rows: Value, columns: Value, *arguments: Value) -> None:
    tile_table(e, rows, columns, partial(_emit_conv_tile, e, arguments))


_SIGNATURE = types.void(*[SIZE] * 3, ROWS, *[SIZE] * 4, ROWS, SIZE, SIZE)


def _make_conv_tile(real: Any) -> Callable[..., None]:
    @export(f"tinytorch_conv_tile_f{8 * np.dtype(real).itemsize}", _SIGNATURE)
    def conv_tile(
        rows: int,
        columns: int,
        taps: int,
        w: Rows,
        x: int,
        table: int,
        stores: int,
        parts: int,
        y: Rows,
        bias: int,
        relu: int,
    ) -> None:
        """y[r, q] = bias[r] + the sum over taps t of w[r, t] * x[q + table[t]].

        Args:
            rows, columns: output channels, and positions (whole vectors), of the tile.
            taps: terms of a sum.
            w: the weights, a row for each output channel.
            x, table: address of the padded image, and of the byte offset (int64) of each tap.
            stores: address of one entry (int64) for each vector of positions: the byte offset of
                the vector in x, then `parts` times the byte offset in y and the mask of the lanes
                to store.
            y: the output, a row for each channel.
            bias: address of a value for each output channel, or 0.
            relu: not 0: store max(value, 0).
        """
        _conv_tile(real, rows, columns, taps, w, x, table, stores, parts, y, bias, relu)

    return conv_tile


conv_tile_f32, conv_tile_f64 = map(_make_conv_tile, (np.float32, np.float64))
