"""The vector-matrix micro-kernels, for y = x @ B and y = x @ B.T (emitted as LLVM IR).

With one row of A, or a few, each element of B is used once or a few times, so memory is the limit:
B must be read in the order in which it lies.

For x @ B eight rows are read side by side from end to end, which the processor's prefetchers
follow, while y goes through the first-level cache once for every eight rows.

    x0 * B[0, :]
    x1 * B[1, :]     y[j] = start[j] + x0 * B[0, j] + ... + x7 * B[7, j]
         :
    x7 * B[7, :]

For x @ B.T the rows of B are read one after the other: a single stream. Its product with x goes to
several sums at once, since one sum alone would wait for each multiply-add before the next.

    B[0, :]  ------------------------>  y[0] = start[0] + sum of x * B[0, :]
    B[1, :]  ------------------------>  y[1]
       :

`dot_kernel` does the same for many rows of A, or where B is in the cache, several rows at a time:
from memory those are several streams, at half of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import export
from tinytorch.jit.llvm import (
    I32,
    I64,
    Value,
    VectorEmitter,
    i64,
    memory,
    vector_intrinsic,
)

GEMV_ROWS = 8
FEW_ROWS = 6
"""Rows of A that a row of B is multiplied with at a time."""


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
        total = e.zeros  # of these rows alone: what y starts from may be a far larger sum
        for factor, offset in zip(factors, offsets, strict=True):
            total = e.fma(factor, e.load(e.at(e.at(b, offset), at), mask), total)
        (begin,) = e.either(given, lambda: [e.load(e.at(start, at), mask)], lambda: [e.zeros])
        total = build.fadd(begin, total)
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


# -- x @ B.T ---------------------------------------------------------------------------------------


def _emit_dots_with_rows(e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
    """One number of rows of x."""
    n, k, x, ldx, b, ldb, start, ld_start, y, ldy, relu = arguments
    build = e.builder
    x, b, start, y = (e.pointer(address) for address in (x, b, start, y))
    xs = [e.at(x, e.mul(ldx, r)) for r in range(rows)]
    given = build.icmp_signed("!=", build.ptrtoint(start, I64), i64(0))
    floor = e.floor(relu)
    room = min(24, host_vector_unit().registers - 4)  # for sums; x comes from memory
    chains = max(c for c in (1, 2, 4, 8) if c * rows <= room)
    whole = build.sdiv(k, i64(chains * e.lanes))
    rest = build.sub(k, e.mul(whole, chains * e.lanes))
    single = build.sdiv(rest, i64(e.lanes))
    mask = e.first_lanes(build.sub(rest, e.mul(single, e.lanes)))

    def add(b: Value, at: Value, sums: list[Value], mask: Value | None = None) -> list[Value]:
        vector = e.load(e.at(b, at), mask)
        pairs = zip(xs, sums, strict=True)
        return [e.fma(vector, e.load(e.at(x, at), mask), total) for x, total in pairs]

    def dots(b: Value) -> list[Value]:
        def steps(state: list[Value]) -> list[Value]:
            at, sums = state[0], list(state[1:])
            for c in range(chains):
                own = slice(c * rows, (c + 1) * rows)
                sums[own] = add(b, e.add(at, c * e.register_bytes), sums[own])
            return [e.add(at, chains * e.register_bytes), *sums]

        def step(state: list[Value]) -> list[Value]:
            return [e.add(state[0], e.register_bytes), *add(b, state[0], state[1:])]

        at, *sums = e.loop(whole, [i64(0), *[e.zeros] * (rows * chains)], steps)
        while len(sums) > rows:
            half = len(sums) // 2
            sums = [build.fadd(p, q) for p, q in zip(sums[:half], sums[half:], strict=True)]
        at, *sums = e.loop(single, [at, *sums], step)
        return add(b, at, sums, mask)

    def row(state: list[Value]) -> list[Value]:
        b, offset = state
        totals = e.sums(dots(b))
        at = [e.at(start, build.add(e.mul(ld_start, r), offset)) for r in range(rows)]
        begin = e.either(
            given,
            lambda: [e.load_scalar(address) for address in at],
            lambda: [ir.Constant(e.element, 0.0)] * rows,
        )
        for r in range(rows):
            value = build.fadd(begin[r], build.extract_element(totals, ir.Constant(I32, r)))
            to = e.at(y, build.add(e.mul(ldy, r), offset))
            e.store_scalar(e.at_least(value, floor), to)
        return [e.at(b, ldb), e.add(offset, e.itemsize)]

    e.loop(n, [b, i64(0)], row)


def _dots_with_rows_twin(
    dtype: Any, rows: int, n: int, k: int, x: int, ldx: int, b: int, ldb: int, start: int,
    ld_start: int, y: int, ldy: int, relu: int,
) -> None:  # fmt: skip
    total = memory(dtype, x, (rows, k), (ldx,)) @ memory(dtype, b, (n, k), (ldb,)).T
    if start:
        total += memory(dtype, start, (rows, n), (ld_start,))
    memory(dtype, y, (rows, n), (ldy,))[...] = np.maximum(total, 0) if relu else total


@vector_intrinsic(_dots_with_rows_twin)
def _dots_with_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    cases = {r: partial(_emit_dots_with_rows, e, arguments, r) for r in range(1, FEW_ROWS + 1)}
    e.switch(rows, cases)


_DOTS_SIGNATURE = types.void(*[types.intp] * 12)


@export("tinytorch_dots_with_rows_f32", _DOTS_SIGNATURE)
def dots_with_rows_f32(
    rows: int, n: int, k: int, x: int, ldx: int, b: int, ldb: int, start: int, ld_start: int,
    y: int, ldy: int, relu: int,
) -> None:  # fmt: skip
    """y = start + x @ B.T (then relu, if set) for up to FEW_ROWS rows of x, in float32.

    Args:
        rows, n, k: x is rows x k, B is n x k.
        x, ldx, b, ldb: addresses and row strides in bytes; rows are contiguous.
        start, ld_start: address and row stride of what y starts from, or address 0 for nothing.
        y, ldy: address and row stride of the result.
        relu: not 0: store max(value, 0).
    """
    _dots_with_rows(np.float32, rows, n, k, x, ldx, b, ldb, start, ld_start, y, ldy, relu)


@export("tinytorch_dots_with_rows_f64", _DOTS_SIGNATURE)
def dots_with_rows_f64(
    rows: int, n: int, k: int, x: int, ldx: int, b: int, ldb: int, start: int, ld_start: int,
    y: int, ldy: int, relu: int,
) -> None:  # fmt: skip
    """`dots_with_rows_f32` in float64."""
    _dots_with_rows(np.float64, rows, n, k, x, ldx, b, ldb, start, ld_start, y, ldy, relu)
