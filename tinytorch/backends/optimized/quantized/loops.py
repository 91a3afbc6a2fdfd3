"""The loops around the tiles: products of codes in blocks, and of few rows with codes in memory."""

from __future__ import annotations

import numpy as np
from numba import prange

from tinytorch.backends.optimized.gemm.packing import pack_f32
from tinytorch.backends.optimized.quantized.byte_tile import COLUMNS, ROWS, byte_tile
from tinytorch.backends.optimized.quantized.dots import CODES_PER_LANE
from tinytorch.backends.optimized.quantized.nibbles import REST_WORDS, STEP, nibble_rows
from tinytorch.backends.optimized.quantized.rounding import EXACT, rest_of, round_row
from tinytorch.backends.optimized.quantized.vectors import AT_ONCE, WORDS, byte_rows
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import Matrix, Rows

PACKED_AT_ONCE = 512  # columns of a panel that are widened to words at a time
_HALF = AT_ONCE // 2


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
    first: int, stop: int, codes: Array, scales: Array, weight: Array, scale: Array, bias: Array,
    out: Array, panel: Array, words: Array, sums: Array,
) -> None:  # fmt: skip
    """out[i, o] = bias[o] + scales[i] * scale[o] * the sum of (codes[i] - zero) * weight[o].

    In blocks of COLUMNS outputs, from the block `first` to before `stop`.

    Args:
        codes: (rows, columns), rows up to whole tiles; all after those of `out` are `zero`, at
            least one: what is taken away is computed as one row more.
        scales: (m,); scale: (n, 1); bias: (n,), or (0,) for none; out: (m, n).
        panel, words: scratch, see `pack_panel`; sums: (rows, COLUMNS), int32.
    """
    m, n = out.shape
    for block in range(first, stop):
        start = block * COLUMNS
        end = min(start + COLUMNS, n)
        pack_panel(weight[start:end], words, panel)
        for i in range(0, codes.shape[0], ROWS):
            byte_tile(
                panel.shape[0], address(codes) + i * codes.strides[0], codes.strides[0],
                address(panel), address(sums) + i * sums.strides[0], sums.strides[0],
            )  # fmt: skip
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
    threads: int, blocks: int, codes: Array, scales: Array, weight: Array, scale: Array,
    bias: Array, out: Array, panel: Array, words: Array, sums: Array,
) -> None:  # fmt: skip
    for t in prange(threads):
        first, stop = blocks * t // threads, blocks * (t + 1) // threads
        product_of_codes(
            first, stop, codes, scales, weight, scale, bias, out, panel[t], words[t], sums[t]
        )


@kernel
def few_rows(
    first: int, stop: int, x: Array, scales: Array, weight: Array, scale: Array, bias: Array,
    columns: int, is_nibbles: bool, out: Array,
) -> None:  # fmt: skip
    """The outputs from `first` to before `stop`, at least AT_ONCE, for up to MOST_ROWS rows.

    Args:
        x: words (m, ...), see `word_codes`; scales: (m,).
        weight: int8 (n, columns), or uint8 (n, columns / 2) if `is_nibbles`.
        scale: (n, 1), or (n, columns / 32).
        bias: (n,), or (0,) for none.
        out: (m, n)
    """
    m = x.shape[0]
    wide = AT_ONCE if m == 1 else _HALF
    steps = columns // STEP if is_nibbles else columns // WORDS
    done = steps * (STEP if is_nibbles else WORDS)
    totals = np.empty((m, AT_ONCE), np.float32)
    for begin in range(first, stop, wide):
        o = min(begin, stop - wide)
        w = address(weight) + o * weight.strides[0]
        if is_nibbles:
            nibble_rows(
                m, steps, w, weight.strides[0], address(x) + 2 * REST_WORDS, x.strides[0],
                address(scale) + o * scale.strides[0], scale.strides[0], address(totals),
            )  # fmt: skip
        else:
            byte_rows(m, steps, w, weight.strides[0], address(x), x.strides[0], address(totals))
        if done < columns:
            add_rest(x, weight, scale, done, columns, is_nibbles, o, wide, totals)
        for r in range(m):
            for t in range(wide):
                value = totals[r, t] * scales[r]
                if not is_nibbles:
                    value *= scale[o + t, 0]
                out[r, o + t] = value + bias[o + t] if bias.size else value


@kernel(fastmath=EXACT)
def few_rows_of_floats(
    x: Array, is_rounded: bool, zero: np.float32, step: np.float32, weight: Array, scale: Array,
    bias: Array, is_nibbles: bool, out: Array,
) -> None:  # fmt: skip
    """The same where a value is NaN or infinite, one product after the other.

    Args:
        x: (m, k), as it is.
        is_rounded: it counts as its codes of 8 bits: by zero and step, or, if the step is 0, each
            row by its largest magnitude.
    """
    (m, k), n, group = x.shape, len(weight), weight.shape[1] // scale.shape[1]
    for r in range(m):
        row = x[r].copy()
        if is_rounded:
            round_row(row, zero, step)
        for o in range(n):
            total = bias[o] if bias.size else np.float32(0)
            for p in range(k):
                byte = p // 32 * 16 + p % 16 if is_nibbles else p
                code = np.int64(weight[o, byte])
                if is_nibbles:
                    code = (((code >> 4 if p % 32 >= 16 else code) & 15) ^ 8) - 8
                total += row[p] * (np.float32(code) * scale[o, byte // group])
            out[r, o] = total


@kernel(inner=True)
def add_rest(
    x: Array, weight: Array, scale: Array, done: int, columns: int, is_nibbles: bool, o: int,
    wide: int, totals: Array,
) -> None:  # fmt: skip
    """Add the products of what is left of a row after whole steps."""
    for r in range(x.shape[0]):
        for t in range(wide):
            total = np.float32(0)
            for p in range(done, columns):
                if is_nibbles:
                    byte = np.int64(weight[o + t, p // 32 * 16 + p % 16])
                    half = byte >> 4 if p % 32 >= 16 else byte
                    code = ((half & 15) ^ 8) - 8
                    total += np.float32(code * rest_of(x[r], p)) * scale[o + t, p // 32]
                else:
                    total += np.float32(np.int32(weight[o + t, p]) * np.int32(x[r, p]))
            totals[r, t] += total


@kernel(parallel=True)
def few_rows_parallel(
    threads: int, n: int, x: Array, scales: Array, weight: Array, scale: Array, bias: Array,
    columns: int, is_nibbles: bool, out: Array,
) -> None:  # fmt: skip
    for t in prange(threads):
        few_rows(
            n * t // threads, n * (t + 1) // threads, x, scales, weight, scale, bias, columns,
            is_nibbles, out,
        )  # fmt: skip
