"""Rows of floats as integers, by the formulas of `decompositions_quantized`, to the last bit."""

from __future__ import annotations

import numpy as np

from tinytorch.backends.optimized.quantized.dots import CODE
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
from tinytorch.shapes_quantized import LEAST

EXACT: frozenset[str] = frozenset()  # a product and a rounding more or less would be another code
RUN = min(16, WORDS)
"""Columns whose words are neighbours in the order of `nibble_rows`."""

_LEAST = np.float32(LEAST)
_ROUNDS = np.float32(3 << 22)  # added and taken away: what is left is whole, ties to even
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)


# What travels together is a plain tuple, whose first use says the names. These kernels are called
# from Python, for one row of x: numba finds the type of a tuple in C, of a NamedTuple in Python.

Codes = tuple[Array, Array]
"""values, scales: rows as integers (m, ...), and the scale of each (m,)."""

Rounding = tuple[np.float32, np.float32, np.float32]
"""zero, scale, largest: the code of 0; the scale of all rows, or 0 to give each its own, by its
largest magnitude; and the integer of that magnitude, where the scale is 0."""


@kernel(fastmath=EXACT, inner=True)
def magnitude(bits: Array) -> np.float32:
    """The largest magnitude of floats, given as their bits; -1 if one is NaN or infinite.

    Magnitudes are ordered as their bits are, and the largest of integers is found by vectors.
    """
    most = np.int32(0)
    for i in range(bits.size):
        most = max(most, np.int32(bits[i] & _MAGNITUDE))
    if most >= _INFINITY:
        return np.float32(-1)
    largest = np.int32(most)
    return max(largest.view(np.float32), _LEAST)


@kernel(fastmath=EXACT)
def byte_codes(x: Array, bits: Array, zero: np.float32, scale: np.float32, to: Codes) -> bool:
    """Rows (m, k) as codes from 0 to 255, and their scales; False if a value is not finite.

    Args:
        bits: x as int32.
        zero, scale: as for `Rounding`.
        to: (rows, columns) of the type CODE; what is beyond x is filled with `zero`.
    """
    (m, k), (codes, scales) = x.shape, to
    code = CODE(zero)
    for i in range(m):
        most = magnitude(bits[i])
        if most < 0:
            return False
        factor = np.float32(1) / scale if scale > 0 else np.float32(127) / most
        scales[i] = scale if scale > 0 else most / np.float32(127)
        for j in range(k):
            value = (x[i, j] * factor + _ROUNDS) - _ROUNDS + zero
            codes[i, j] = np.int32(min(max(value, np.float32(0)), np.float32(255)))
        codes[i, k:] = code
    codes[m:] = code
    return True


@kernel(fastmath=EXACT)
def word_codes(x: Array, bits: Array, rounding: Rounding, halves: bool, to: Codes) -> bool:
    """Rows (m, k) as words and their scales; False if a value is not finite.

    Args:
        bits: x as int32.
        rounding: with a scale, the words are codes - zero.
        halves: as `nibble_rows` needs them.
        to: (m, `nibbles.words_of_row`), int16; what is beyond x is filled with zeros.
    """
    (m, k), (words, scales), (zero, scale, largest) = x.shape, to, rounding
    rounded = np.zeros(words.shape[1] if halves else 0, np.int16)
    for i in range(m):
        most = magnitude(bits[i])
        if most < 0:
            return False
        factor = np.float32(1) / scale if scale > 0 else largest / most
        scales[i] = scale if scale > 0 else most / largest
        low = -zero if scale > 0 else -largest
        high = np.float32(255) - zero if scale > 0 else largest
        target = rounded if halves else words[i]
        for j in range(k):
            value = (x[i, j] * factor + _ROUNDS) - _ROUNDS
            target[j] = np.int32(min(max(value, low), high))
        if not halves:
            words[i, k:] = 0
        elif AS_BYTES:
            as_bytes(rounded, words[i])
        else:
            for start in range(0, words.shape[1], RUN):
                at = word_of(start)
                for j in range(RUN):
                    words[i, at + j] = rounded[start + j]
    return True


@kernel(inner=True)
def as_bytes(rounded: Array, words: Array) -> None:
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
                low, high = rounded[start + j], rounded[start + 16 + j]
                lows[step, 0, block, j] = low & 255
                highs[step, 1, block, j] = low >> 8
                lows[step, 2, block, j] = high & 255
                highs[step, 3, block, j] = high >> 8
            for lane in range(4):
                total = np.int32(0)
                for j in range(start + 4 * lane, start + 4 * lane + 4):
                    total += np.int32(rounded[j]) + np.int32(rounded[j + 16])
                sums[step, 4, block, lane] = -8 * total


@kernel(fastmath=EXACT)
def round_row(row: Array, zero: np.float32, scale: np.float32) -> None:
    """What the codes of 8 bits of a row say, in its place; of an infinite magnitude comes NaN.

    Args:
        zero, scale: as for `Rounding`.
    """
    if scale > 0:
        for j in range(row.size):
            code = np.rint(row[j] * (np.float32(1) / scale)) + zero
            if code == code:
                code = min(max(code, np.float32(0)), np.float32(255))
            row[j] = (code - zero) * scale
        return
    most = _LEAST
    for value in row:
        if not abs(value) <= most:  # NaN too, which stays
            most = abs(value)
    for j in range(row.size):
        row[j] = np.rint(row[j] * (np.float32(127) / most)) * (most / np.float32(127))


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
