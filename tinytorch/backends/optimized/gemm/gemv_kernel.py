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

With several rows of x each element of B has more to do, and the processor no longer looks far
enough ahead by itself. So a few rows of B are read side by side, that x is loaded once for all of
them, and memory is asked for what comes after them, in one stream.

The rows of B may be bfloat16: the upper halves of floats, which are read as such and widened in
registers, half as many bytes. They go on up to whole vectors, so their loads need no mask.

`dot_kernel` does the same for many rows of A, or where B is in the cache, several rows at a time:
from memory those are several streams, at half of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tinytorch.dtypes import Array, bfloat16_values
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
from tinytorch.jit.operands import ROWS, SIZE, Rows

GEMV_ROWS = 8
FEW_ROWS = 8
"""Rows of A that a row of B is multiplied with at a time."""

MOST_AT_ONCE = 4
"""Rows of B at a time, at most, for several rows of x."""


def _emit_sum_of_rows(e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
    """One number of rows."""
    n, of_x, of_b, start, y, relu = arguments
    build = e.builder
    x, b, start, y = (e.pointer(at) for at in (of_x.address, of_b.address, start, y))
    factors = [e.splat(e.load_scalar(e.at(x, e.mul(of_x.stride, r)))) for r in range(rows)]
    offsets = [e.mul(of_b.stride, r) for r in range(rows)]
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
    dtype: Any, rows: int, n: int, x: Rows, b: Rows, start: int, y: int, relu: int
) -> None:
    left = memory(dtype, x.address, (rows,), (x.stride,))
    total = left @ memory(dtype, b.address, (rows, n), (b.stride,))
    if start:
        total += memory(dtype, start, (n,))
    memory(dtype, y, (n,))[...] = np.maximum(total, 0) if relu else total


@vector_intrinsic(_sum_of_rows_twin)
def _sum_of_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    cases = {r: partial(_emit_sum_of_rows, e, arguments, r) for r in range(1, GEMV_ROWS + 1)}
    e.switch(rows, cases)


_SIGNATURE = types.void(SIZE, SIZE, ROWS, ROWS, SIZE, SIZE, SIZE)


def _make_sum_of_rows(real: Any) -> Callable[..., None]:
    @export(f"tinytorch_sum_of_rows_f{8 * np.dtype(real).itemsize}", _SIGNATURE)
    def sum_of_rows(rows: int, n: int, x: Rows, b: Rows, start: int, y: int, relu: int) -> None:
        """y = start + x @ B (then relu, if set) for up to GEMV_ROWS rows of B.

        Args:
            rows, n: the size of B.
            x: a column: its elements are rows of one element.
            b: the rows.
            start: address of what y starts from (y itself accumulates), or 0 for nothing.
            y: address of the result.
            relu: not 0: store max(value, 0).
        """
        _sum_of_rows(real, rows, n, x, b, start, y, relu)

    return sum_of_rows


sum_of_rows_f32, sum_of_rows_f64 = map(_make_sum_of_rows, (np.float32, np.float64))


# -- x @ B.T ---------------------------------------------------------------------------------------


def rows_at_once(rows: int) -> int:
    """Rows of B at a time, for so many rows of x: as many as there are registers for."""
    return 1 if rows == 1 else max(min(_room() // rows, MOST_AT_ONCE), 1)


def _room() -> int:
    """Registers for sums; x comes from memory."""
    return min(24, host_vector_unit().registers - 4)


RowLoad = Callable[[VectorEmitter, Value, Value, Value | None], Value]
"""A vector of a row of B as floats, from the row, the offset in bytes of floats, and a mask."""


def _floats(e: VectorEmitter, row: Value, at: Value, mask: Value | None) -> Value:
    return e.load(e.at(row, at), mask)


def _bfloat16_as_floats(e: VectorEmitter, row: Value, at: Value, mask: Value | None) -> Value:
    build, half = e.builder, ir.VectorType(ir.IntType(16), e.lanes)
    start = e.at(row, build.lshr(at, i64(1)))
    if mask is not None:  # of no lane: then the row may have ended
        some = build.extract_element(mask, ir.Constant(I32, 0))
        start = build.select(some, start, row)
    loaded = build.load(build.bitcast(start, half.as_pointer()), align=1)
    bits = build.zext(loaded, ir.VectorType(I32, e.lanes))
    upper = build.shl(bits, ir.Constant(bits.type, [16] * e.lanes))
    floats = build.bitcast(upper, e.vector)
    return floats if mask is None else build.select(mask, floats, e.zeros)


def _emit_dots_with_rows(
    e: VectorEmitter, arguments: Sequence[Value], row_load: RowLoad, rows: int
) -> None:
    """One number of rows of x."""
    n, k, left, right, begins, result, relu = arguments
    build, columns = e.builder, rows_at_once(rows)
    x, b, start, y = (e.pointer(operand.address) for operand in (left, right, begins, result))
    xs = [e.at(x, e.mul(left.stride, r)) for r in range(rows)]
    given = build.icmp_signed("!=", build.ptrtoint(start, I64), i64(0))
    floor = e.floor(relu)
    tile, nbytes = rows * columns, e.mul(right.stride, columns)
    nbytes_of_vector = e.register_bytes // (1 if row_load is _floats else 2)
    chains = max(c for c in (1, 2, 4, 8) if c * tile <= max(_room(), tile))
    whole = build.sdiv(k, i64(chains * e.lanes))
    rest = build.sub(k, e.mul(whole, chains * e.lanes))
    single = build.sdiv(rest, i64(e.lanes))
    mask = e.first_lanes(build.sub(rest, e.mul(single, e.lanes)))

    def add(
        bs: list[Value], at: Value, sums: list[Value], mask: Value | None = None
    ) -> list[Value]:
        vectors = [row_load(e, b, at, mask) for b in bs]
        given = [e.load(e.at(x, at), mask) for x in xs]
        products = [(x, vector) for x in given for vector in vectors]
        return [e.fma(v, x, total) for (x, v), total in zip(products, sums, strict=True)]

    def dots(bs: list[Value]) -> list[Value]:
        def steps(state: list[Value]) -> list[Value]:
            at, ahead, sums = state[0], state[1], list(state[2:])
            # rows of B together may be as large as the first-level cache; and by the time that it
            # takes to widen halves, a processor does not look far enough ahead
            if rows > 1 or row_load is not _floats:
                ahead = e.ask_ahead(ahead, chains * columns * nbytes_of_vector, level=2)
            for c in range(chains):
                own = slice(c * tile, (c + 1) * tile)
                sums[own] = add(bs, e.add(at, c * e.register_bytes), sums[own])
            return [e.add(at, chains * e.register_bytes), ahead, *sums]

        def step(state: list[Value]) -> list[Value]:
            return [e.add(state[0], e.register_bytes), *add(bs, state[0], state[1:])]

        initial = [i64(0), e.far_ahead(bs[0], nbytes), *[e.zeros] * (tile * chains)]
        at, _, *sums = e.loop(whole, initial, steps)
        while len(sums) > tile:
            half = len(sums) // 2
            sums = [build.fadd(p, q) for p, q in zip(sums[:half], sums[half:], strict=True)]
        at, *sums = e.loop(single, [at, *sums], step)
        return add(bs, at, sums, mask)

    def rows_of_b(state: list[Value]) -> list[Value]:
        left, b, offset = state
        bs, places = [b], [offset]
        for t in range(1, columns):  # where there are fewer, the last one again, to the same place
            is_there = build.icmp_signed("<", i64(t), left)
            bs.append(build.select(is_there, e.at(b, e.mul(right.stride, t)), bs[-1]))
            places.append(build.select(is_there, e.add(offset, t * e.itemsize), places[-1]))
        sums = dots(bs)
        totals = [e.sums(sums[i : i + e.lanes]) for i in range(0, tile, e.lanes)]
        corners = [
            (e.mul(begins.stride, r), e.mul(result.stride, r), place)
            for r in range(rows)
            for place in places
        ]
        begin = e.either(
            given,
            lambda: [e.load_scalar(e.at(start, build.add(row, c))) for row, _, c in corners],
            lambda: [ir.Constant(e.element, 0.0)] * tile,
        )
        for i, (_, row, place) in enumerate(corners):
            total = build.extract_element(totals[i // e.lanes], ir.Constant(I32, i % e.lanes))
            value = build.fadd(begin[i], total)
            e.store_scalar(e.at_least(value, floor), e.at(y, build.add(row, place)))
        return [e.add(left, -columns), e.at(b, nbytes), e.add(offset, columns * e.itemsize)]

    e.loop(build.sdiv(e.add(n, columns - 1), i64(columns)), [n, b, i64(0)], rows_of_b)


def _dots_with_rows_twin(dtype: Any, rows: int, n: int, k: int, *arguments: Any) -> None:
    b = arguments[1]
    right = memory(dtype, b.address, (n, k), (b.stride,))
    _dots_twin(dtype, rows, right, *arguments)


def _dots_with_bfloat16_twin(dtype: Any, rows: int, n: int, k: int, *arguments: Any) -> None:
    b = arguments[1]
    right = bfloat16_values(memory(np.uint16, b.address, (n, k), (b.stride,)))
    _dots_twin(dtype, rows, right, *arguments)


def _dots_twin(dtype: Any, rows: int, right: Array, *arguments: Any) -> None:
    (x, _, start, y, relu), (n, k) = arguments, right.shape
    total = memory(dtype, x.address, (rows, k), (x.stride,)) @ right.T
    if start.address:
        total += memory(dtype, start.address, (rows, n), (start.stride,))
    target = memory(dtype, y.address, (rows, n), (y.stride,))
    target[...] = np.maximum(total, 0) if relu else total


@vector_intrinsic(_dots_with_rows_twin)
def _dots_with_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    _switch_on_rows(e, rows, arguments, _floats)


@vector_intrinsic(_dots_with_bfloat16_twin)
def _dots_with_bfloat16(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    _switch_on_rows(e, rows, arguments, _bfloat16_as_floats)


def _switch_on_rows(
    e: VectorEmitter, rows: Value, arguments: Sequence[Value], row_load: RowLoad
) -> None:
    emit = partial(_emit_dots_with_rows, e, arguments, row_load)
    e.switch(rows, {r: partial(emit, r) for r in range(1, FEW_ROWS + 1)})


_DOTS_SIGNATURE = types.void(SIZE, SIZE, SIZE, ROWS, ROWS, ROWS, ROWS, SIZE)


def _make_dots_with_rows(real: Any) -> Callable[..., None]:
    @export(f"tinytorch_dots_with_rows_f{8 * np.dtype(real).itemsize}", _DOTS_SIGNATURE)
    def dots_with_rows(
        rows: int, n: int, k: int, x: Rows, b: Rows, start: Rows, y: Rows, relu: int
    ) -> None:
        """y = start + x @ B.T (then relu, if set) for up to FEW_ROWS rows of x.

        Args:
            rows, n, k: x is rows x k, B is n x k.
            x, b: the operands.
            start: what y starts from, or address 0 for nothing.
            y: the result.
            relu: not 0: store max(value, 0).
        """
        _dots_with_rows(real, rows, n, k, x, b, start, y, relu)

    return dots_with_rows


dots_with_rows_f32, dots_with_rows_f64 = map(_make_dots_with_rows, (np.float32, np.float64))


@export("tinytorch_dots_with_bfloat16", _DOTS_SIGNATURE)
def dots_with_bfloat16(
    rows: int, n: int, k: int, x: Rows, b: Rows, start: Rows, y: Rows, relu: int
) -> None:
    """`dots_with_rows_f32` with rows of B in bfloat16, which go on up to whole vectors."""
    _dots_with_bfloat16(np.float32, rows, n, k, x, b, start, y, relu)
