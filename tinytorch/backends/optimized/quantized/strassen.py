"""A product of words by seven products of halves, where the plain way takes eight.

    x = [x11 x12]    weight.T = [w11 w12]    sums = [M1 + M4 - M5 + M7   M3 + M5          ]
        [x21 x22]               [w21 w22]           [M2 + M4             M1 - M2 + M3 + M6]

    M1 = (x11 + x22) (w11 + w22)             M5 = (x11 + x12) w22
    M2 = (x21 + x22) w11                     M6 = (x21 - x11) (w11 + w12)
    M3 = x11 (w12 - w22)                     M7 = (x12 - x22) (w21 + w22)
    M4 = x22 (w21 - w11)

Floats would lose digits by it. Integers lose none: a sum of two codes fits into a word as a code
does, and what runs over 32 bits on the way comes back, as sums in 32 bits are exact modulo 2^32.
So codes up to 255, which processors without VNNI multiply as words at one and a half times the rate
of floats, get an eighth more.

Source: V. Strassen, "Gaussian elimination is not optimal", Numerische Mathematik 13 (1969).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import prange, types

from tinytorch.backends.optimized.gemm.packing import emit_transpose
from tinytorch.backends.optimized.quantized.code_tile import STATIC
from tinytorch.backends.optimized.quantized.dots import OF_WORDS
from tinytorch.backends.optimized.quantized.loops import Weight, row_of_results, widen
from tinytorch.backends.optimized.quantized.rounding import OffsetCodes
from tinytorch.backends.optimized.quantized.vectors import WORDS, words_at
from tinytorch.dtypes import Array
from tinytorch.jit.library import export, kernel
from tinytorch.jit.llvm import Value, VectorEmitter, address, i64, memory, vector_intrinsic
from tinytorch.jit.operands import ROWS, SIZE, Rows

LEAST_ROWS, LEAST_SIZE = 96, 512
"""Of x, and columns and rows of the weight, from which the eighth is more than the sums take."""

COLUMNS = 2 * STATIC.columns
"""Outputs come in multiples of so many: whole tiles in both halves."""

TERMS = 2 * WORDS
"""Columns of x come in multiples of so many: whole registers in both halves."""

# Of each product: the quarter of x, another that is added to it times a sign (0 for none), the same
# of the weight, and the quarter of the sums that it is added to times a sign, twice. A quarter is 2
# times its half of the rows plus its half of the columns; the weight's as it is above, transposed.
_PRODUCTS = np.array(
    [
        [0, 3, 1, 0, 3, 1, 0, 1, 3, 1],
        [2, 3, 1, 0, 0, 0, 2, 1, 3, -1],
        [0, 0, 0, 1, 3, -1, 1, 1, 3, 1],
        [3, 0, 0, 2, 0, -1, 0, 1, 2, 1],
        [0, 1, 1, 3, 0, 0, 0, -1, 1, 1],
        [2, 0, -1, 0, 1, 1, 3, 1, 0, 0],
        [1, 3, -1, 2, 3, 1, 0, 1, 0, 0],
    ],
    np.int64,
)
_ROWS, _COLUMNS, _RUN = STATIC.rows, STATIC.columns, STATIC.run
BLOCK = STATIC.block_columns


def is_faster(rows: int, k: int, n: int) -> bool:
    """Whether a product of `STATIC` codes takes less time in halves."""
    return (
        STATIC.form is OF_WORDS
        and rows >= LEAST_ROWS
        and min(k, n) >= LEAST_SIZE
        and k % TERMS == 0
    )


@kernel(force_inline=True)
def add_words(x: Array, y: Array, words: Array) -> None:
    """words = x + y"""
    for j in range(x.size):
        words[j] = np.int16(x[j]) + np.int16(y[j])


@kernel(force_inline=True)
def subtract_words(x: Array, y: Array, words: Array) -> None:
    """words = x - y"""
    for j in range(x.size):
        words[j] = np.int16(x[j]) - np.int16(y[j])


@kernel(force_inline=True)
def add_sums(product: Array, sign: np.int32, sums: Array) -> None:
    """sums += sign * product, modulo 2^32."""
    for j in range(sums.size):
        sums[j] += sign * product[j]


@kernel(inner=True, refcounts=False)
def combine(x: Array, y: Array, sign: int, words: Array) -> None:
    """words = x + sign * y, row by row."""
    if sign > 0:
        add_words(x, y, words)
    elif sign < 0:
        subtract_words(x, y, words)
    else:
        widen(x, words)


@kernel(refcounts=False)
def halves_of_rows(codes: Array, to: Array) -> None:
    """Codes (rows, columns) as the seven left operands (7, rows / 2, columns / 2)."""
    _, rows, columns = to.shape
    for r in range(7):
        first, second, sign = _PRODUCTS[r, 0], _PRODUCTS[r, 1], _PRODUCTS[r, 2]
        p, q = first % 2 * columns, second % 2 * columns
        for i in range(rows):
            x = codes[first // 2 * rows + i, p : p + columns]
            combine(x, codes[second // 2 * rows + i, q : q + columns], sign, to[r, i])


def _pack_twin(dtype: type, size: int, x: Rows, y: Rows, sign: int, panel: int) -> None:
    given = [memory(np.int8, rows.address, (_COLUMNS, size), (rows.stride,)) for rows in (x, y)]
    words = given[0].astype(np.int16) + given[1].astype(np.int16) * np.int16(sign)
    shape = (size // 2, _COLUMNS, 2)
    memory(np.int16, panel, shape, (4 * _COLUMNS, 4))[...] = words.reshape(
        _COLUMNS, -1, 2
    ).swapaxes(0, 1)


def _emit_pack(e: VectorEmitter, size: Value, x: Rows, y: Rows, panel: Value, sign: int) -> None:
    build = e.builder
    steps = build.sdiv(size, i64(WORDS))
    offsets = [[e.mul(rows.stride, i) for i in range(e.lanes)] for rows in (x, y)]

    def block(state: list[Value]) -> list[Value]:
        p, q, to = state
        rows = []
        for i in range(e.lanes):
            words = words_at(e, e.at(p, offsets[0][i]))
            if sign:
                others = words_at(e, e.at(q, offsets[1][i]))
                words = build.add(words, others) if sign > 0 else build.sub(words, others)
            rows.append(build.bitcast(words, e.vector))
        for step in emit_transpose(e, rows):
            e.store(step, to)
            to = e.at(to, 4 * _COLUMNS)
        return [e.at(p, WORDS), e.at(q, WORDS), to]

    def vector(state: list[Value]) -> list[Value]:
        e.loop(steps, state, block)
        p, q, to = state
        down = [e.mul(rows.stride, e.lanes) for rows in (x, y)]
        return [e.at(p, down[0]), e.at(q, down[1]), e.at(to, e.register_bytes)]

    starts = [e.pointer(address) for address in (x.address, y.address, panel)]
    e.loop(i64(_COLUMNS // e.lanes), starts, vector)


@vector_intrinsic(_pack_twin)
def _pack(e: VectorEmitter, size: Value, x: Rows, y: Rows, sign: Value, panel: Value) -> None:
    e.switch(sign, {s: partial(_emit_pack, e, size, x, y, panel, s) for s in (-1, 0, 1)})


@export("tinytorch_strassen_pack", types.void(SIZE, ROWS, ROWS, SIZE, SIZE))
def pack_sum(size: int, x: Rows, y: Rows, sign: int, panel: int) -> None:
    """Pack x + sign * y, both bytes (a tile's columns, size), as the panel of a tile of words.

    Args:
        size: a multiple of WORDS.
        sign: 0, 1 or -1.
        panel: its address; (size / 2, a tile's columns, 2) words.
    """
    _pack(np.float32, size, x, y, sign, panel)


@kernel(refcounts=False)
def product_in_halves(
    first: int,
    stop: int,
    lefts: Array,
    x: OffsetCodes,
    weight: Weight,
    out: Array,
    scratch: tuple[Array, Array],
) -> None:
    """What `loops.product_of_codes` computes, in blocks of columns of both halves.

    Args:
        lefts: what `halves_of_rows` makes of x's codes, whose rows are whole tiles in each half.
        weight: (n, k), n a multiple of COLUMNS, k of TERMS.
        scratch: a panel as there for half of k; sums int32 (3, rows / 2, 2 *
            BLOCK): those of both halves of the rows, and room for a product's.
    """
    (m, n), (_, scales, zeros), (panel, sums) = out.shape, x, scratch
    stored, scale, bias = weight
    k = stored.shape[1]
    half = lefts.shape[1]
    product = sums[2]
    for block in range(first, stop):
        start = block * BLOCK
        width = min(BLOCK, n // 2 - start)
        sums[:2] = 0
        for r in range(7):
            p, q = _PRODUCTS[r, 3], _PRODUCTS[r, 4]
            for o in range(0, width, _COLUMNS):
                x_side = (p % 2 * (n // 2) + start + o, p // 2 * (k // 2))
                y_side = (q % 2 * (n // 2) + start + o, q // 2 * (k // 2))
                pack_sum(
                    k // 2,
                    Rows(address(stored) + x_side[0] * k + x_side[1], k),
                    Rows(address(stored) + y_side[0] * k + y_side[1], k),
                    _PRODUCTS[r, 5],
                    address(panel),
                )
                for i in range(0, half, _ROWS):
                    rows = Rows(address(lefts[r, i]), lefts.strides[1])
                    to = Rows(address(product[i, o:]), product.strides[0])
                    _RUN(panel.shape[0], rows, address(panel), to)
            for j in range(6, 10, 2):
                quarter, sign = _PRODUCTS[r, j], np.int32(_PRODUCTS[r, j + 1])
                if sign:
                    at = quarter % 2 * BLOCK
                    for i in range(half):
                        add_sums(product[i, :width], sign, sums[quarter // 2, i, at : at + width])
        for side in range(2):
            begin, at = side * (n // 2) + start, side * BLOCK
            end = begin + width
            of_weights = sums[m // half, m % half, at:]
            for i in range(m):
                target, of_row = out[i, begin:end], sums[i // half, i % half, at:]
                row_of_results(of_row, of_weights, zeros[i], scales[i], scale, bias, begin, target)


@kernel(parallel=True)
def product_in_halves_parallel(
    threads: int,
    blocks: int,
    lefts: Array,
    x: OffsetCodes,
    weight: Weight,
    out: Array,
    scratch: tuple[Array, Array],
) -> None:
    panel, sums = scratch
    for t in prange(threads):
        first, stop = blocks * t // threads, blocks * (t + 1) // threads
        product_in_halves(first, stop, lefts, x, weight, out, (panel[t], sums[t]))
