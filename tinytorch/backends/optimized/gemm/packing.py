"""Packing: copy a block of a matrix into the order in which the micro-kernel reads it.

A panel holds, for each step of k, the elements of up to `width` rows of A (or columns of B) side by
side, so that the micro-kernel walks through memory in one direction whatever the strides were:

    A   r0: a b c d ...            packed:  a e i | b f j | c g k | ...
        r1: e f g h ...   -->               k = 0   k = 1   k = 2
        r2: i j k l ...

Where k runs along memory that is a transposition: blocks of lanes x lanes go through registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tinytorch.backends.optimized.gemm.blocking import LINE_BYTES
from tinytorch.jit.library import export
from tinytorch.jit.llvm import (
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)
from tinytorch.jit.operands import MATRIX, ROWS, SIZE, Matrix, Rows

TRANSPOSE_BYTES = 32
"""Register size for transposing: four blocks of 8 x 8 take 96 shuffles, one of 16 x 16 as much as
128 of them, where a processor does a shuffle of 64 bytes in two halves."""


def _ask_twin(dtype: Any, *arguments: int) -> None:
    """Nothing changes by it."""


@vector_intrinsic(_ask_twin)
def ask_rows(e: VectorEmitter, at: Value, stride: Value, count: Value, nbytes: Value) -> None:
    """Ask for `count` rows of `nbytes`, `stride` apart, from an address on."""
    lines = e.builder.sdiv(e.add(nbytes, LINE_BYTES - 1), i64(LINE_BYTES))

    def line(state: list[Value]) -> list[Value]:
        e.prefetch(state[0], level=2)
        return [e.at(state[0], LINE_BYTES)]

    def row(state: list[Value]) -> list[Value]:
        e.loop(lines, state, line)
        return [e.at(state[0], stride)]

    e.loop(count, [e.pointer(at)], row)


def _clear_twin(dtype: Any, width: int, depth: int, panel: Rows, at: int) -> None:
    memory(dtype, panel.address + at, (depth, width), (panel.stride,))[...] = 0


@vector_intrinsic(_clear_twin)
def clear_columns(e: VectorEmitter, width: Value, depth: Value, panel: Rows, at: Value) -> None:
    """Zero `width` columns of a panel, less than a vector, from byte `at` of each row on."""
    mask = e.first_lanes(width)

    def step(state: list[Value]) -> list[Value]:
        e.store(e.zeros, state[0], mask)
        return [e.at(state[0], panel.stride)]

    e.loop(depth, [e.at(e.pointer(panel.address), at)], step)


def emit_transpose(e: VectorEmitter, rows: list[Value]) -> list[Value]:
    """The transpose of a lanes x lanes block held in registers.

    Blocks off the diagonal are swapped, first of half the size, then of a quarter, ... (Eklundh, A
    fast computer method for matrix transposing, IEEE Trans. Computers C-21, 1972).
    """
    lanes = e.lanes
    size = lanes // 2
    while size:
        upper = [i if not i & size else lanes + i - size for i in range(lanes)]
        lower = [i + size if not i & size else lanes + i for i in range(lanes)]
        for i in range(lanes):
            if not i & size:
                x, y = rows[i], rows[i + size]
                rows[i], rows[i + size] = e.shuffle(x, y, upper), e.shuffle(x, y, lower)
        size //= 2
    return rows


def _pack_twin(dtype: Any, width: int, depth: int, source: Matrix, target: Rows) -> None:
    memory(dtype, target.address, (depth, width), (target.stride,))[...] = memory(
        dtype, source.address, (depth, width), (source.column, source.row)
    )


@vector_intrinsic(_pack_twin)
def _pack(e: VectorEmitter, width: Value, depth: Value, matrix: Matrix, panel: Rows) -> None:
    build = e.builder
    across, along, ld = matrix.row, matrix.column, panel.stride
    source, target = e.pointer(matrix.address), e.pointer(panel.address)

    def copy_vectors(source: Value, target: Value) -> None:
        """Elements of a step are adjacent: copy them as vectors."""

        whole = build.sdiv(width, i64(e.lanes))
        left = build.sub(width, e.mul(whole, e.lanes))
        mask = e.first_lanes(left)

        def step(state: list[Value]) -> list[Value]:
            def vector(state: list[Value]) -> list[Value]:
                e.store(e.load(state[0]), state[1])
                return [e.at(place, e.register_bytes) for place in state]

            x, y = e.loop(whole, state, vector)
            with build.if_then(build.icmp_signed(">", left, i64(0))):
                e.store(e.load(x, mask), y, mask)
            return [e.at(state[0], along), e.at(state[1], ld)]

        e.loop(depth, [source, target], step)

    def transpose_rows(
        e: VectorEmitter, x: Value, y: Value, offsets: list[Value], mask: Value | None
    ) -> None:
        """A register's worth of rows, all of their steps."""

        def block(state: list[Value]) -> list[Value]:
            p, q = state
            for column in emit_transpose(e, [e.load(e.at(p, offset)) for offset in offsets]):
                e.store(column, q, mask)
                q = e.at(q, ld)
            return [e.at(p, e.register_bytes), q]

        whole = build.sdiv(depth, i64(e.lanes))
        p, q = e.loop(whole, [x, y], block)
        left = build.sub(depth, e.mul(whole, e.lanes))
        with build.if_then(build.icmp_signed(">", left, i64(0))):
            part = e.first_lanes(left)
            rest = emit_transpose(e, [e.load(e.at(p, offset), part) for offset in offsets])
            for k, column in enumerate(rest[:-1]):
                with build.if_then(build.icmp_signed("<", i64(k), left)):
                    e.store(column, q, mask)
                q = e.at(q, ld)

    def transpose_blocks(e: VectorEmitter, source: Value, target: Value) -> None:
        """Elements of a row are adjacent: transpose blocks of lanes x lanes."""

        def group(state: list[Value]) -> list[Value]:
            rows, x, y = state
            last = e.add(rows, -1)
            offsets = []
            for r in range(e.lanes):  # a row beyond the last is the last again; it is not stored
                row = build.select(build.icmp_signed("<", i64(r), last), i64(r), last)
                offsets.append(build.mul(row, across))
            full = build.icmp_signed(">=", rows, i64(e.lanes))
            with build.if_else(full) as (plain, ragged):
                with plain:
                    transpose_rows(e, x, y, offsets, None)
                with ragged:
                    transpose_rows(e, x, y, offsets, e.first_lanes(rows))
            x = e.at(x, e.mul(across, e.lanes))
            return [e.add(rows, -e.lanes), x, e.at(y, e.register_bytes)]

        groups = build.sdiv(e.add(width, e.lanes - 1), i64(e.lanes))
        e.loop(groups, [width, source, target], group)

    def copy_elements(source: Value, target: Value) -> None:
        """Any strides."""

        def step(state: list[Value]) -> list[Value]:
            def element(state: list[Value]) -> list[Value]:
                e.store_scalar(e.load_scalar(state[0]), state[1])
                return [e.at(state[0], across), e.at(state[1], e.itemsize)]

            e.loop(width, state, element)
            return [e.at(state[0], along), e.at(state[1], ld)]

        e.loop(depth, [source, target], step)

    def has_adjacent(stride: Value) -> Value:
        return build.icmp_signed("==", stride, i64(e.itemsize))

    with build.if_else(has_adjacent(across)) as (adjacent, other):
        with adjacent:
            copy_vectors(source, target)
        with other, build.if_else(has_adjacent(along)) as (transposed, scattered):
            with transposed:
                transpose_blocks(e.narrowed(TRANSPOSE_BYTES), source, target)
            with scattered:
                copy_elements(source, target)


_SIGNATURE = types.void(SIZE, SIZE, MATRIX, ROWS)


def _make_pack(real: Any) -> Callable[..., None]:
    @export(f"tinytorch_pack_f{8 * np.dtype(real).itemsize}", _SIGNATURE)
    def pack(width: int, depth: int, source: Matrix, target: Rows) -> None:
        """target[p, r] = source[r, p] for r < width and p < depth.

        Args:
            width, depth: elements of a step, and steps.
            source: (width, depth), any strides.
            target: the panel, a row for each step.
        """
        _pack(real, width, depth, source, target)

    return pack


pack_f32, pack_f64 = map(_make_pack, (np.float32, np.float64))
