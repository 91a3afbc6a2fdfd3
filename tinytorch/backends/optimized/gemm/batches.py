"""A product of a batch whose operands fit into L1, such as a head of attention's.

Where they come from beyond L2, as in a step that walks through more memory, the processor foresees
few of the lines that a product reads: its rows are short. So each tile is followed by requests for
a part of what the next product reads and writes: a core waits for 10 to 16 lines at a time, and
about as many come in the time of a tile. (Were all asked for at once, a product would wait.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tinytorch.backends.optimized.gemm.blocking import KC_BYTES, L1_BYTES, balanced
from tinytorch.backends.optimized.gemm.micro_kernel import (
    gemm_tile_f32,
    gemm_tile_f64,
)
from tinytorch.backends.optimized.gemm.packing import ask_rows, pack_f32, pack_f64
from tinytorch.backends.optimized.gemm.panels import (
    REGISTER_BYTES,
    TILE_ROWS,
    make_pack_block,
    panel_columns,
    row_bytes,
    tiles_of,
)
from tinytorch.backends.optimized.gemm.tiles import transposed
from tinytorch.jit.library import kernel
from tinytorch.jit.operands import NOTHING, NOWHERE, Matrix, Rows

LEAST = 16
"""Rows, columns and steps of a product whose tiles take long enough to be followed by requests."""


class Following(NamedTuple):
    """Addresses of the operands of the next product, which is like this one; 0 for none."""

    a: int
    b: int
    c: int


@kernel(force_inline=True)
def fits_l1(m: int, n: int, k: int, itemsize: int) -> bool:
    """Whether the operands of a product fit into L1 together, and its tiles take some time."""
    whole = (m * k + k * n + m * n) * itemsize
    return min(m, n, k) >= LEAST and k * itemsize <= KC_BYTES and whole <= L1_BYTES


def _make_product(real: Any) -> Callable[..., None]:
    itemsize = np.dtype(real).itemsize
    lanes = REGISTER_BYTES // itemsize
    tile, pack = (gemm_tile_f32, pack_f32) if itemsize == 4 else (gemm_tile_f64, pack_f64)
    pack_block = make_pack_block(pack, itemsize)

    @kernel(force_inline=True)
    def ask_part(x: Matrix, rows: int, columns: int, part: int, step: int) -> None:
        """Ask for one part of a matrix, so many of its rows in the order of memory."""
        count = min(step, rows - part * step)
        ask_rows(real, x.address + part * step * x.row, x.row, count, columns * itemsize)

    @kernel(force_inline=True)
    def along_memory(x: Matrix, rows: int, columns: int) -> tuple[Matrix, int, int]:
        """A matrix, or its transpose, whose rows are adjacent elements, and its shape."""
        if x.column == itemsize:
            return x, rows, columns
        return transposed(x), columns, rows

    @kernel(inner=True, refcounts=False)
    def product(
        m: int, n: int, k: int, a: Matrix, b: Matrix, c: Rows, following: Following, scratch: int
    ) -> None:
        """C = A @ B; the operands of the next product are asked for."""
        is_packed = b.column != itemsize
        if is_packed:
            pack_block(n, k, b, scratch, 0, 0)
        parts, j = 0, 0
        while j < n:
            columns = panel_columns(n - j, lanes)
            parts += tiles_of(m, (columns + lanes - 1) // lanes)
            j += columns
        # divisions take as long as some steps of a tile: once for a product, not for each tile
        next_a, rows_a, columns_a = along_memory(Matrix(following.a, a.row, a.column), m, k)
        next_b, rows_b, columns_b = along_memory(Matrix(following.b, b.row, b.column), k, n)
        step_a, step_b, step_c = -(-rows_a // parts), -(-rows_b // parts), -(-m // parts)
        part, j = 0, 0
        while j < n:
            columns = panel_columns(n - j, lanes)
            rows = balanced(m, TILE_ROWS[(columns + lanes - 1) // lanes])
            panel = Rows(b.address + j * itemsize, b.row)
            if is_packed:
                panel = Rows(scratch + j * k * itemsize, row_bytes(columns, lanes))
            for i in range(0, m, rows):
                left = Matrix(a.address + i * a.row, a.row, a.column)
                to = Rows(c.address + i * c.stride + j * itemsize, c.stride)
                tile(min(rows, m - i), columns, k, left, panel, NOWHERE, to, 0, NOTHING, 0)
                if following.a:
                    ask_part(next_a, rows_a, columns_a, part, step_a)
                    ask_part(next_b, rows_b, columns_b, part, step_b)
                    ask_part(Matrix(following.c, c.stride, itemsize), m, n, part, step_c)
                part += 1
            j += columns

    return product


product_f32, product_f64 = map(_make_product, (np.float32, np.float64))
