"""Products of matrices, of which causal order needs only a part.

Query i sees the keys before `seen + i` only. In a block of queries (rows) and keys (columns) that
is what lies below a diagonal:

           keys
         # # . . .          scores      of a tile of rows only the columns are computed that its
queries  # # # . .                      last row sees
         # # # # .          sums        a row of weights ends there: so many steps of the product
                            transposed  a column of weights begins there

What a tile computes above the diagonal is replaced by zeros later (`weights`).

The tiles are those of `gemm.micro_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tinytorch.backends.optimized.gemm.blocking import balanced
from tinytorch.backends.optimized.gemm.gemv_kernel import dots_with_rows_f32, dots_with_rows_f64
from tinytorch.backends.optimized.gemm.micro_kernel import gemm_tile_f32, gemm_tile_f64
from tinytorch.backends.optimized.gemm.packing import pack_f32, pack_f64
from tinytorch.backends.optimized.gemm.panels import (
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
    panel_columns,
)
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import export, kernel
from tinytorch.jit.operands import MATRIX, NOTHING, NOWHERE, ROWS, SIZE, Matrix, Rows

WIDER = tuple(
    min(w for w in host_vector_unit().tile_vectors if w >= v) for v in range(TILE_VECTORS + 1)
)
"""For each number of vectors the next for which there is a tile."""

_PANEL = TILE_VECTORS * REGISTER_BYTES // 4
KEYS = 256 // _PANEL * _PANEL  # keys at a time in the forward: whole panels, in both dtypes


_THREE, _FIVE = (SIZE, SIZE, SIZE, ROWS, ROWS, ROWS), (SIZE, SIZE, SIZE, SIZE, SIZE)


@kernel(force_inline=True)
def columns_of_keys(keys: int, j: int, lanes: int) -> int:
    """Columns of the panel of keys that begins with number j: each block of KEYS has its own."""
    return panel_columns(min(keys - j, KEYS - j % KEYS), lanes)


class Products:
    """The products in float32 or float64, of addresses, and strides in bytes.

    They are C symbols: forward and backward call them, and are compiled without them.
    """

    pack: Callable[..., None]
    scores: Callable[..., None]
    dots: Callable[..., None]
    sums: Callable[..., None]
    transposed: Callable[..., None]

    def __init__(self, real: Any) -> None:
        itemsize = np.dtype(real).itemsize
        lanes = REGISTER_BYTES // itemsize
        tile, copy = (gemm_tile_f32, pack_f32) if itemsize == 4 else (gemm_tile_f64, pack_f64)
        suffix = f"f{8 * itemsize}"

        @export(f"tinytorch_attention_pack_{suffix}", types.void(SIZE, SIZE, MATRIX, SIZE))
        def pack(rows: int, depth: int, x: Matrix, panels: int) -> None:
            """x (rows, depth) as the right operand of `scores`, x.T, packed."""
            j = 0
            while j < rows:
                columns = columns_of_keys(rows, j, lanes)
                to = Rows(panels + j * depth * itemsize, columns * itemsize)
                copy(columns, depth, Matrix(x.address + j * x.row, x.row, x.column), to)
                j += columns

        @export(f"tinytorch_attention_scores_{suffix}", types.void(*_FIVE, ROWS, SIZE, ROWS, SIZE))
        def scores(
            m: int,
            first: int,
            stop: int,
            keys: int,
            depth: int,
            a: Rows,
            panels: int,
            c: Rows,
            seen: int,
        ) -> None:
            """C (m, stop - first) = A (m, depth) @ the columns first to stop of what is packed.

            `first` is where a panel begins; there are `keys` columns in all. Row i needs those
            before seen + i, of the columns of C.
            """
            j = first
            while j < stop:
                columns = columns_of_keys(keys, j, lanes)
                rows = balanced(m, TILE_ROWS[(columns + lanes - 1) // lanes])
                for i in range(0, m, rows):
                    height = min(rows, m - i)
                    needed = min(columns, seen + i + height - 1 - (j - first))
                    if needed > 0:
                        wide = min(WIDER[(needed + lanes - 1) // lanes] * lanes, columns)
                        left = Matrix(a.address + i * a.stride, a.stride, itemsize)
                        panel = Rows(panels + j * depth * itemsize, columns * itemsize)
                        at = c.address + i * c.stride + (j - first) * itemsize
                        to = Rows(at, c.stride)
                        tile(height, wide, depth, left, panel, NOWHERE, to, 0, NOTHING, 0)
                j += columns

        @export(f"tinytorch_attention_sums_{suffix}", types.void(*_THREE, SIZE, SIZE))
        def sums(
            m: int, n: int, depth: int, a: Rows, b: Rows, c: Rows, adds: int, seen: int
        ) -> None:
            """C (m, n) = A (m, depth) @ B (depth, n), or += if `adds` is not 0; in row i of A the
            elements from seen + i on are zeros."""
            j = 0
            while j < n:
                columns = panel_columns(n - j, lanes)
                rows = balanced(m, TILE_ROWS[(columns + lanes - 1) // lanes])
                for i in range(0, m, rows):
                    height = min(rows, m - i)
                    steps = max(min(depth, seen + i + height - 1), 0)
                    left = Matrix(a.address + i * a.stride, a.stride, itemsize)
                    right = Rows(b.address + j * itemsize, b.stride)
                    to = Rows(c.address + i * c.stride + j * itemsize, c.stride)
                    start = Rows(to.address if adds else 0, c.stride)
                    tile(height, columns, steps, left, right, start, to, 0, NOTHING, 0)
                j += columns

        @export(f"tinytorch_attention_transposed_{suffix}", types.void(*_THREE, SIZE))
        def transposed(m: int, n: int, depth: int, a: Rows, b: Rows, c: Rows, seen: int) -> None:
            """C (m, n) += A.T (m, depth) @ B (depth, n); in row i of A the elements from seen + i
            on are zeros."""
            j = 0
            while j < n:
                columns = panel_columns(n - j, lanes)
                rows = balanced(m, TILE_ROWS[(columns + lanes - 1) // lanes])
                for i in range(0, m, rows):
                    # the first row of A that has something here: seen + start > i
                    start = max(i - seen + 1, 0)
                    if start < depth:
                        x = a.address + i * itemsize + start * a.stride
                        left = Matrix(x, itemsize, a.stride)
                        right = Rows(b.address + start * b.stride + j * itemsize, b.stride)
                        to = Rows(c.address + i * c.stride + j * itemsize, c.stride)
                        height, steps = min(rows, m - i), depth - start
                        tile(height, columns, steps, left, right, to, to, 0, NOTHING, 0)
                j += columns

        self.dots = dots_with_rows_f32 if itemsize == 4 else dots_with_rows_f64
        self.pack, self.scores, self.sums, self.transposed = pack, scores, sums, transposed
