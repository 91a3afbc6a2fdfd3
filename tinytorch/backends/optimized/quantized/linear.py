"""`quantized_linear` of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends.optimized.gemm.matmul import linear
from tinytorch.backends.optimized.quantized import strassen
from tinytorch.backends.optimized.quantized.bfloat16 import (
    few_rows_of_halves,
    few_rows_of_halves_parallel,
    floats_of_halves,
)
from tinytorch.backends.optimized.quantized.code_tile import DYNAMIC, STATIC, CodeTile
from tinytorch.backends.optimized.quantized.loops import (
    PACKED_AT_ONCE,
    PRODUCTS,
    Weight,
    few_rows,
    few_rows_parallel,
)
from tinytorch.backends.optimized.quantized.nibbles import words_of_row
from tinytorch.backends.optimized.quantized.rounding import (
    OffsetCodes,
    Rounding,
    floats_of_bytes,
    floats_of_nibbles,
    offset_codes,
    word_codes,
)
from tinytorch.backends.optimized.quantized.vectors import AT_ONCE, MOST_ROWS
from tinytorch.backends.reference_quantized import rounded
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.buffers import empty, workspace
from tinytorch.shapes_quantized import DYNAMIC_STEPS

_F32, _I32, _I16 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int16)
_NO_BIAS = np.empty(0, np.float32)
LARGEST = {
    "float": np.float32(32767), "dynamic": np.float32(DYNAMIC_STEPS), "static": np.float32(0),
}  # fmt: skip
BLOCK_BYTES = 1 << 20  # of the weight, as floats, at a time: they stay in a core's cache


def quantized_linear(
    x: Array,
    weight: Array,
    scale: Array,
    bias: Array | None = None,
    range_: Array | None = None,
    *,
    bits: int,
    group_size: int,
    activation: str,
) -> Array:
    """x @ (codes * scale).T + bias; see `decompositions_quantized.quantized_linear`.

    For up to MOST_ROWS rows of float32 the codes are read once from memory, as they are. Floats are
    rounded to 16 bits for that, by the largest magnitude of their row, but not beside bfloat16. For
    more rows, integers are multiplied where the rows are rounded; otherwise blocks of the weight
    become floats.
    """
    k, n = x.shape[-1], weight.shape[0]
    rows = np.ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), k)
    weight, scale = np.ascontiguousarray(weight), np.ascontiguousarray(scale)
    given = _NO_BIAS if bias is None else np.ascontiguousarray(bias)
    out = empty((len(rows), n), x.dtype)
    zero, step = (0.0, 0.0) if range_ is None else (float(range_[1]), float(range_[0]))
    has_kernel = x.dtype == _F32 and len(rows) > 0 and n >= AT_ONCE
    if bits >= 8:
        has_kernel &= scale.shape[1] == 1
    else:
        has_kernel &= scale.shape[1] == weight.shape[1] // 16
    done = False
    rounding = (np.float32(zero), np.float32(step), LARGEST[activation])
    if has_kernel and len(rows) <= MOST_ROWS and bits == 16:
        halves = (rows, (weight, scale, given), out)
        _in_parts(few_rows_of_halves, few_rows_of_halves_parallel, n, rows.size, halves)
        done = True
    elif has_kernel and len(rows) <= MOST_ROWS:
        done = _few_rows(rows, (weight, scale, given), out, rounding, bits)
    elif has_kernel and activation != "float" and bits == 8:
        codes = np.ascontiguousarray(weight[:, :k])  # a row that is one short group is longer
        done = _codes_times_codes(rows, (codes, scale.ravel(), given), out, rounding)
    if not done:
        _by_blocks(rounded(rows, range_, activation), weight, scale, bias, group_size, bits, out)
    return out.reshape(*x.shape[:-1], n)


def _few_rows(x: Array, weight: Weight, out: Array, rounding: Rounding, bits: int) -> bool:
    """Whether that could be done: it cannot where a value is NaN or infinite."""
    (m, k), (n, stored) = x.shape, weight[0].shape
    words = workspace((m, words_of_row(stored * 8 // bits, bits)), _I16)
    codes = (words, np.empty(m, _F32))
    if not word_codes(x, x.view(np.int32), rounding, bits == 4, codes):
        return False
    _in_parts(few_rows, few_rows_parallel, n, m * k, (codes, weight, bits == 4, out))
    return True


def _in_parts(serial: Any, parallel: Any, n: int, size: int, rest: tuple[Any, ...]) -> None:
    """All of n outputs for so many elements of x, at least AT_ONCE in each thread."""
    count = min(threads.threads_for(size * n), n // AT_ONCE)
    threads.run_parallel(
        lambda count: parallel(count, n, *rest), lambda: serial(0, n, *rest), count
    )


def _codes_times_codes(x: Array, weight: Weight, out: Array, rounding: Rounding) -> bool:
    """Whether that could be done: it cannot where a value is NaN or infinite."""
    tile = STATIC if rounding[1] > 0 else DYNAMIC
    (m, k), n, form = x.shape, len(weight[0]), tile.form
    in_halves = rounding[1] > 0 and strassen.is_faster(m, k, n)
    halved = n // strassen.COLUMNS * strassen.COLUMNS if in_halves else 0
    whole = 2 * tile.rows if halved else tile.rows
    rows, columns = -(-(m + 1) // whole) * whole, -(-k // form.per_lane) * form.per_lane
    values = workspace((rows, columns), np.dtype(form.code))
    codes = (values, np.empty(m, _F32), np.empty(m, _I32))
    if not offset_codes(x, x.view(np.int32), rounding, codes):
        return False
    if halved:
        _in_halves(codes, _outputs(weight, slice(halved)), out[:, :halved])
    if halved < n:
        rest = slice(halved, n)
        _plain(tile, codes, _outputs(weight, rest), out[:, rest])
    return True


def _outputs(weight: Weight, outputs: slice) -> Weight:
    """The part of a weight for some of its outputs."""
    codes, scale, bias = weight
    return codes[outputs], scale[outputs], bias[outputs]


def _plain(tile: CodeTile, codes: OffsetCodes, weight: Weight, out: Array) -> None:
    """All products of codes, a tile after the other."""
    product, product_parallel = PRODUCTS[tile]
    (m, n), (rows, columns), form = out.shape, codes[0].shape, tile.form
    blocks, steps = -(-n // tile.block_columns), columns // form.per_lane
    count = min(threads.threads_for(m * n * columns), blocks)
    panel = workspace((count, steps, tile.columns, form.per_lane), np.dtype(form.signed))
    words = workspace((count, tile.columns, PACKED_AT_ONCE), _I16)
    sums = workspace((count, rows, tile.block_columns), _I32)
    rest, scratch = (codes, weight, out), (panel, words, sums)
    threads.run_parallel(
        lambda count: product_parallel(count, blocks, *rest, scratch),
        lambda: product(0, blocks, *rest, (panel[0], words[0], sums[0])),
        count,
    )


def _in_halves(codes: OffsetCodes, weight: Weight, out: Array) -> None:
    """The product of codes by seven products of halves."""
    (m, n), (rows, columns) = out.shape, codes[0].shape
    lefts = workspace((7, rows // 2, columns // 2), _I16)
    strassen.halves_of_rows(codes[0], lefts)
    blocks = -(-n // (2 * strassen.BLOCK))
    count = min(threads.threads_for(m * n * columns), blocks)
    panel = workspace((count, columns // 4, STATIC.columns, 2), _I16)
    sums = workspace((count, 3, rows // 2, 2 * strassen.BLOCK), _I32)
    rest, scratch = (lefts, codes, weight, out), (panel, sums)
    threads.run_parallel(
        lambda count: strassen.product_in_halves_parallel(count, blocks, *rest, scratch),
        lambda: strassen.product_in_halves(0, blocks, *rest, (panel[0], sums[0])),
        count,
    )


def _by_blocks(
    x: Array,
    weight: Array,
    scale: Array,
    bias: Array | None,
    group_size: int,
    bits: int,
    out: Array,
) -> None:
    """Blocks of the weight as floats, one after the other."""
    (_, k), n = x.shape, len(weight)
    step = max(1, BLOCK_BYTES // max(k * x.itemsize, 1))
    floats_of = {4: floats_of_nibbles, 8: floats_of_bytes, 16: floats_of_halves}[bits]
    block = workspace((min(step, n), k), x.dtype)
    for o in range(0, n, step):
        end = min(o + step, n)
        floats = block[: end - o]
        floats_of(weight[o:end], scale[o:end], group_size or max(weight.shape[1] * 2, 1), floats)
        out[:, o:end] = linear(x, floats, None if bias is None else bias[o:end])
