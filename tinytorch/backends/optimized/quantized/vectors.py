"""One to eight rows times weights in codes, which are read once, in the order in which they lie.

Memory is the limit there. The rows were rounded to 16-bit words (`rounding`), the codes are widened
to words in registers: a product of words takes no longer than one of floats, and twice as many fit
into a register.

A step takes 16 or 32 codes of a row of the weight. A sum in 32 bits takes SPAN steps at most before
it could overflow, and is then added up in floats. `nibbles` has the same for codes of 4 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from llvmlite import ir
from numba import types

from tinytorch.backends.optimized.quantized.dots import I16, words
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import export
from tinytorch.jit.llvm import I8, I32, Value, VectorEmitter, i64, memory, vector_intrinsic
from tinytorch.jit.operands import ROWS, SIZE, Rows

WORDS = host_vector_unit().register_bytes // 2
"""Words in a register: the codes of 8 bits in a step."""

SPAN = 256
"""Steps after which 2 * 32767 * 128 a step still fit into 32 bits."""

MOST_ROWS = 8
AT_ONCE = 4
"""Rows of the weight at a time, for one row of x; fewer for more rows: see `at_once`."""


def at_once(rows: int) -> int:
    """Rows of the weight that a tile with so many rows of x has: their sums stay in registers."""
    if rows == 1:
        return AT_ONCE
    return 2 if 2 * rows <= host_vector_unit().registers // 2 else 1


def words_at(e: VectorEmitter, pointer: Value) -> Value:
    """WORDS signed bytes from memory as words."""
    kind = ir.VectorType(I8, WORDS)
    loaded = e.builder.load(e.builder.bitcast(pointer, kind.as_pointer()), align=1)
    return e.builder.sext(loaded, ir.VectorType(I16, WORDS))


def zero_sums(e: VectorEmitter) -> Value:
    """A register of integers of 32 bits, all 0."""
    return ir.Constant(ir.VectorType(I32, e.lanes), None)


def store_totals(e: VectorEmitter, sums: Sequence[Value], rows: int, y: Value) -> None:
    """The sum over the lanes of each, as AT_ONCE floats for each row of x."""
    columns = len(sums) // rows
    for r in range(rows):
        total = e.sums(list(sums[r * columns : (r + 1) * columns]))
        e.store(total, e.at(y, 4 * AT_ONCE * r), e.first_lanes(columns))


def _emit_bytes(e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
    steps, of_w, of_x, y = arguments
    build, columns = e.builder, at_once(rows)
    w, x, y = (e.pointer(address) for address in (of_w.address, of_x.address, y))
    offsets = [e.mul(of_w.stride, t) for t in range(columns)]
    x_offsets = [e.mul(of_x.stride, r) for r in range(rows)]
    floats = [e.zeros] * (rows * columns)

    def step(state: list[Value]) -> list[Value]:
        w, x, ahead, sums = state[0], state[1], state[2], state[3:]
        ahead = e.ask_ahead(ahead, columns * WORDS)
        xs = [e.load(e.at(x, offset)) for offset in x_offsets]
        for t, offset in enumerate(offsets):
            codes = words_at(e, e.at(w, offset))
            for r in range(rows):
                sums[r * columns + t] = words(e, xs[r], codes, sums[r * columns + t])
        return [e.at(w, WORDS), e.at(x, 2 * WORDS), ahead, *sums]

    def span(state: list[Value]) -> list[Value]:
        left, w, x, ahead, floats = *state[:4], state[4:]
        count = build.select(build.icmp_signed("<", left, i64(SPAN)), left, i64(SPAN))
        w, x, ahead, *sums = e.loop(count, [w, x, ahead, *[zero_sums(e)] * len(floats)], step)
        floats = [
            build.fadd(total, build.sitofp(s, e.vector))
            for total, s in zip(floats, sums, strict=True)
        ]
        return [e.add(left, -SPAN), w, x, ahead, *floats]

    spans = build.sdiv(e.add(steps, SPAN - 1), i64(SPAN))
    ahead = e.far_ahead(w, e.mul(of_w.stride, columns))
    floats = e.loop(spans, [steps, w, x, ahead, *floats], span)[4:]
    store_totals(e, floats, rows, y)


def _bytes_twin(dtype: type, rows: int, steps: int, w: Rows, x: Rows, y: int) -> None:
    size, columns = steps * WORDS, at_once(rows)
    codes = memory(np.int8, w.address, (columns, size), (w.stride,)).astype(np.int64)
    given = memory(np.int16, x.address, (rows, size), (x.stride,)).astype(np.int64)
    memory(np.float32, y, (rows, columns), (4 * AT_ONCE,))[...] = given @ codes.T


@vector_intrinsic(_bytes_twin)
def _byte_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    e.switch(rows, {r: partial(_emit_bytes, e, arguments, r) for r in range(1, MOST_ROWS + 1)})


@export("tinytorch_byte_rows", types.void(SIZE, SIZE, ROWS, ROWS, SIZE))
def byte_rows(rows: int, steps: int, w: Rows, x: Rows, y: int) -> None:
    """Y[r, t] = the sum over p of X[r, p] * W[t, p], for `at_once(rows)` rows of W, as floats.

    Args:
        rows: of X, up to MOST_ROWS.
        steps: WORDS codes each.
        w: signed bytes.
        x: signed words.
        y: address of Y; its rows are AT_ONCE floats long.
    """
    _byte_rows(np.float32, rows, steps, w, x, y)
