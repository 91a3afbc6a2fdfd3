"""One to four rows times codes of 4 bits, which are read once: `vectors`, for two codes in a byte.

Each block of 32 codes has a scale: the sum of its products is a float times that. Memory is the
limit only if few instructions go to a code. There are two forms:

    words    codes are widened to 16 bits, as those of 8 bits are
    bytes    (`dots.has_byte_dots`) codes stay bytes, and words are split into two, which happens
             once for all rows of the weight:

                 word = 256 high + low     high signed, low unsigned
                 code = nibble - 8         nibble unsigned: the code with its sign bit flipped
                 code * word = 256 (nibble * high) + nibble * low - 8 word

What of a row of x is needed in a step lies together (`rounding.arranged`):

    words    those of the low halves of LOADS registers of codes, those of the high ones
    bytes    low and high bytes of words of the low halves, of the high halves; the sums of -8 word
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from llvmlite import ir
from numba import types

from tinytorch.backends.optimized.quantized.dots import I16, bytes_, has_byte_dots, words
from tinytorch.backends.optimized.quantized.vectors import (
    AHEAD,
    AT_ONCE,
    MOST_ROWS,
    WORDS,
    ask_ahead,
    at_once,
    far_ahead,
    store_totals,
    words_at,
    zero_sums,
)
from tinytorch.dtypes import Array
from tinytorch.jit.library import export
from tinytorch.jit.llvm import I8, I32, Value, VectorEmitter, memory, vector_intrinsic
from tinytorch.jit.operands import ROWS, SIZE, Rows

AS_BYTES = has_byte_dots()
LOADS = 1 if AS_BYTES else max(16 // WORDS, 1)
"""Loads of codes in a step: of words two, where a register has 16 bytes, for one block."""
LOADED = 2 * WORDS if AS_BYTES else WORDS
"""Bytes of codes in a load."""
BLOCKS = LOADS * LOADED // 16
STEP = 32 * BLOCKS
"""Blocks, and codes, in a step."""
STEP_WORDS = 5 * WORDS if AS_BYTES else STEP
REST_WORDS = STEP if AS_BYTES else 0
"""Words of a row of x for a step; and, in front of them, for what is left after whole steps."""


def words_of_row(columns: int, bits: int) -> int:
    """Words that a row of x takes, for so many columns of the weight."""
    if bits == 8:
        return -(-columns // WORDS) * WORDS
    steps = columns // STEP if AS_BYTES else -(-columns // STEP)
    return REST_WORDS + steps * STEP_WORDS


class _Walk:
    """The addresses of a tile, and its loop over steps; a form says what one step adds."""

    def __init__(self, e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
        self.e, self.rows, self.columns = e, rows, at_once(rows)
        self.steps, w, x, scale, y = arguments
        self.w, self.x, self.scale = (e.pointer(rows.address) for rows in (w, x, scale))
        self.y = e.pointer(y)
        self.offsets = [e.mul(w.stride, t) for t in range(self.columns)]
        self.scale_offsets = [e.mul(scale.stride, t) for t in range(self.columns)]
        self.x_offsets = [e.mul(x.stride, r) for r in range(rows)]
        self.ahead = far_ahead(e, self.w, e.mul(w.stride, self.columns))
        least = AHEAD * 4 * BLOCKS // (LOADS * LOADED)
        self.scale_ahead = far_ahead(e, self.scale, e.mul(scale.stride, self.columns), least)

    def scales(self, pointer: Value) -> Value:
        """The scale of each lane."""
        e = self.e
        if BLOCKS == 1:
            return e.splat(e.load_scalar(pointer))
        kind = ir.VectorType(e.element, BLOCKS)
        loaded = e.builder.load(e.builder.bitcast(pointer, kind.as_pointer()), align=1)
        each = e.lanes // BLOCKS
        return e.shuffle(loaded, loaded, [lane // each for lane in range(e.lanes)])

    def emit(self) -> None:
        """All steps, and the store of their sums."""
        e = self.e
        floats = [e.zeros] * (self.rows * self.columns)
        state = [self.w, self.x, self.scale, self.ahead, self.scale_ahead, *floats]
        store_totals(e, e.loop(self.steps, state, self._step)[5:], self.rows, self.y)

    def _step(self, state: list[Value]) -> list[Value]:
        e = self.e
        w, x, scale, ahead, scale_ahead, floats = *state[:5], state[5:]
        ahead = ask_ahead(e, ahead, self.columns * LOADS * LOADED)
        scale_ahead = ask_ahead(e, scale_ahead, self.columns * 4 * BLOCKS)
        for t in range(self.columns):
            sums = self.sums(e.at(w, self.offsets[t]), [e.at(x, o) for o in self.x_offsets])
            factor = self.scales(e.at(scale, self.scale_offsets[t]))
            for r, total in enumerate(sums):
                i = r * self.columns + t
                floats[i] = e.fma(e.builder.sitofp(total, e.vector), factor, floats[i])
        after = [e.at(w, LOADS * LOADED), e.at(x, 2 * STEP_WORDS), e.at(scale, 4 * BLOCKS)]
        return [*after, ahead, scale_ahead, *floats]

    def sums(self, w: Value, xs: list[Value]) -> list[Value]:
        """For each row of x the products of a step, in lanes of 32 bits."""
        return self._as_bytes(w, xs) if AS_BYTES else self._as_words(w, xs)

    def _as_words(self, w: Value, xs: list[Value]) -> list[Value]:
        e, build = self.e, self.e.builder
        by = [ir.Constant(ir.VectorType(I16, WORDS), [bits] * WORDS) for bits in (12, 4)]
        sums = [zero_sums(e)] * len(xs)
        for u in range(LOADS):
            pairs = words_at(e, e.at(w, u * WORDS))
            low = build.ashr(build.shl(pairs, by[0]), by[0])
            high = build.ashr(pairs, by[1])
            for half, codes in enumerate((low, high)):
                for r, x in enumerate(xs):
                    place = e.at(x, (2 * u + half) * 2 * WORDS)
                    sums[r] = words(e, e.load(place), codes, sums[r])
        return sums

    def _as_bytes(self, w: Value, xs: list[Value]) -> list[Value]:
        e, build, size = self.e, self.e.builder, self.e.register_bytes
        kind = ir.VectorType(I8, size)
        four, fifteen, sign = (ir.Constant(kind, [number] * size) for number in (4, 15, 8))
        codes = build.load(build.bitcast(w, kind.as_pointer()), align=1)
        halves = [codes, build.lshr(codes, four)]
        nibbles = [build.xor(build.and_(half, fifteen), sign) for half in halves]
        eight = ir.Constant(ir.VectorType(I32, e.lanes), [8] * e.lanes)
        sums = []
        for x in xs:
            parts = [e.load(e.at(x, part * size)) for part in range(5)]
            low, high = build.bitcast(parts[4], eight.type), zero_sums(e)
            for half, nibble in enumerate(nibbles):
                low = bytes_(e, parts[2 * half], nibble, low)
                high = bytes_(e, nibble, parts[2 * half + 1], high)
            sums.append(build.add(low, build.shl(high, eight)))
        return sums


def _nibbles(packed: Array) -> tuple[Array, Array]:
    """The low and the high halves of bytes, signed."""
    return ((packed & 15) ^ 8).astype(np.int32) - 8, ((packed >> 4) ^ 8).astype(np.int32) - 8


def _twin(dtype: type, rows: int, steps: int, w: Rows, x: Rows, scale: Rows, y: int) -> None:
    columns, loads = at_once(rows), steps * LOADS
    packed = memory(np.uint8, w.address, (columns, loads * LOADED), (w.stride,))
    halves = np.stack([h.reshape(columns, loads, LOADED) for h in _nibbles(packed)], 2)
    scales = memory(np.float32, scale.address, (columns, steps * BLOCKS), (scale.stride,))
    of_words = np.repeat(scales, 16, 1).reshape(columns, loads, 1, LOADED)
    if AS_BYTES:
        parts = memory(np.uint8, x.address, (rows, steps * 5 * LOADED), (x.stride,))
        pairs = parts.reshape(rows, steps, 5, LOADED)[:, :, :4].reshape(rows, steps, 2, 2, LOADED)
        given = pairs[:, :, :, 0] + 256 * pairs[:, :, :, 1].view(np.int8).astype(np.int64)
    else:
        given = memory(np.int16, x.address, (rows, 2 * loads * WORDS), (x.stride,))
        given = given.astype(np.int64)
    given = given.reshape(rows, 1, loads, 2, LOADED)
    total = (given * (halves * of_words)).sum((2, 3, 4))
    memory(np.float32, y, (rows, columns), (4 * AT_ONCE,))[...] = total


def _emit(e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
    _Walk(e, arguments, rows).emit()


@vector_intrinsic(_twin)
def _nibble_rows(e: VectorEmitter, rows: Value, *arguments: Value) -> None:
    e.switch(rows, {r: partial(_emit, e, arguments, r) for r in range(1, MOST_ROWS + 1)})


@export("tinytorch_nibble_rows", types.void(SIZE, SIZE, ROWS, ROWS, ROWS, SIZE))
def nibble_rows(rows: int, steps: int, w: Rows, x: Rows, scale: Rows, y: int) -> None:
    """Y[r, t] = the sum over p of X[r, p] * W[t, p], for `at_once(rows)` rows of W, as floats.

    Args:
        rows: of X, up to MOST_ROWS.
        steps: STEP codes each.
        w: two codes in a byte.
        x: from what is needed of X for the first step.
        scale: the scales of each row of W.
        y: address of Y; its rows are AT_ONCE floats long.
    """
    _nibble_rows(np.float32, rows, steps, w, x, scale, y)
