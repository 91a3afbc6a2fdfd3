"""Rows of floats as integers, by the formulas of `decompositions_quantized`, to the last bit."""

from __future__ import annotations

import numpy as np

from tinytorch.backends.optimized.quantized.nibbles import (
    AS_BYTES,
    LOADED,
    STEP,
    STEP_WORDS,
)
from tinytorch.backends.optimized.quantized.vectors import WORDS
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.views import view
from tinytorch.shapes_quantized import DYNAMIC_STEPS, LEAST, MOST_DYNAMIC, MOST_STATIC

EXACT: frozenset[str] = frozenset()  # a product and a rounding more or less would be another code
RUN = min(16, WORDS)
"""Columns whose words are neighbours in the order of `nibble_rows`."""

_LEAST, _STEPS = np.float32(LEAST), np.float32(DYNAMIC_STEPS)
_ROUNDS = np.float32(3 << 22)  # added and taken away: what is left is whole, ties to even
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)


# What travels together is a plain tuple, whose first use says the names. These kernels are called
# from Python, for one row of x: numba finds the type of a tuple in C, of a NamedTuple in Python.

Codes = tuple[Array, Array]
"""values, scales: rows as integers (m, ...), and the scale of each (m,)."""

OffsetCodes = tuple[Array, Array, Array]
"""codes, scales, zeros: the same with codes from 0, and the code of 0 in each row (m,), int32."""

Rounding = tuple[np.float32, np.float32, np.float32]
"""zero, scale, largest: the code of 0 and the scale of all rows, which is 0 to give each its own:
then by its ends, if `largest` is DYNAMIC_STEPS, and otherwise by its largest magnitude, which is
the integer `largest`."""


@kernel(fastmath=EXACT, inner=True)
def range_of_row(
    bits: Array, rounding: Rounding
) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """scale, its reciprocal, and the least and the largest of code - zero, for a row.

    The scale is -1 if a value is NaN or infinite. Floats of one sign are ordered as their bits are;
    with those of negative ones flipped all are, and vectors find the ends of integers.

    Args:
        bits: of the row, int32.
    """
    zero, scale, largest = rounding
    least, most = np.int32(0), np.int32(0)
    for i in range(bits.size):
        ordered = np.int32(bits[i] ^ ((bits[i] >> 31) & _MAGNITUDE))
        least, most = min(least, ordered), max(most, ordered)
    if most >= _INFINITY or least <= ~_INFINITY:
        return np.float32(-1), scale, zero, zero
    if scale > 0:
        return scale, np.float32(1) / scale, -zero, np.float32(MOST_STATIC) - zero
    least, most = np.int32(least ^ ((least >> 31) & _MAGNITUDE)), np.int32(most)
    low, high = least.view(np.float32), most.view(np.float32)
    if largest > _STEPS:
        magnitude = max(max(high, -low), _LEAST)
        return magnitude / largest, largest / magnitude, -largest, largest
    scale = max(high / _STEPS - low / _STEPS, _LEAST)
    factor = np.float32(1) / scale
    zero = rounded(-low * factor)
    return scale, factor, -zero, np.float32(MOST_DYNAMIC) - zero


@kernel(fastmath=EXACT, force_inline=True)
def rounded(x: np.float32) -> np.float32:
    """x as a whole number, ties to even, for magnitudes up to 2^22."""
    return (x + _ROUNDS) - _ROUNDS


@kernel(fastmath=EXACT)
def offset_codes(x: Array, bits: Array, rounding: Rounding, to: OffsetCodes) -> bool:
    """Rows (m, k) as codes from 0, their scales and codes of 0; False if a value is not finite.

    Args:
        bits: x as int32.
        to: (rows, columns); what is beyond k is filled with 0, rows that are beyond m with 1.
    """
    (m, k), (codes, scales, zeros) = x.shape, to
    for i in range(m):
        scale, factor, low, high = range_of_row(bits[i], rounding)
        if scale < 0:
            return False
        scales[i], zeros[i] = scale, np.int32(-low)
        for j in range(k):
            value = min(max(rounded(x[i, j] * factor), low), high) - low
            codes[i, j] = np.int32(value)
        codes[i, k:] = 0
    codes[m:] = 1
    return True


@kernel(fastmath=EXACT)
def word_codes(x: Array, bits: Array, rounding: Rounding, halves: bool, to: Codes) -> bool:
    """Rows (m, k) as words and their scales; False if a value is not finite.

    Args:
        bits: x as int32.
        rounding: where there are codes, the words are codes - zero.
        halves: as `nibble_rows` needs them.
        to: (m, `nibbles.words_of_row`), int16; what is beyond x is filled with zeros.
    """
    (m, k), (words, scales) = x.shape, to
    in_order = np.zeros(words.shape[1] if halves else 0, np.int16)
    for i in range(m):
        scale, factor, low, high = range_of_row(bits[i], rounding)
        if scale < 0:
            return False
        scales[i] = scale
        target = in_order if halves else words[i]
        for j in range(k):
            target[j] = np.int32(min(max(rounded(x[i, j] * factor), low), high))
        if not halves:
            words[i, k:] = 0
        elif AS_BYTES:
            as_bytes(in_order, words[i])
        else:
            for start in range(0, words.shape[1], RUN):
                at = word_of(start)
                for j in range(RUN):
                    words[i, at + j] = in_order[start + j]
    return True


@kernel(inner=True)
def as_bytes(in_order: Array, words: Array) -> None:
    """Words, in the order of columns, as the form "bytes" of `nibbles` needs them."""
    steps, half = words.size // STEP_WORDS, LOADED // 16
    operands = address(words)
    lows = view(np.uint8, operands, (steps, 5, half, 16))
    highs = view(np.int8, operands, (steps, 5, half, 16))
    sums = view(np.int32, operands, (steps, 5, half, 4))
    for step in range(steps):
        for block in range(half):
            start = step * STEP + 32 * block
            for j in range(16):
                low, high = in_order[start + j], in_order[start + 16 + j]
                lows[step, 0, block, j] = low & 255
                highs[step, 1, block, j] = low >> 8
                lows[step, 2, block, j] = high & 255
                highs[step, 3, block, j] = high >> 8
            for lane in range(4):
                total = np.int32(0)
                for j in range(start + 4 * lane, start + 4 * lane + 4):
                    total += np.int32(in_order[j]) + np.int32(in_order[j + 16])
                sums[step, 4, block, lane] = -8 * total


@kernel(fastmath=EXACT)
def round_row(row: Array, rounding: Rounding) -> None:
    """What the codes of a row say, in its place; NaN if it is rounded by infinite ends."""
    zero, scale, _ = rounding
    if scale > 0:
        for j in range(row.size):
            code = np.rint(row[j] * (np.float32(1) / scale)) + zero
            if code == code:
                code = min(max(code, np.float32(0)), np.float32(MOST_STATIC))
            row[j] = (code - zero) * scale
        return
    scale, factor, _, _ = range_of_row(row.view(np.int32), rounding)
    if scale < 0:
        row[:] = np.nan
    else:
        for j in range(row.size):
            row[j] = rounded(row[j] * factor) * scale


@kernel(inner=True)
def word_of(column: int) -> int:
    """The position of a column's word in the form "words" of `nibbles`."""
    block, j = column // 32, column % 32
    byte = block * 16 + j % 16
    return (byte // WORDS) * 2 * WORDS + (j // 16) * WORDS + byte % WORDS


@kernel
def floats_of_bytes(codes: Array, scale: Array, group: int, out: Array) -> None:
    """codes (n, stored) times scale (n, groups) as floats (n, k)."""
    for i in range(out.shape[0]):
        for start in range(0, out.shape[1], group):
            factor = scale[i, start // group]
            for j in range(start, min(start + group, out.shape[1])):
                out[i, j] = codes[i, j] * factor


@kernel
def floats_of_nibbles(packed: Array, scale: Array, group: int, out: Array) -> None:
    """The same for two codes of 4 bits in a byte."""
    k = out.shape[1]
    for i in range(out.shape[0]):
        for block in range((k + 31) // 32):
            factor = scale[i, block * 32 // group]
            for j in range(32 * block, min(32 * block + 16, k)):
                low = np.int64(packed[i, j - 16 * block]) & 15
                out[i, j] = np.float32((low ^ 8) - 8) * factor
            for j in range(32 * block + 16, min(32 * block + 32, k)):
                high = np.int64(packed[i, j - 16 * block - 16]) >> 4
                out[i, j] = np.float32((high ^ 8) - 8) * factor
