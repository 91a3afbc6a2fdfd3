"""The loops around the tiles: products of codes in blocks, and of few rows with codes in memory."""

from __future__ import annotations

import numpy as np
from numba import prange

from tinytorch.backends.optimized.gemm.packing import pack_f32
from tinytorch.backends.optimized.quantized.byte_tile import COLUMNS, TILE_ROWS, byte_tile
from tinytorch.backends.optimized.quantized.dots import CODES_PER_LANE
from tinytorch.backends.optimized.quantized.nibbles import nibble_rows
from tinytorch.backends.optimized.quantized.rounding import (
    EXACT,
    Codes,
    Rounding,
    round_row,
)
from tinytorch.backends.optimized.quantized.vectors import (
    AT_ONCE,
    MOST_ROWS,
    WORDS,
    at_once,
    byte_rows,
)
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import Matrix, Rows

PACKED_AT_ONCE = 512  # columns of a panel that are widened to words at a time
_AT_ONCE = (0, *(at_once(rows) for rows in range(1, MOST_ROWS + 1)))


Weight = tuple[Array, Array, Array]
"""codes, scale, bias: int8 (n, columns), or two in a byte, uint8 (n, columns / 2); (n, groups);
(n,), or (0,) for none."""

Scratch = tuple[Array, Array, Array]
"""panel, words, sums: memory for `product_of_codes`. The first two are those of `pack_panel`, sums
is int32 (rows, COLUMNS). For several threads, one after the other."""


@kernel(inner=True)
def pack_panel(weight: Array, words: Array, panel: Array) -> None:
    """Rows of the weight (columns, k) as a panel (steps, COLUMNS, CODES_PER_LANE).

    Four bytes, or two words, of a row are copied as if they were a float.

    Args:
        words: (COLUMNS, PACKED_AT_ONCE), scratch.
    """
    columns, k = weight.shape
    if columns < COLUMNS:
        panel[:] = 0
    whole = k // CODES_PER_LANE
    if CODES_PER_LANE == 4:
        source = Matrix(address(weight), weight.strides[0], 4)
        pack_f32(columns, whole, source, Rows(address(panel), 4 * COLUMNS))
    else:
        step = PACKED_AT_ONCE
        for start in range(0, whole, step // 2):
            count = min(step // 2, whole - start)
            for t in range(columns):
                for j in range(2 * count):
                    words[t, j] = weight[t, 2 * start + j]
            to = address(panel) + start * 4 * COLUMNS
            halves = Matrix(address(words), words.strides[0], 4)
            pack_f32(columns, count, halves, Rows(to, 4 * COLUMNS))
    if whole * CODES_PER_LANE < k:
        for t in range(columns):
            for j in range(CODES_PER_LANE):
                p = whole * CODES_PER_LANE + j
                panel[whole, t, j] = weight[t, p] if p < k else 0


@kernel
def product_of_codes(
    first: int, stop: int, x: Codes, weight: Weight, out: Array, scratch: Scratch
) -> None:
    """out[i, o] = bias[o] + scales[i] * scale[o] * the sum of (codes[i] - zero) * weight[o].

    In blocks of COLUMNS outputs, from the block `first` to before `stop`.

    Args:
        x: (rows, columns), rows up to whole tiles; all after those of `out` are `zero`, at least
            one: what is taken away is computed as one row more.
        weight: of bytes, in one group.
        out: (m, n).
    """
    (m, n), (codes, scales), (panel, words, sums) = out.shape, x, scratch
    stored, scale, bias = weight
    for block in range(first, stop):
        start = block * COLUMNS
        end = min(start + COLUMNS, n)
        pack_panel(stored[start:end], words, panel)
        for i in range(0, codes.shape[0], TILE_ROWS):
            rows = Rows(address(codes) + i * codes.strides[0], codes.strides[0])
            to = Rows(address(sums) + i * sums.strides[0], sums.strides[0])
            byte_tile(panel.shape[0], rows, address(panel), to)
        for i in range(m):
            factor = scales[i]
            if bias.size:
                for t in range(end - start):
                    value = np.float32(sums[i, t] - sums[m, t])
                    out[i, start + t] = value * factor * scale[start + t, 0] + bias[start + t]
            else:
                for t in range(end - start):
                    value = np.float32(sums[i, t] - sums[m, t])
                    out[i, start + t] = value * factor * scale[start + t, 0]


@kernel(parallel=True)
def product_of_codes_parallel(
    threads: int, blocks: int, x: Codes, weight: Weight, out: Array, scratch: Scratch
) -> None:
    panel, words, sums = scratch
    for t in prange(threads):
        first, stop = blocks * t // threads, blocks * (t + 1) // threads
        product_of_codes(first, stop, x, weight, out, (panel[t], words[t], sums[t]))


@kernel
def few_rows(
    first: int, stop: int, given: Codes, weight: Weight, is_nibbles: bool, out: Array
) -> None:
    """The outputs from `first` to before `stop`, at least AT_ONCE, for up to MOST_ROWS rows.

    Args:
        given: words (m, ...), see `word_codes`.
        weight: in one group, or, if `is_nibbles`, in groups of 32 columns.
        out: (m, n)
    """
    (x, scales), (codes, scale, bias) = given, weight
    m, columns = x.shape[0], codes.shape[1]
    wide, given_rows = _AT_ONCE[m], Rows(address(x), x.strides[0])
    steps = columns // WORDS
    totals = np.empty((m, AT_ONCE), np.float32)
    for begin in range(first, stop, wide):
        o = min(begin, stop - wide)
        w = Rows(address(codes) + o * codes.strides[0], codes.strides[0])
        if is_nibbles:
            factors = Rows(address(scale) + o * scale.strides[0], scale.strides[0])
            nibble_rows(m, columns // 16, w, given_rows, factors, address(totals))
        else:
            byte_rows(m, steps, w, given_rows, address(totals))
            if steps * WORDS < columns:
                add_rest(x, codes[o:], steps * WORDS, totals[:, :wide])
        for r in range(m):
            for t in range(wide):
                value = totals[r, t] * scales[r]
                if not is_nibbles:
                    value *= scale[o + t, 0]
                out[r, o + t] = value + bias[o + t] if bias.size else value


@kernel(fastmath=EXACT)
def few_rows_of_floats(
    x: Array, is_rounded: bool, rounding: Rounding, weight: Weight, is_nibbles: bool, out: Array
) -> None:
    """The same where a value is NaN or infinite, one product after the other.

    Args:
        x: (m, k), as it is.
        is_rounded: it counts as its codes of 8 bits.
    """
    (zero, step, _), (codes, scale, bias) = rounding, weight
    (m, k), n, group = x.shape, len(codes), codes.shape[1] // scale.shape[1]
    for r in range(m):
        row = x[r].copy()
        if is_rounded:
            round_row(row, zero, step)
        for o in range(n):
            total = bias[o] if bias.size else np.float32(0)
            for p in range(k):
                byte = p // 32 * 16 + p % 16 if is_nibbles else p
                code = np.int64(codes[o, byte])
                if is_nibbles:
                    code = (((code >> 4 if p % 32 >= 16 else code) & 15) ^ 8) - 8
                total += row[p] * (np.float32(code) * scale[o, byte // group])
            out[r, o] = total


@kernel(inner=True)
def add_rest(x: Array, codes: Array, done: int, totals: Array) -> None:
    """Add the products of what is left of rows of bytes, from column `done` on, to totals (rows of
    x, rows of the weight)."""
    for r in range(totals.shape[0]):
        for t in range(totals.shape[1]):
            total = np.float32(0)
            for p in range(done, codes.shape[1]):
                total += np.float32(np.int32(codes[t, p]) * np.int32(x[r, p]))
            totals[r, t] += total


@kernel(parallel=True)
def few_rows_parallel(
    threads: int, n: int, given: Codes, weight: Weight, is_nibbles: bool, out: Array
) -> None:
    for t in prange(threads):
        few_rows(n * t // threads, n * (t + 1) // threads, given, weight, is_nibbles, out)
