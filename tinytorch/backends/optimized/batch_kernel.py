"""The micro-kernel for images as lanes: a chain of matrix products in registers (LLVM IR).

The tile of `gemm_kernel`, summed over several pairs of matrices that lie at equal distances:

    C = start + A_0 @ B_0 + A_1 @ B_1 + ...         A_i: weights of a row of the convolution's
                                                    kernel; B_i: a row of the image under it

C stays in registers all the while.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import types

from tinytorch.backends.optimized.gemm_kernel import emit_tile, tile_table
from tinytorch.backends.optimized.library import export
from tinytorch.backends.optimized.llvm import (
    I64,
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)


def _emit_chain_tile(e: VectorEmitter, arguments: Sequence[Value], rows: int, vectors: int) -> None:
    """One tile size."""
    count, k, a, rsa, next_a, b, ldb, next_b, bias, c, ldc = arguments
    a, b, bias, c = (e.pointer(place) for place in (a, b, bias, c))

    def operands(walk: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        weight, row = walk
        values = [e.load(e.at(row, j * e.register_bytes)) for j in range(vectors)]
        return weight, values, [e.at(weight, e.itemsize), e.at(row, ldb)]

    def pair(state: list[Value]) -> list[Value]:
        x, y, *flat = state
        sums = [flat[r * vectors : (r + 1) * vectors] for r in range(rows)]
        sums = emit_tile(e, k, rsa, sums, [x, y], operands)
        return [e.at(x, next_a), e.at(y, next_b), *(value for row in sums for value in row)]

    given = e.builder.icmp_signed("!=", e.builder.ptrtoint(bias, I64), i64(0))
    begin = e.either(
        given,
        lambda: [e.splat(e.load_scalar(e.at(bias, r * e.itemsize))) for r in range(rows)],
        lambda: [e.zeros] * rows,
    )
    sums = e.loop(count, [a, b, *(begin[r] for r in range(rows) for _ in range(vectors))], pair)[2:]
    for r in range(rows):
        for j in range(vectors):
            e.store(sums[r * vectors + j], e.at(e.at(c, e.mul(ldc, r)), j * e.register_bytes))


def _chain_tile_twin(
    dtype: Any, rows: int, columns: int, count: int, k: int, a: int, rsa: int, next_a: int, b: int,
    ldb: int, next_b: int, bias: int, c: int, ldc: int,
) -> None:  # fmt: skip
    result = np.zeros((rows, columns), dtype)
    if bias:
        result += memory(dtype, bias, (rows, 1), (result.itemsize,))
    for i in range(count):
        weights = memory(dtype, a + i * next_a, (rows, max(k, 0)), (rsa,))
        result += weights @ memory(dtype, b + i * next_b, (max(k, 0), columns), (ldb,))
    memory(dtype, c, (rows, columns), (ldc,))[...] = result


@vector_intrinsic(_chain_tile_twin)
def _chain_tile(e: VectorEmitter, rows: Value, columns: Value, *arguments: Value) -> None:
    tile_table(e, rows, columns, partial(_emit_chain_tile, e, arguments))


_SIGNATURE = types.void(*[types.intp] * 13)


@export("tinytorch_chain_tile_f32", _SIGNATURE)
def chain_tile_f32(
    rows: int, columns: int, count: int, k: int, a: int, rsa: int, next_a: int, b: int, ldb: int,
    next_b: int, bias: int, c: int, ldc: int,
) -> None:  # fmt: skip
    """C = bias + the sum over i < count of A_i @ B_i for one register tile, in float32.

    Args:
        rows, columns: size of the tile; columns are whole vectors.
        count, k: pairs of matrices, and columns of each A.
        a, rsa, next_a: address of A_0, bytes from row to row, and from one A to the next; the
            elements of a row are adjacent.
        b, ldb, next_b: the same for B.
        bias: address of a value for each row, or 0.
        c, ldc: address of C, and bytes from row to row.
    """
    _chain_tile(np.float32, rows, columns, count, k, a, rsa, next_a, b, ldb, next_b, bias, c, ldc)


@export("tinytorch_chain_tile_f64", _SIGNATURE)
def chain_tile_f64(
    rows: int, columns: int, count: int, k: int, a: int, rsa: int, next_a: int, b: int, ldb: int,
    next_b: int, bias: int, c: int, ldc: int,
) -> None:  # fmt: skip
    """`chain_tile_f32` in float64."""
    _chain_tile(np.float64, rows, columns, count, k, a, rsa, next_a, b, ldb, next_b, bias, c, ldc)
