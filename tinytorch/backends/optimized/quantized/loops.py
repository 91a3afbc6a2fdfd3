"""The loops around the tiles: products of codes in blocks, and of few rows with codes in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import prange

from tinytorch.backends.optimized.gemm.packing import pack_f32
from tinytorch.backends.optimized.quantized.code_tile import DYNAMIC, STATIC, CodeTile
from tinytorch.backends.optimized.quantized.nibbles import nibble_rows
from tinytorch.backends.optimized.quantized.rounding import (
    EXACT,
    Codes,
    OffsetCodes,
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
is int32 (rows, columns of a block). For several threads, one after the other."""


# LLVM makes vector code of these loops where they are on their own; inside of others it does not.


@kernel(force_inline=True)
def widen(codes: Array, words: Array) -> None:
    """Bytes as words."""
    for j in range(codes.size):
        words[j] = codes[j]


@kernel(force_inline=True)
def float_of_sum(
    sum: np.int32, of_weights: np.int32, zero: np.int32, factor: np.float32, scale: np.float32
) -> np.float32:
    """A result from the sum of codes times weights, and that of the weights alone."""
    return np.float32(np.int32(sum - zero * of_weights)) * factor * scale


@kernel(force_inline=True)
def floats_of_sums(
    sums: Array, weights: Array, zero: np.int32, factor: np.float32, scale: Array, out: Array
) -> None:
    """A row of results."""
    for t in range(out.size):
        out[t] = float_of_sum(sums[t], weights[t], zero, factor, scale[t])


@kernel(force_inline=True)
def biased_floats_of_sums(
    sums: Array,
    weights: Array,
    zero: np.int32,
    factor: np.float32,
    scale: Array,
    bias: Array,
    out: Array,
) -> None:
    """The same and a bias: written once, as a loop of its own over the results takes as long."""
    for t in range(out.size):
        out[t] = float_of_sum(sums[t], weights[t], zero, factor, scale[t]) + bias[t]


@kernel(inner=True, refcounts=False)
def row_of_results(
    sums: Array,
    weights: Array,
    zero: np.int32,
    factor: np.float32,
    scale: Array,
    bias: Array,
    start: int,
    out: Array,
) -> None:
    """The same for columns from `start` on, with a bias if there is one."""
    scale = scale[start : start + out.size]
    if bias.size:
        bias = bias[start : start + out.size]
        biased_floats_of_sums(sums, weights, zero, factor, scale, bias, out)
    else:
        floats_of_sums(sums, weights, zero, factor, scale, out)


def _make_product_of_codes(tile: CodeTile) -> tuple[Callable[..., None], Callable[..., None]]:
    tile_rows, tile_columns, run = tile.rows, tile.columns, tile.run
    per_lane, block_columns = tile.form.per_lane, tile.block_columns

    @kernel(inner=True, refcounts=False)
    def pack_panel(weight: Array, words: Array, panel: Array) -> None:
        """Rows of the weight (columns, k) as a panel (steps, tile_columns, per_lane).

        Four bytes, or two words, of a row are copied as if they were a float.

        Args:
            words: (tile_columns, PACKED_AT_ONCE), scratch.
        """
        columns, k = weight.shape
        if columns < tile_columns:
            panel[:] = 0
        whole = k // per_lane
        if per_lane == 4:
            source = Matrix(address(weight), weight.strides[0], 4)
            pack_f32(columns, whole, source, Rows(address(panel), 4 * tile_columns))
        else:
            step = PACKED_AT_ONCE
            for start in range(0, whole, step // 2):
                count = min(step // 2, whole - start)
                for t in range(columns):
                    widen(weight[t, 2 * start : 2 * (start + count)], words[t])
                to = address(panel) + start * 4 * tile_columns
                halves = Matrix(address(words), words.strides[0], 4)
                pack_f32(columns, count, halves, Rows(to, 4 * tile_columns))
        if whole * per_lane < k:
            for t in range(columns):
                for j in range(per_lane):
                    p = whole * per_lane + j
                    panel[whole, t, j] = weight[t, p] if p < k else 0

    @kernel(refcounts=False)
    def product_of_codes(
        first: int, stop: int, x: OffsetCodes, weight: Weight, out: Array, scratch: Scratch
    ) -> None:
        """out[i, o] = bias[o] + scales[i] * scale[o] * sum of (codes[i] - zeros[i]) * weight[o].

        In blocks of `block_columns` outputs, from the block `first` to before `stop`.

        Args:
            x: its codes are (rows, columns), rows up to whole tiles; all after those of `out` are
                1, at least one row: so the sums of the weights are a row more of the product.
            weight: of bytes, in one group; its scales are (n,).
            out: (m, n).
        """
        (m, n), (codes, scales, zeros), (panel, words, sums) = out.shape, x, scratch
        stored, scale, bias = weight
        for block in range(first, stop):
            start = block * block_columns
            end = min(start + block_columns, n)
            for o in range(start, end, tile_columns):
                pack_panel(stored[o : min(o + tile_columns, end)], words, panel)
                for i in range(0, codes.shape[0], tile_rows):
                    rows = Rows(address(codes) + i * codes.strides[0], codes.strides[0])
                    to = address(sums[i, o - start :])
                    run(panel.shape[0], rows, address(panel), Rows(to, sums.strides[0]))
            for i in range(m):
                target, of_row = out[i, start:end], sums[i]
                row_of_results(of_row, sums[m], zeros[i], scales[i], scale, bias, start, target)

    @kernel(parallel=True)
    def product_of_codes_parallel(
        threads: int, blocks: int, x: OffsetCodes, weight: Weight, out: Array, scratch: Scratch
    ) -> None:
        panel, words, sums = scratch
        for t in prange(threads):
            first, stop = blocks * t // threads, blocks * (t + 1) // threads
            product_of_codes(first, stop, x, weight, out, (panel[t], words[t], sums[t]))

    return product_of_codes, product_of_codes_parallel


PRODUCTS = {tile: _make_product_of_codes(tile) for tile in dict.fromkeys((DYNAMIC, STATIC))}
"""For each tile the product of codes, in one thread and in several."""


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
    codes, scale, bias = weight
    (m, k), n, group = x.shape, len(codes), codes.shape[1] // scale.shape[1]
    for r in range(m):
        row = x[r].copy()
        if is_rounded:
            round_row(row, rounding)
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
