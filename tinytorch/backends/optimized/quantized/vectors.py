"""One to four rows times weights in codes, which are read once, in the order in which they lie.

Memory is the limit there. The rows were rounded to 16-bit words (`rounding`), the codes are widened
to words in registers: a product of words takes no longer than one of floats, and twice as many fit
into a register.

    int8    16 or 32 codes of a row of the weight a step; a sum in 32 bits takes SPAN steps at most
            before it could overflow, and is then added up in floats
    int4    blocks of 32 codes, of which each has a scale: the sum of a block is a float times that
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from llvmlite import ir
from numba import types

from tinytorch.backends.optimized.quantized.dots import I16, words
from tinytorch.dtypes import Array
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import export
from tinytorch.jit.llvm import I8, I32, Value, VectorEmitter, i64, memory, vector_intrinsic

WORDS = host_vector_unit().register_bytes // 2
"""Words in a register: the codes of 8 bits in a step."""

SPAN = 256
"""Steps after which 2 * 32767 * 128 a step still fit into 32 bits."""

MOST_ROWS = 4
AT_ONCE = 4
"""Rows of the weight at a time, for one row of x; for more rows of x half of that."""

BLOCKS = max(WORDS // 16, 1)
"""Blocks of 32 codes of 4 bits in a step; a register of 16 bytes takes two loads for a block."""
LOADS = max(16 // WORDS, 1)


AHEAD = 6144
"""Bytes by which memory is asked for ahead of its use: at 30 GB/s what comes in 200 ns."""


def words_of_row(columns: int, bits: int) -> int:
    """Words that a row of so many columns takes: whole steps."""
    unit = WORDS if bits == 8 else 32 * BLOCKS
    return -(-columns // unit) * unit


def at_once(rows: int) -> int:
    """Rows of the weight that a tile with so many rows of x has."""
    return AT_ONCE if rows == 1 else AT_ONCE // 2


def _words_of(e: VectorEmitter, pointer: Value) -> Value:
    """WORDS signed bytes from memory as words."""
    kind = ir.VectorType(I8, WORDS)
    loaded = e.builder.load(e.builder.bitcast(pointer, kind.as_pointer()), align=1)
    return e.builder.sext(loaded, ir.VectorType(I16, WORDS))


def _zeros(e: VectorEmitter) -> Value:
    return ir.Constant(ir.VectorType(I32, e.lanes), None)


def _store_totals(e: VectorEmitter, sums: Sequence[Value], rows: int, y: Value) -> None:
    """The sum over the lanes of each, as AT_ONCE floats for each row of x."""
    columns = len(sums) // rows
    for r in range(rows):
        total = e.sums(list(sums[r * columns : (r + 1) * columns]))
        e.store(total, e.at(y, 4 * AT_ONCE * r), e.first_lanes(columns))


def _far_ahead(e: VectorEmitter, pointer: Value, nbytes: Value) -> Value:
    """Where memory is asked for: `nbytes`, those of a tile, further on, and at least AHEAD.

    The rows of a tile lie one after the other and are read side by side, which the processor's
    prefetchers do not foresee; the tiles together are one stream.
    """
    is_short = e.builder.icmp_signed("<", nbytes, i64(AHEAD))
    return e.at(pointer, e.builder.select(is_short, i64(AHEAD), nbytes))


def _prefetch(e: VectorEmitter, pointer: Value, nbytes: int) -> Value:
    """Ask for so many bytes; the pointer after them."""
    for line in range(0, max(nbytes, 64), 64):
        e.prefetch(e.at(pointer, line))
    return e.at(pointer, nbytes)


def _emit_bytes(e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
    steps, w, ldw, x, ldx, y = arguments
    build, columns = e.builder, at_once(rows)
    w, x, y = (e.pointer(address) for address in (w, x, y))
    offsets = [e.mul(ldw, t) for t in range(columns)]
    x_offsets = [e.mul(ldx, r) for r in range(rows)]
    floats = [e.zeros] * (rows * columns)

    def step(state: list[Value]) -> list[Value]:
        w, x, ahead, sums = state[0], state[1], state[2], state[3:]
        ahead = _prefetch(e, ahead, columns * WORDS)
        xs = [e.load(e.at(x, offset)) for offset in x_offsets]
        for t, offset in enumerate(offsets):
            codes = _words_of(e, e.at(w, offset))
            for r in range(rows):
                sums[r * columns + t] = words(e, xs[r], codes, sums[r * columns + t])
        return [e.at(w, WORDS), e.at(x, 2 * WORDS), ahead, *sums]

    def span(state: list[Value]) -> list[Value]:
        left, w, x, ahead, floats = *state[:4], state[4:]
        count = build.select(build.icmp_signed("<", left, i64(SPAN)), left, i64(SPAN))
        w, x, ahead, *sums = e.loop(count, [w, x, ahead, *[_zeros(e)] * len(floats)], step)
        floats = [
            build.fadd(total, build.sitofp(s, e.vector))
            for total, s in zip(floats, sums, strict=True)
        ]
        return [e.add(left, -SPAN), w, x, ahead, *floats]

    spans = build.sdiv(e.add(steps, SPAN - 1), i64(SPAN))
    ahead = _far_ahead(e, w, e.mul(ldw, columns))
    floats = e.loop(spans, [steps, w, x, ahead, *floats], span)[4:]
    _store_totals(e, floats, rows, y)


def _emit_nibbles(e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
    steps, w, ldw, x, ldx, scale, lds, y = arguments
    build, columns = e.builder, at_once(rows)
    w, x, scale, y = (e.pointer(address) for address in (w, x, scale, y))
    offsets = [e.mul(ldw, t) for t in range(columns)]
    scale_offsets = [e.mul(lds, t) for t in range(columns)]
    x_offsets = [e.mul(ldx, r) for r in range(rows)]
    by = [ir.Constant(ir.VectorType(I16, WORDS), [bits] * WORDS) for bits in (12, 4)]

    def scales(pointer: Value) -> Value:
        """The scale of each lane."""
        if BLOCKS == 1:
            return e.splat(e.load_scalar(pointer))
        kind = ir.VectorType(e.element, BLOCKS)
        loaded = build.load(build.bitcast(pointer, kind.as_pointer()), align=1)
        each = e.lanes // BLOCKS
        return e.shuffle(loaded, loaded, [lane // each for lane in range(e.lanes)])

    def step(state: list[Value]) -> list[Value]:
        w, x, scale, ahead, floats = *state[:4], state[4:]
        ahead = _prefetch(e, ahead, columns * LOADS * WORDS)
        for t in range(columns):
            sums = [_zeros(e)] * rows
            for u in range(LOADS):
                pairs = _words_of(e, e.at(e.at(w, offsets[t]), u * WORDS))
                low = build.ashr(build.shl(pairs, by[0]), by[0])
                high = build.ashr(pairs, by[1])
                for half, codes in enumerate((low, high)):
                    for r in range(rows):
                        place = e.at(e.at(x, x_offsets[r]), (2 * u + half) * 2 * WORDS)
                        sums[r] = words(e, e.load(place), codes, sums[r])
            factor = scales(e.at(scale, scale_offsets[t]))
            for r in range(rows):
                i = r * columns + t
                floats[i] = e.fma(build.sitofp(sums[r], e.vector), factor, floats[i])
        return [
            e.at(w, LOADS * WORDS), e.at(x, 4 * LOADS * WORDS), e.at(scale, 4 * BLOCKS), ahead,
            *floats,
        ]  # fmt: skip

    ahead = _far_ahead(e, w, e.mul(ldw, columns))
    state = [w, x, scale, ahead, *[e.zeros] * (rows * columns)]
    _store_totals(e, e.loop(steps, state, step)[4:], rows, y)


def _nibbles(packed: Array) -> tuple[Array, Array]:
    """The low and the high halves of bytes, signed."""
    return ((packed & 15) ^ 8).astype(np.int32) - 8, ((packed >> 4) ^ 8).astype(np.int32) - 8


def _bytes_twin(
    dtype: type, rows: int, steps: int, w: int, ldw: int, x: int, ldx: int, y: int
) -> None:
    size, columns = steps * WORDS, at_once(rows)
    codes = memory(np.int8, w, (columns, size), (ldw,)).astype(np.int64)
    given = memory(np.int16, x, (rows, size), (ldx,)).astype(np.int64)
    memory(np.float32, y, (rows, columns), (4 * AT_ONCE,))[...] = given @ codes.T


def _nibbles_twin(
    dtype: type, rows: int, steps: int, w: int, ldw: int, x: int, ldx: int, scale: int, lds: int,
    y: int,
) -> None:  # fmt: skip
    columns, size = at_once(rows), LOADS * WORDS
    packed = memory(np.uint8, w, (columns, steps * size), (ldw,))
    halves = np.stack([h.reshape(columns, -1, WORDS) for h in _nibbles(packed)], 2)
    given = memory(np.int16, x, (rows, 2 * steps * size), (ldx,)).astype(np.int64)
    given = given.reshape(rows, 1, -1, 2, WORDS)
    scales = memory(np.float32, scale, (columns, steps * BLOCKS), (lds,))
    of_words = np.repeat(scales, 16, 1).reshape(columns, -1, 1, WORDS)
    total = (given * (halves * of_words)).sum((2, 3, 4))
    memory(np.float32, y, (rows, columns), (4 * AT_ONCE,))[...] = total


@vector_intrinsic(_bytes_twin)
def _byte_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    e.switch(rows, {r: partial(_emit_bytes, e, arguments, r) for r in range(1, MOST_ROWS + 1)})


@vector_intrinsic(_nibbles_twin)
def _nibble_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    e.switch(rows, {r: partial(_emit_nibbles, e, arguments, r) for r in range(1, MOST_ROWS + 1)})


@export("tinytorch_byte_rows", types.void(*[types.intp] * 7))
def byte_rows(rows: int, steps: int, w: int, ldw: int, x: int, ldx: int, y: int) -> None:
    """Y[r, t] = the sum over p of X[r, p] * W[t, p], for `at_once(rows)` rows of W, as floats.

    Args:
        rows: of X, up to MOST_ROWS.
        steps: WORDS codes each.
        w, ldw: address of W, signed bytes, and bytes between its rows.
        x, ldx: address of X, signed words, and bytes between its rows.
        y: address of Y; its rows are AT_ONCE floats long.
    """
    _byte_rows(np.float32, rows, steps, w, ldw, x, ldx, y)


@export("tinytorch_nibble_rows", types.void(*[types.intp] * 9))
def nibble_rows(
    rows: int, steps: int, w: int, ldw: int, x: int, ldx: int, scale: int, lds: int, y: int
) -> None:
    """The same for codes of 4 bits, with a scale for each 32 of them.

    Args:
        steps: BLOCKS blocks of 32 codes each.
        x: words in the order in which halves of bytes come: for each LOADS-th part of a step first
            those of the low halves, then those of the high ones.
        scale, lds: address of the scales, and bytes between those of rows of W.
    """
    _nibble_rows(np.float32, rows, steps, w, ldw, x, ldx, scale, lds, y)
