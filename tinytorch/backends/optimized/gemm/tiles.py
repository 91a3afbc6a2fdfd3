"""The loops around the micro-kernel: C tile by tile, with blocks of A and B packed where that pays.

From the outside in (`blocking` says how the steps follow from the caches):

    for NC columns of C                       a packed block of B, DC x NC, stays in L3
      for DC steps of k
        for MC rows of C                      a block of A, MC x DC, stays in L2
          for each panel of B
            for each tile                     a tile of C stays in registers

Source: Goto and van de Geijn (2008) and Van Zee and van de Geijn (2015), as for `micro_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable

from tinytorch.backends.optimized.gemm.blocking import (
    ALIGNED_PANELS,
    ASKS_AHEAD,
    COPY_ROWS,
    DC_BYTES,
    KC_BYTES,
    L1_BYTES,
    L2_BYTES,
    LEAST_PHASE,
    MC,
    NARROW_COPY,
    NC,
    PANELS_THAT_PAY,
    TILES_THAT_PAY,
    balanced,
    comes_from_l2,
    crosses_pages,
    panels_walk_badly,
    rows_collide,
    steps_in_pages,
    walks_badly,
)
from tinytorch.backends.optimized.gemm.panels import (
    B_BYTES,
    NARROW_VECTORS,
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
    even_tiles,
    make_pack_block,
    panel_columns,
    row_bytes,
    rows_of_block,
    tiles_of,
)
from tinytorch.jit.library import export, kernel
from tinytorch.jit.operands import MATRIX, ROWS, SIZE, Matrix, Rows, Stack

PRODUCT = (SIZE, SIZE, SIZE, MATRIX, MATRIX, ROWS, ROWS, SIZE, SIZE)
WAY = SIZE(*PRODUCT)
"""The signature of each way to a product, and its parameters."""


@kernel(force_inline=True)
def transposed(matrix: Matrix) -> Matrix:
    """The same memory with rows as columns."""
    return Matrix(matrix.address, matrix.column, matrix.row)


@kernel(force_inline=True)
def costs_of_tiles(m: int, n: int, k: int, itemsize: int, copies: int) -> tuple[int, int]:
    """What C costs by tiles, and what C.T does and to turn it, in lanes of a vector instruction.

    Args:
        copies: 1 if columns are copied into rows first, of B or, for C.T, of A: as much as so many
            rows of C, twice as much beyond L1 and three times beyond L2. Else 0.
    """
    lanes = REGISTER_BYTES // itemsize
    rows, columns = (m + lanes - 1) // lanes * lanes, (n + lanes - 1) // lanes * lanes
    far_a, far_b = 1 + (m * k * itemsize > L1_BYTES), 1 + (n * k * itemsize > L1_BYTES)
    far_a, far_b = far_a + (m * k * itemsize > L2_BYTES), far_b + (n * k * itemsize > L2_BYTES)
    straight = columns * k * (m + copies * (COPY_ROWS * far_b // 2))
    # the elements of C that are turned come from as far as A
    turned = rows * (k * (n + copies * (COPY_ROWS * far_a // 2)) + (8 + 8 * far_a) * n)
    has_room = copies == 0 or rows_at_once(n, itemsize) >= rows
    return straight, turned if has_room else straight


@kernel(force_inline=True)
def costs_less_turned(m: int, n: int, k: int, a: Matrix, b: Matrix, itemsize: int) -> bool:
    """Whether C.T is better computed, and then transposed: B needs no packing, or A, whose steps
    are far apart, is read as rows of many columns and not of a tile's few rows."""
    if b.column != itemsize:
        straight, turned = costs_of_tiles(m, n, k, itemsize, 1)
        return turned < straight
    is_packed = n > TILES_THAT_PAY * TILE_VECTORS * REGISTER_BYTES // itemsize
    if a.row != itemsize or is_packed or m * k * itemsize <= L2_BYTES:
        return False
    straight, turned = costs_of_tiles(m, n, k, itemsize, 0)
    return crosses_pages(k, a.column) and turned < straight + COPY_ROWS * m * k


@kernel(force_inline=True)
def rows_at_once(n: int, itemsize: int) -> int:
    """Rows of C, whole vectors of them, for which there is scratch memory beside a packed block."""
    lanes = REGISTER_BYTES // itemsize
    return B_BYTES // 2 // max(n * itemsize, DC_BYTES) // lanes * lanes


def make_blocks(
    tile: Callable[..., None], pack: Callable[..., None], itemsize: int
) -> Callable[..., None]:
    """The loops; the parameters are those of a way to a product."""
    pack_block = make_pack_block(pack, itemsize)

    @kernel(inner=True)
    def blocks(
        m: int,
        n: int,
        k: int,
        a: Matrix,
        b: Matrix,
        c: Rows,
        start: Rows,
        relu: int,
        scratch: int,
    ) -> None:
        lanes = REGISTER_BYTES // itemsize
        widest = TILE_VECTORS * lanes
        kc = max(min(DC_BYTES // itemsize, k), 1)
        is_high = m >= TILES_THAT_PAY * TILE_ROWS[TILE_VECTORS]
        copies_a = n > (PANELS_THAT_PAY if is_high else TILES_THAT_PAY) * widest
        if b.column == itemsize:
            fewer = steps_in_pages(kc, b.row, m)
            from_l1 = fewer * widest * itemsize < L1_BYTES // 2
            copies_b = is_high and not from_l1 and panels_walk_badly(fewer, b.address, b.row)
            kc = kc if copies_b else fewer
        if a.column != itemsize and not copies_a:
            kc = steps_in_pages(kc, a.column, n)
        kc = max(balanced(k, kc), 1)
        needs_fewer = tiles_of(m, NARROW_VECTORS) < tiles_of(m, TILE_VECTORS)
        from_l2 = comes_from_l2(kc * widest * itemsize, k * n * itemsize, m * k * itemsize)
        is_narrow = needs_fewer and from_l2 and b.column == itemsize
        # a B that comes from L3 or memory has to be read anyway, and is read better in long rows
        far = 1 if k * n * itemsize > L2_BYTES else 0
        readers = 2 if far else TILES_THAT_PAY
        if is_narrow and not crosses_pages(kc, b.row):
            readers *= NARROW_COPY
        tall, broad = m >= readers * TILE_ROWS[TILE_VECTORS], n > TILES_THAT_PAY * widest
        pack_b = b.column != itemsize or (tall and panels_walk_badly(kc, b.address, b.row))
        if a.column != itemsize:
            pack_a = copies_a and walks_badly(kc, a.column)
        else:
            pack_a = broad and rows_collide(min(m, MC), kc * itemsize, a.row)
        most = NARROW_VECTORS * lanes if is_narrow and not pack_b else widest
        mc = rows_of_block(m)
        is_far = (m * k + k * n + m * n) * itemsize > L2_BYTES // 2
        is_large = max(k * n, m * n) * itemsize > L2_BYTES // 2  # else B and C stay in L2
        is_near = is_far and n > most and k * n * itemsize <= L1_BYTES and not pack_a
        if is_near:  # all of B stays in L1, and C does not in L2: it is written in memory's order
            mc = balanced(m, TILE_ROWS[TILE_VECTORS])
        in_l2 = max(L2_BYTES // 2 // (kc * itemsize) // widest, 1) * widest
        nc = min(NC, in_l2) if m <= MC else NC
        # where all rows of B begin as far from a line, a first panel of so many columns aligns the
        # vectors of all others
        unaligned = 0
        if not pack_b and n >= ALIGNED_PANELS * widest and b.row % REGISTER_BYTES == 0:
            unaligned = -b.address % REGISTER_BYTES // itemsize
        for jc in range(0, n, nc):
            block = min(nc, n - jc)
            for pc in range(0, max(k, 1), kc):
                depth = min(kc, k - pc)
                is_long = depth >= LEAST_PHASE // TILE_VECTORS
                asks = ASKS_AHEAD and is_far and is_large and is_long
                asks = asks and (pack_b or b.column == itemsize)
                sums = (depth * itemsize + KC_BYTES - 1) // KC_BYTES
                begin = c if pc > 0 else start
                relu_now = relu if pc + depth == k else 0
                source = Matrix(b.address + pc * b.row + jc * b.column, b.row, b.column)
                # rows of B that are beyond L2 are packed a panel at a time, just before its first
                # use: their lines are asked for during the panel before. Others, columns, and lines
                # that collide, all at once
                at_once = pack_b and (
                    far == 0
                    or not ASKS_AHEAD
                    or b.column != itemsize
                    or rows_collide(depth, widest * itemsize, b.row)
                )
                if at_once:
                    pack_block(block, depth, source, scratch, 0, far)
                for ic in range(0, m, mc):
                    height = min(mc, m - ic)
                    block_of_a, wide = a.address + ic * a.row + pc * a.column, height
                    if pack_a:
                        wide = 2 * balanced(height, TILE_ROWS[TILE_VECTORS])
                        packed = scratch + B_BYTES
                        columns_of_a = Matrix(block_of_a, a.column, a.row)
                        pack_block(height, depth, columns_of_a, packed, wide, 0)
                        block_of_a = packed
                    j = 0
                    while j < block:
                        columns = min(panel_columns(block - j, lanes), most)
                        if j == 0 and unaligned > 0:
                            columns = min(unaligned, block)
                        unpacked = Matrix(source.address + j * b.column, b.row, b.column)
                        panel = Rows(unpacked.address, b.row)
                        if pack_b:
                            is_kept = at_once or m > mc
                            packed_b = scratch + (j * depth * itemsize if is_kept else 0)
                            panel = Rows(packed_b, row_bytes(columns, lanes))
                            if ic == 0 and not at_once:
                                pack_block(columns, depth, unpacked, packed_b, 0, 0)
                        rows, longer = wide // 2, height
                        if not pack_a:
                            rows, longer = even_tiles(height, (columns + lanes - 1) // lanes)
                        # the next panel: its rows are shared out among the tiles of this one
                        following = Rows(unpacked.address + columns * itemsize, b.row)
                        if pack_b and (ic > 0 or at_once):
                            skip = columns * depth * itemsize
                            following = Rows(panel.address + skip, panel.stride)
                        is_there = at_once and m <= mc  # in L2, as it has just been packed
                        count = 1 if is_near or (is_far and not ASKS_AHEAD) else 0
                        if asks and not is_near and not is_there and j + columns < block:
                            count = (depth + height * sums - 1) // (height * sums)
                        ahead = Stack(following.address, following.stride, count * following.stride)
                        i = 0
                        while i < height:
                            now = min(rows if i < longer else rows - 1, height - i)
                            tile_of_a = Matrix(block_of_a + i * a.row, a.row, a.column)
                            if pack_a:
                                before = i // wide * wide
                                skip = (before * depth + i - before) * itemsize
                                step = min(wide, height - before) * itemsize
                                tile_of_a = Matrix(block_of_a + skip, itemsize, step)
                            at, row = (jc + j) * itemsize, ic + i
                            first = begin.address + row * begin.stride + at if begin.address else 0
                            tile(
                                now,
                                columns,
                                depth,
                                tile_of_a,
                                panel,
                                Rows(first, begin.stride),
                                Rows(c.address + row * c.stride + at, c.stride),
                                relu_now,
                                ahead,
                                count,
                            )
                            ahead = Stack(
                                ahead.address + now * sums * ahead.step, ahead.stride, ahead.step
                            )
                            i += now
                        j += columns

    return blocks


def make_tiles(
    tile: Callable[..., None], pack: Callable[..., None], itemsize: int
) -> Callable[..., int]:
    blocks = make_blocks(tile, pack, itemsize)

    @export(f"tinytorch_gemm_tiles_f{8 * itemsize}", WAY)
    def tiles(
        m: int,
        n: int,
        k: int,
        a: Matrix,
        b: Matrix,
        c: Rows,
        start: Rows,
        relu: int,
        scratch: int,
    ) -> int:
        """C tile by tile, or C.T, as many of its columns at a time as there is memory for."""
        is_turned = costs_less_turned(m, n, k, a, b, itemsize)
        most = rows_at_once(n, itemsize) if is_turned else m
        height, width, left, right, target, begin = m, n, a, b, c, start
        for i in range(0, m, max(most, 1)):
            rows = min(most, m - i)
            if is_turned:
                height, width, left = n, rows, transposed(b)
                right = Matrix(a.address + i * a.row, a.column, a.row)
                target = Rows(scratch + B_BYTES // 2, rows * itemsize)
                if start.address:
                    first = Matrix(start.address + i * start.stride, start.stride, itemsize)
                    pack(rows, n, first, target)
                    begin = target
            blocks(height, width, k, left, right, target, begin, relu, scratch)
            if is_turned:
                result = Matrix(target.address, target.stride, itemsize)
                pack(n, rows, result, Rows(c.address + i * c.stride, c.stride))
        return 0

    return tiles
