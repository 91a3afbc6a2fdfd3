"""The dot-product micro-kernel: both operands run along the summed index (emitted as LLVM IR).

Where the rows of A *and* of B are contiguous (x @ w.T, the weight gradient of a convolution), the
elements of a vector can be terms of one sum instead of columns of C:

               B0  B1  B2  B3  B4  B5      6 vector loads
              +---+---+---+---+---+---+
    A0 (vec)  |   |   |   |   |   |   |
    A1        |   acc[r][t] += Ar * Bt    24 fused multiply-adds
    A2        |   |   |   |   |   |   |    on vectors of partial sums
    A3        |   |   |   |   |   |   |
              +---+---+---+---+---+---+

Nothing is packed or transposed; the price is the sum over the lanes of each accumulator at the end.
The sum may go on over several pairs of matrices (the images of a batch) before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import types

from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import export
from tinytorch.jit.llvm import (
    I64,
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)
from tinytorch.jit.operands import ROWS, SIZE, STACK, Rows, Stack

MOST_COLUMNS = 16
"""More than any tile has columns: the jump table's row length."""


def _emit_dot_tile(e: VectorEmitter, arguments: Sequence[Value], rows: int, columns: int) -> None:
    """One tile size."""
    _, length, count, of_a, of_b, table, begins, result, relu = arguments
    build = e.builder
    a, b, start, c = (e.pointer(x.address) for x in (of_a, of_b, begins, result))
    row_offsets = [e.mul(of_a.stride, r) for r in range(rows)]

    def listed() -> list[Value]:
        first = e.pointer(table)
        return [e.load_scalar(e.at(first, 8 * t), I64) for t in range(columns)]

    has_table = build.icmp_signed("!=", table, i64(0))
    offsets = e.either(has_table, listed, lambda: [e.mul(of_b.stride, t) for t in range(columns)])

    def products(
        x: Value, ys: list[Value], sums: list[Value], mask: Value | None = None
    ) -> list[Value]:
        rows_of_a = [e.load(e.at(x, offset), mask) for offset in row_offsets]
        result = list(sums)
        for t, y in enumerate(ys):
            vector = e.load(y, mask)
            for r in range(rows):
                result[r * columns + t] = e.fma(rows_of_a[r], vector, sums[r * columns + t])
        return result

    def pair(state: list[Value]) -> list[Value]:
        x, y, sums = state[0], state[1], state[2:]
        pointers = [x, *(e.at(y, offset) for offset in offsets)]

        def step(state: list[Value]) -> list[Value]:
            pointers, sums = state[: columns + 1], state[columns + 1 :]
            sums = products(pointers[0], pointers[1:], sums)
            return [*(e.at(p, e.register_bytes) for p in pointers), *sums]

        whole = build.sdiv(length, i64(e.lanes))
        state = e.loop(whole, [*pointers, *sums], step)
        pointers, sums = state[: columns + 1], state[columns + 1 :]
        left = build.sub(length, e.mul(whole, e.lanes))
        mask = e.first_lanes(left)
        sums = e.either(
            build.icmp_signed(">", left, i64(0)),
            lambda: products(pointers[0], pointers[1:], sums, mask),
            lambda: sums,
        )
        return [e.at(x, of_a.step), e.at(y, of_b.step), *sums]

    sums = e.loop(count, [a, b, *[e.zeros] * (rows * columns)], pair)[2:]
    totals = _totals(e, [sums[r * columns : (r + 1) * columns] for r in range(rows)])
    mask = e.first_lanes(columns)
    given = build.icmp_signed("!=", build.ptrtoint(start, I64), i64(0))
    begin = e.either(
        given,
        lambda: [e.load(e.at(start, e.mul(begins.stride, r)), mask) for r in range(rows)],
        lambda: [e.zeros] * rows,
    )
    floor = e.splat(e.floor(relu))
    for r in range(rows):
        value = e.at_least(build.fadd(begin[r], totals[r]), floor)
        e.store(value, e.at(c, e.mul(result.stride, r)), mask)


def _totals(e: VectorEmitter, sums: list[list[Value]]) -> list[Value]:
    """For each row a vector whose lane t is the sum over the lanes of sums[row][t]."""
    width = 1 << (len(sums[0]) - 1).bit_length()
    together = e.lanes // width  # rows whose sums fit into one vector
    totals = []
    for first in range(0, len(sums), together):
        group = sums[first : first + together]
        tree = [partial_sums for row in group for partial_sums in row + [None] * (width - len(row))]
        total = e.sums(tree)
        for i in range(len(group)):
            lanes = [(i * width + lane) % e.lanes for lane in range(e.lanes)]
            totals.append(e.shuffle(total, total, lanes))
    return totals


def _dot_tile_twin(dtype: Any, rows: int, columns: int, *arguments: Any) -> None:
    length, count, a, b, table, start, c, relu = arguments
    offsets = memory(np.int64, table, (columns,)) if table else b.stride * np.arange(columns)
    total = dtype(0)
    if start.address:
        total = total + memory(dtype, start.address, (rows, columns), (start.stride,))
    for i in range(count):
        x = memory(dtype, a.address + i * a.step, (rows, length), (a.stride,))
        at = b.address + i * b.step
        ys = [memory(dtype, at + int(offset), (length,)) for offset in offsets]
        total = total + x @ np.stack(ys, axis=1)
    target = memory(dtype, c.address, (rows, columns), (c.stride,))
    target[...] = np.maximum(total, 0) if relu else total


@vector_intrinsic(_dot_tile_twin)
def _dot_tile(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    unit = host_vector_unit()
    cases = {
        r * MOST_COLUMNS + t: partial(_emit_dot_tile, e, arguments, r, t)
        for r in range(1, unit.dot_rows + 1)
        for t in range(1, unit.columns_of_dots(r, e.itemsize) + 1)
    }
    e.switch(e.add(e.mul(rows, MOST_COLUMNS), arguments[0]), cases)


_SIGNATURE = types.void(SIZE, SIZE, SIZE, SIZE, STACK, STACK, SIZE, ROWS, ROWS, SIZE)


def _make_dot_tile(real: Any) -> Callable[..., None]:
    @export(f"tinytorch_dot_tile_f{8 * np.dtype(real).itemsize}", _SIGNATURE)
    def dot_tile(
        rows: int,
        columns: int,
        length: int,
        count: int,
        a: Stack,
        b: Stack,
        table: int,
        start: Rows,
        c: Rows,
        relu: int,
    ) -> None:
        """C[r, t] = start + the sum over i and p of A_i[r, p] * B_i[t, p] (then relu).

        Args:
            rows, columns: size of the tile, rows up to dot_rows of the vector unit, columns up to
                its `columns_of_dots`.
            length, count: terms of a sum (p), and pairs of matrices (i).
            a, b: the matrices.
            table: address of the byte offsets (int64) of the rows of B, instead of its stride; or
                0.
            start, c, relu: as for `gemm_tile`.
        """
        _dot_tile(real, rows, columns, length, count, a, b, table, start, c, relu)

    return dot_tile


dot_tile_f32, dot_tile_f64 = map(_make_dot_tile, (np.float32, np.float64))
