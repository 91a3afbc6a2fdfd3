"""One to eight rows times codes of 4 bits, which are read once: `vectors`, for two codes in a byte.

Each block of 32 codes has a scale: the sum of its products is a float times that. Memory is the
limit only if few instructions go to a code. There are two forms:

    words    codes are widened to 16 bits, as those of 8 bits are
    bytes    (`dots.has_byte_dots`) codes stay bytes, and words are split into two, which happens
             once for all rows of the weight:

                 word = 256 high + low     high signed, low unsigned
                 code = nibble - 8         nibble unsigned: the code with its sign bit flipped
                 code * word = 256 (nibble * high) + nibble * low - 8 word

A step takes BLOCKS blocks; if that is more than one, loads are masked in a last, shorter step. What
of a row of x is needed in a step lies together (`rounding.as_bytes`, `rounding.word_of`):

    words    those of the low halves of LOADS registers of codes, those of the high ones
    bytes    low and high bytes of words of the low halves, of the high halves; the sums of -8 word
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tinytorch.backends.optimized.quantized.dots import (
    I16,
    bytes_,
    has_byte_dots,
    integers,
    words,
)
from tinytorch.backends.optimized.quantized.vectors import (
    AT_ONCE,
    MOST_ROWS,
    WORDS,
    at_once,
    store_totals,
    zero_sums,
)
from tinytorch.dtypes import Array
from tinytorch.jit.library import export
from tinytorch.jit.llvm import AHEAD, I8, I32, Value, VectorEmitter, i64, memory, vector_intrinsic
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
"""Words of a row of x for a step."""


def words_of_row(columns: int, bits: int) -> int:
    """Words that a row of x takes, for so many columns of the weight."""
    if bits == 8:
        return -(-columns // WORDS) * WORDS
    return -(-columns // STEP) * STEP_WORDS


class _Walk:
    """The addresses of a tile, and its loop over steps; a form says what one step adds."""

    def __init__(self, e: VectorEmitter, arguments: Sequence[Value], rows: int) -> None:
        self.e, self.rows, self.columns = e, rows, at_once(rows)
        self.blocks, w, x, scale, y = arguments
        self.w, self.x, self.scale = (e.pointer(rows.address) for rows in (w, x, scale))
        self.y = e.pointer(y)
        self.offsets = [e.mul(w.stride, t) for t in range(self.columns)]
        self.scale_offsets = [e.mul(scale.stride, t) for t in range(self.columns)]
        self.x_offsets = [e.mul(x.stride, r) for r in range(rows)]
        self.ahead = e.far_ahead(self.w, e.mul(w.stride, self.columns))
        least = AHEAD * 4 * BLOCKS // (LOADS * LOADED)
        self.scale_ahead = e.far_ahead(self.scale, e.mul(scale.stride, self.columns), least)

    def scales(self, pointer: Value, left: Value | None) -> Value:
        """The scale of each lane; of the last step `left` blocks are there."""
        e = self.e
        if BLOCKS == 1:
            return e.splat(e.load_scalar(pointer))
        few = e.narrowed(4 * BLOCKS)
        loaded = few.load(pointer, None if left is None else few.first_lanes(left))
        each = e.lanes // BLOCKS
        return e.shuffle(loaded, loaded, [lane // each for lane in range(e.lanes)])

    def emit(self) -> None:
        """All steps, and the store of their sums."""
        e = self.e
        floats = [e.zeros] * (self.rows * self.columns)
        steps = e.builder.sdiv(self.blocks, i64(BLOCKS))
        begin = [self.w, self.x, self.scale, self.ahead, self.scale_ahead, *floats]
        w, x, scale, _, _, floats = _split(e.loop(steps, begin, self._step))
        if BLOCKS > 1:
            left = e.builder.sub(self.blocks, e.mul(steps, BLOCKS))
            floats = e.either(
                e.builder.icmp_signed(">", left, i64(0)),
                lambda: self._add(w, x, scale, floats, left),
                lambda: floats,
            )
        store_totals(e, floats, self.rows, self.y)

    def _step(self, state: list[Value]) -> list[Value]:
        e = self.e
        w, x, scale, ahead, scale_ahead, floats = _split(state)
        ahead = e.ask_ahead(ahead, self.columns * LOADS * LOADED)
        scale_ahead = e.ask_ahead(scale_ahead, self.columns * 4 * BLOCKS)
        floats = self._add(w, x, scale, floats)
        after = [e.at(w, LOADS * LOADED), e.at(x, 2 * STEP_WORDS), e.at(scale, 4 * BLOCKS)]
        return [*after, ahead, scale_ahead, *floats]

    def _add(
        self, w: Value, x: Value, scale: Value, floats: list[Value], left: Value | None = None
    ) -> list[Value]:
        """`floats` and the products of a step, of which `left` blocks are there, or all."""
        e, total = self.e, list(floats)
        for t in range(self.columns):
            own = [e.at(x, offset) for offset in self.x_offsets]
            sums = self.sums(e.at(w, self.offsets[t]), own, left)
            factor = self.scales(e.at(scale, self.scale_offsets[t]), left)
            for r, products in enumerate(sums):
                i = r * self.columns + t
                total[i] = e.fma(e.builder.sitofp(products, e.vector), factor, total[i])
        return total

    def _codes(self, w: Value, left: Value | None) -> Value:
        """LOADED bytes of codes; those after `left` blocks of 16 are 0."""
        e = self.e.narrowed(LOADED)
        lanes = None if left is None else e.first_lanes(e.mul(left, 4))
        return integers(e, I8, e.load(w, lanes))

    def sums(self, w: Value, xs: list[Value], left: Value | None) -> list[Value]:
        """For each row of x the products of a step, in lanes of 32 bits."""
        if AS_BYTES:
            return self._as_bytes(self._codes(w, left), xs)
        loads = [self._codes(self.e.at(w, u * WORDS), left) for u in range(LOADS)]
        return self._as_words(loads, xs)

    def _as_words(self, loads: list[Value], xs: list[Value]) -> list[Value]:
        e, build = self.e, self.e.builder
        by = [ir.Constant(ir.VectorType(I16, WORDS), [bits] * WORDS) for bits in (12, 4)]
        sums = [zero_sums(e)] * len(xs)
        for u, codes in enumerate(loads):
            pairs = build.sext(codes, by[0].type)
            low = build.ashr(build.shl(pairs, by[0]), by[0])
            high = build.ashr(pairs, by[1])
            for half, own in enumerate((low, high)):
                for r, x in enumerate(xs):
                    place = e.at(x, (2 * u + half) * 2 * WORDS)
                    sums[r] = words(e, e.load(place), own, sums[r])
        return sums

    def _as_bytes(self, codes: Value, xs: list[Value]) -> list[Value]:
        e, build, size = self.e, self.e.builder, self.e.register_bytes
        kind = ir.VectorType(I8, size)
        four, fifteen, sign = (ir.Constant(kind, [number] * size) for number in (4, 15, 8))
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


def _split(state: list[Value]) -> list[Any]:
    """The pointers of a walk, and the list of its sums."""
    return [*state[:5], state[5:]]


def _nibbles(packed: Array) -> tuple[Array, Array]:
    """The low and the high halves of bytes, signed."""
    return ((packed & 15) ^ 8).astype(np.int32) - 8, ((packed >> 4) ^ 8).astype(np.int32) - 8


def _twin(dtype: type, rows: int, blocks: int, w: Rows, x: Rows, scale: Rows, y: int) -> None:
    columns, steps = at_once(rows), -(-blocks // BLOCKS)
    loads, empty = steps * LOADS, ((0, 0), (0, steps * BLOCKS - blocks))
    packed = memory(np.uint8, w.address, (columns, blocks, 16), (w.stride, 16))
    packed = np.pad(packed, (*empty, (0, 0)))
    halves = np.stack([h.reshape(columns, loads, LOADED) for h in _nibbles(packed)], 2)
    scales = np.pad(memory(np.float32, scale.address, (columns, blocks), (scale.stride,)), empty)
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
def nibble_rows(rows: int, blocks: int, w: Rows, x: Rows, scale: Rows, y: int) -> None:
    """Y[r, t] = the sum over p of X[r, p] * W[t, p], for `at_once(rows)` rows of W, as floats.

    Args:
        rows: of X, up to MOST_ROWS.
        blocks: of 32 codes.
        w: two codes in a byte.
        x: what is needed of X for each step, for a part of one all of it.
        scale: the scales of each row of W.
        y: address of Y; its rows are AT_ONCE floats long.
    """
    _nibble_rows(np.float32, rows, blocks, w, x, scale, y)
