"""The vector-matrix micro-kernel: a sum of rows, for y = x @ B (emitted as LLVM IR).

With one row of A each element of B is used once, so memory is the limit: B must be read in the
order in which it lies. Eight rows are read side by side from end to end, which the processor's
prefetchers follow, while y goes through the first-level cache once for every eight rows.

    x0 * B[0, :]
    x1 * B[1, :]     y[j] = start[j] + x0 * B[0, j] + ... + x7 * B[7, j]
         :
    x7 * B[7, :]

The other layout, y = B.T @ x with k along memory, is what `dot_kernel` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import types

from tinytorch.jit.library import export
from tinytorch.jit.llvm import (
    I64,
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)

GEMV_ROWS = 8


def _emit_sum_of_rows(e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
    """One number of rows."""
    n, x, stride, b, ldb, start, y, relu = arguments
    build = e.builder
    x, b, start, y = (e.pointer(address) for address in (x, b, start, y))
    factors = [e.splat(e.load_scalar(e.at(x, e.mul(stride, r)))) for r in range(rows)]
    offsets = [e.mul(ldb, r) for r in range(rows)]
    given = build.icmp_signed("!=", build.ptrtoint(start, I64), i64(0))
    floor = e.splat(e.floor(relu))

    def vector(at: Value, mask: Value | None = None) -> None:
        (total,) = e.either(given, lambda: [e.load(e.at(start, at), mask)], lambda: [e.zeros])
        for factor, offset in zip(factors, offsets, strict=True):
            total = e.fma(factor, e.load(e.at(e.at(b, offset), at), mask), total)
        e.store(e.at_least(total, floor), e.at(y, at), mask)

    def step(state: list[Value]) -> list[Value]:
        vector(state[0])
        return [e.add(state[0], e.register_bytes)]

    whole = build.sdiv(n, i64(e.lanes))
    (at,) = e.loop(whole, [i64(0)], step)
    left = build.sub(n, e.mul(whole, e.lanes))
    with build.if_then(build.icmp_signed(">", left, i64(0))):
        vector(at, e.first_lanes(left))


def _sum_of_rows_twin(
    dtype: Any, rows: int, n: int, x: int, stride: int, b: int, ldb: int, start: int, y: int,
    relu: int,
) -> None:  # fmt: skip
    total = memory(dtype, x, (rows,), (stride,)) @ memory(dtype, b, (rows, n), (ldb,))
    if start:
        total += memory(dtype, start, (n,))
    memory(dtype, y, (n,))[...] = np.maximum(total, 0) if relu else total


@vector_intrinsic(_sum_of_rows_twin)
def _sum_of_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    cases = {r: partial(_emit_sum_of_rows, e, arguments, r) for r in range(1, GEMV_ROWS + 1)}
    e.switch(rows, cases)


_SIGNATURE = types.void(*[types.intp] * 9)


@export("tinytorch_sum_of_rows_f32", _SIGNATURE)
def sum_of_rows_f32(
    rows: int, n: int, x: int, stride: int, b: int, ldb: int, start: int, y: int, relu: int
) -> None:
    """y = start + x @ B (then relu, if set) for up to GEMV_ROWS rows of B, in float32.

    Args:
        rows, n: the size of B.
        x, stride: address of x, and bytes from one element to the next.
        b, ldb: address of B and its row stride in bytes; rows are contiguous.
        start: address of what y starts from (y itself accumulates), or 0 for nothing.
        y: address of the result.
        relu: not 0: store max(value, 0).
    """
    _sum_of_rows(np.float32, rows, n, x, stride, b, ldb, start, y, relu)


@export("tinytorch_sum_of_rows_f64", _SIGNATURE)
def sum_of_rows_f64(
    rows: int, n: int, x: int, stride: int, b: int, ldb: int, start: int, y: int, relu: int
) -> None:
    """`sum_of_rows_f32` in float64."""
    _sum_of_rows(np.float64, rows, n, x, stride, b, ldb, start, y, relu)
