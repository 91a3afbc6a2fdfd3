"""A chain of matrix products in registers: the GEMM tile, summed over several pairs of matrices.

    C = start + A_0 @ B_0 + A_1 @ B_1 + ...     (emitted as LLVM IR)

The pairs lie at equal distances; C stays in registers until KC steps or so are summed
(`in_blocks`). In a convolution a pair is a row: of weights and the image under them (`batch`), or
of the output's gradient and the image (`conv2d_weight`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numba import types

from tinytorch.backends.optimized.gemm.blocking import KC_BYTES, balanced
from tinytorch.backends.optimized.gemm.micro_kernel import emit_tile, tile_table
from tinytorch.jit.library import export, kernel
from tinytorch.jit.llvm import (
    I64,
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)
from tinytorch.jit.operands import ROWS, SIZE, STACK, Rows, Stack


def _emit_chain_tile(e: VectorEmitter, arguments: Sequence[Value], rows: int, vectors: int) -> None:
    """One tile size."""
    count, k, left, right, begins, result = arguments
    a, b, start, c = (e.pointer(x.address) for x in (left, right, begins, result))

    def operands(walk: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        weight, row = walk
        values = [e.load(e.at(row, j * e.register_bytes)) for j in range(vectors)]
        return weight, values, [e.at(weight, e.itemsize), e.at(row, right.stride)]

    def pair(state: list[Value]) -> list[Value]:
        x, y, *sums = state
        sums = emit_tile(e, k, left.stride, rows, [x, y], sums, operands)[2:]
        return [e.at(x, left.step), e.at(y, right.step), *sums]

    def addresses(base: Value, ld: Value) -> list[Value]:
        rows_of = [e.at(base, e.mul(ld, r)) for r in range(rows)]
        return [e.at(row, j * e.register_bytes) for row in rows_of for j in range(vectors)]

    sums = e.loop(count, [a, b, *[e.zeros] * (rows * vectors)], pair)[2:]
    begin = addresses(start, begins.stride)
    sums = e.either(
        e.builder.icmp_signed("!=", e.builder.ptrtoint(start, I64), i64(0)),
        lambda: [e.builder.fadd(e.load(at), x) for at, x in zip(begin, sums, strict=True)],
        lambda: sums,
    )
    for value, address in zip(sums, addresses(c, result.stride), strict=True):
        e.store(value, address)


def _chain_tile_twin(dtype: Any, rows: int, columns: int, *arguments: Any) -> None:
    count, k, a, b, start, c = arguments
    result = np.zeros((rows, columns), dtype)
    if start.address:
        result += memory(dtype, start.address, (rows, columns), (start.stride,))
    for i in range(count):
        weights = memory(dtype, a.address + i * a.step, (rows, max(k, 0)), (a.stride,))
        at = b.address + i * b.step
        result += weights @ memory(dtype, at, (max(k, 0), columns), (b.stride,))
    memory(dtype, c.address, (rows, columns), (c.stride,))[...] = result


@vector_intrinsic(_chain_tile_twin)
def _chain_tile(e: VectorEmitter, rows: Value, columns: Value, *arguments: Value) -> None:
    tile_table(e, rows, columns, partial(_emit_chain_tile, e, arguments))


_SIGNATURE = types.void(SIZE, SIZE, SIZE, SIZE, STACK, STACK, ROWS, ROWS)


def _make_chain_tile(real: Any) -> Callable[..., None]:
    @export(f"tinytorch_chain_tile_f{8 * np.dtype(real).itemsize}", _SIGNATURE)
    def chain_tile(
        rows: int, columns: int, count: int, k: int, a: Stack, b: Stack, start: Rows, c: Rows
    ) -> None:
        """C = start + the sum over i < count of A_i @ B_i for one register tile.

        Args:
            rows, columns: size of the tile; columns are whole vectors.
            count, k: pairs of matrices, and columns of each A.
            a, b: the matrices.
            start, c: as for `gemm_tile`, of whole vectors.
        """
        _chain_tile(real, rows, columns, count, k, a, b, start, c)

    return chain_tile


chain_tile_f32, chain_tile_f64 = map(_make_chain_tile, (np.float32, np.float64))


@cache
def make_in_blocks(tile: Callable[..., None], itemsize: int) -> Callable[..., None]:
    """`in_blocks`: a kernel for chains of any length, of a tile of elements of `itemsize` bytes."""
    most = KC_BYTES // itemsize

    @kernel(force_inline=True)
    def in_blocks(
        rows: int,
        columns: int,
        count: int,
        k: int,
        a: Stack,
        b: Stack,
        start: Rows,
        c: Rows,
    ) -> None:
        """A chain of any length, with the arguments of `chain_tile`.

        About KC steps are summed at a time, from zero (see `gemm.micro_kernel`).
        """
        pairs, depth = max(most // max(k, 1), 1), balanced(k, most)
        for i in range(0, max(count, 1), pairs):
            for p in range(0, max(k, 1), max(depth, 1)):
                left = Stack(a.address + i * a.step + p * itemsize, a.stride, a.step)
                right = Stack(b.address + i * b.step + p * b.stride, b.stride, b.step)
                begin = start if i == 0 and p == 0 else c
                tile(rows, columns, min(pairs, count - i), min(depth, k - p), left, right, begin, c)

    return in_blocks
