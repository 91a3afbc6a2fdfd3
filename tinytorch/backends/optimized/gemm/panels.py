"""The sizes of tiles, and blocks copied into panels that are as wide as these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinytorch.backends.optimized.gemm.blocking import DC_BYTES, MC, NC, balanced
from tinytorch.backends.optimized.gemm.packing import ask_rows, clear_columns
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.library import kernel
from tinytorch.jit.operands import Matrix, Rows

_UNIT = host_vector_unit()
REGISTER_BYTES = _UNIT.register_bytes
TILE_VECTORS = _UNIT.tile_vectors[-1]
TILE_ROWS = (0, *(_UNIT.tile_rows(v) for v in range(1, TILE_VECTORS + 1)))  # by vectors per row
NARROW_VECTORS = (TILE_VECTORS + 1) // 2  # tiles of twice the rows
PANEL_VECTORS = tuple(_UNIT.panel_vectors(left) for left in range(2 * TILE_VECTORS))
"""Vectors per row of the next tile, by how many are left; where more are, as for the last."""
READS_WHOLE = _UNIT.has_masks
"""Tiles read the rows of a panel to the end, beyond its columns: what is there is multiplied, and
must be no number that takes long, as integers often are when they are read as floats."""
DOT_ROWS, DOT_COLUMNS = _UNIT.dot_rows, _UNIT.dot_columns

PACK_DEPTH = 64  # steps of k packed at a time, so that few pages are open
ROWS_AT_ONCE = 8  # the same where a step is contiguous: few enough for the processor to read ahead

B_BYTES = DC_BYTES * NC + 4096
"""Of the scratch memory: a packed block of B; that of A follows."""
SCRATCH_BYTES = B_BYTES + DC_BYTES * MC
"""Memory that one thread needs to pack a block of B and one of A."""


@kernel(inner=True)
def panel_columns(left: int, lanes: int) -> int:
    """Columns of the next panel, where `left` columns are left to do."""
    vectors = min((left + lanes - 1) // lanes, len(PANEL_VECTORS) - 1)
    return min(PANEL_VECTORS[vectors] * lanes, left)


@kernel(force_inline=True)
def tiles_of(rows: int, vectors: int) -> int:
    """How many tiles with so many vectors per row hold so many rows."""
    return (rows + TILE_ROWS[vectors] - 1) // TILE_ROWS[vectors]


@kernel(force_inline=True)
def rows_of_block(m: int) -> int:
    """Rows of C in a block, where there are `m`: up to MC in blocks that are as even as whole tiles
    allow. A last one of a few rows would read all of B for these."""
    high = TILE_ROWS[TILE_VECTORS]
    return balanced(tiles_of(m, TILE_VECTORS), MC // high) * high


@kernel(force_inline=True)
def even_tiles(height: int, vectors: int) -> tuple[int, int]:
    """Rows of the tiles of a panel, as even as they can be: the first rows of C, as many as the
    second number says, are in tiles of the first, the others in tiles with one row less."""
    if height <= TILE_ROWS[TILE_VECTORS]:  # one tile of any width: no divisions
        return height, height
    rows = balanced(height, TILE_ROWS[vectors])
    return rows, (height - (rows - 1) * tiles_of(height, vectors)) * rows


@kernel(force_inline=True)
def row_bytes(columns: int, lanes: int) -> int:
    """Bytes of a row of a packed panel: whole vectors, so that all of them are aligned."""
    return (columns + lanes - 1) // lanes * REGISTER_BYTES


def make_pack_block(pack: Callable[..., None], itemsize: int) -> Callable[..., None]:
    lanes = REGISTER_BYTES // itemsize
    real = np.dtype(f"f{itemsize}").type

    @kernel(force_inline=True)
    def pack_block(n: int, k: int, b: Matrix, scratch: int, width: int, far: int) -> None:
        """Copy a k x n block of B into panels, one after the other.

        They are as wide as `width`, or as `panel_columns` says if that is 0, in rows of
        `row_bytes`. Rows of B that are contiguous are read a few at a time, from one end to the
        other; where B is `far`, beyond L2, those that follow are asked for meanwhile.
        """
        most = ROWS_AT_ONCE if b.column == itemsize else PACK_DEPTH
        for p in range(0, k, most):
            depth = min(most, k - p)
            j = 0
            while j < n:
                columns = min(width, n - j) if width else panel_columns(n - j, lanes)
                ld = columns * itemsize if width else row_bytes(columns, lanes)
                source = Matrix(b.address + p * b.row + j * b.column, b.column, b.row)
                to = Rows(scratch + j * k * itemsize + p * ld, ld)
                if far != 0 and b.column == itemsize and p + most < k:
                    later, rows = source.address + most * b.row, min(most, k - p - most)
                    ask_rows(real, later, b.row, rows, columns * itemsize)
                pack(columns, depth, source, to)
                if READS_WHOLE and columns * itemsize < ld:
                    clear_columns(real, ld // itemsize - columns, depth, to, columns * itemsize)
                j += columns

    return pack_block
