"""A chain of matrix products in registers: the GEMM tile, summed over several pairs of matrices.

    C = start + A_0 @ B_0 + A_1 @ B_1 + ...     (emitted as LLVM IR)

The pairs lie at equal distances; C stays in registers until KC steps or so are summed
(`in_blocks`). In a convolution a pair is a row: of weights and the image under them (`batch`), or
of the output's gradient and the image (`conv2d_weight`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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


def _emit_chain_tile(e: VectorEmitter, arguments: Sequence[Value], rows: int, vectors: int) -> None:
    """One tile size."""
    count, k, a, rsa, next_a, b, ldb, next_b, start, ld_start, c, ldc = arguments
    a, b, start, c = (e.pointer(address) for address in (a, b, start, c))

    def operands(walk: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        weight, row = walk
        values = [e.load(e.at(row, j * e.register_bytes)) for j in range(vectors)]
        return weight, values, [e.at(weight, e.itemsize), e.at(row, ldb)]

    def pair(state: list[Value]) -> list[Value]:
        x, y, *sums = state
        sums = emit_tile(e, k, rsa, rows, [x, y], sums, operands)[2:]
        return [e.at(x, next_a), e.at(y, next_b), *sums]

    def addresses(base: Value, ld: Value) -> list[Value]:
        rows_of = [e.at(base, e.mul(ld, r)) for r in range(rows)]
        return [e.at(row, j * e.register_bytes) for row in rows_of for j in range(vectors)]

    sums = e.loop(count, [a, b, *[e.zeros] * (rows * vectors)], pair)[2:]
    begin = addresses(start, ld_start)
    sums = e.either(
        e.builder.icmp_signed("!=", e.builder.ptrtoint(start, I64), i64(0)),
        lambda: [e.builder.fadd(e.load(at), x) for at, x in zip(begin, sums, strict=True)],
        lambda: sums,
    )
    for value, address in zip(sums, addresses(c, ldc), strict=True):
        e.store(value, address)


def _chain_tile_twin(
    dtype: Any, rows: int, columns: int, count: int, k: int, a: int, rsa: int, next_a: int, b: int,
    ldb: int, next_b: int, start: int, ld_start: int, c: int, ldc: int,
) -> None:  # fmt: skip
    result = np.zeros((rows, columns), dtype)
    if start:
        result += memory(dtype, start, (rows, columns), (ld_start,))
    for i in range(count):
        weights = memory(dtype, a + i * next_a, (rows, max(k, 0)), (rsa,))
        result += weights @ memory(dtype, b + i * next_b, (max(k, 0), columns), (ldb,))
    memory(dtype, c, (rows, columns), (ldc,))[...] = result


@vector_intrinsic(_chain_tile_twin)
def _chain_tile(e: VectorEmitter, rows: Value, columns: Value, *arguments: Value) -> None:
    tile_table(e, rows, columns, partial(_emit_chain_tile, e, arguments))


_SIGNATURE = types.void(*[types.intp] * 14)


@export("tinytorch_chain_tile_f32", _SIGNATURE)
def chain_tile_f32(
    rows: int, columns: int, count: int, k: int, a: int, rsa: int, next_a: int, b: int, ldb: int,
    next_b: int, start: int, ld_start: int, c: int, ldc: int,
) -> None:  # fmt: skip
    """C = start + the sum over i < count of A_i @ B_i for one register tile, in float32.

    Args:
        rows, columns: size of the tile; columns are whole vectors.
        count, k: pairs of matrices, and columns of each A.
        a, rsa, next_a: address of A_0, bytes from row to row, and from one A to the next; the
            elements of a row are adjacent.
        b, ldb, next_b: the same for B.
        start, ld_start, c, ldc: as for `gemm_tile_f32`, of whole vectors.
    """
    _chain_tile(
        np.float32, rows, columns, count, k, a, rsa, next_a, b, ldb, next_b, start, ld_start, c, ldc
    )


@export("tinytorch_chain_tile_f64", _SIGNATURE)
def chain_tile_f64(
    rows: int, columns: int, count: int, k: int, a: int, rsa: int, next_a: int, b: int, ldb: int,
    next_b: int, start: int, ld_start: int, c: int, ldc: int,
) -> None:  # fmt: skip
    """`chain_tile_f32` in float64."""
    _chain_tile(
        np.float64, rows, columns, count, k, a, rsa, next_a, b, ldb, next_b, start, ld_start, c, ldc
    )


@kernel(force_inline=True)
def in_blocks(
    tile: Callable[..., None], itemsize: int, rows: int, columns: int, count: int, k: int, a: int,
    rsa: int, next_a: int, b: int, ldb: int, next_b: int, start: int, ld_start: int, c: int,
    ldc: int,
) -> None:  # fmt: skip
    """A chain of any length, with the arguments of `chain_tile_f32`.

    About KC steps are summed at a time, from zero (see `gemm.micro_kernel`).
    """
    most = KC_BYTES // itemsize
    pairs, depth = max(most // max(k, 1), 1), balanced(k, most)
    for i in range(0, max(count, 1), pairs):
        for p in range(0, max(k, 1), max(depth, 1)):
            first = i == 0 and p == 0
            tile(
                rows, columns, min(pairs, count - i), min(depth, k - p),
                a + i * next_a + p * itemsize, rsa, next_a, b + i * next_b + p * ldb, ldb, next_b,
                start if first else c, ld_start if first else ldc, c, ldc,
            )  # fmt: skip
