"""Matrix multiplication: the loops around the micro-kernels.

    C[m, n] = A[m, k] @ B[k, n]           six ways, chosen by layout and size:

    tiles of C, B as it is      rows of B are contiguous. A needs no copy: the micro-kernel takes
                                its elements one by one, at any stride.
    tiles of C, B packed        columns of B are not contiguous, or a walk along k misses caches
                                and pages (`blocking`). A block of B is copied into panels; and so
                                is one of A, if the same holds for it.
    tiles of C.T = B.T @ A.T    B would have to be packed, but A is much smaller: A is packed, and C
                                transposed.
    dot products                A and B are both contiguous along k, and m is too small to pay for
                                packing B.
    a sum of rows               m is 1 and the rows of B are contiguous.
    row by row                  k is small: each row of C is a short sum of rows of B.

The tiled loops, from the outside in (`blocking` says how the steps follow from the caches):

    for NC columns of C                       a packed block of B, DC x NC, stays in L3
      for DC steps of k
        for MC rows of C                      a block of A, MC x DC, stays in L2
          for each panel of B
            for each tile                     a tile of C stays in registers

Source: Goto and van de Geijn (2008) and Van Zee and van de Geijn (2015), as for `micro_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from numba import prange, types

from tinytorch.backends.optimized.gemm.blocking import (
    ASKS_AHEAD,
    COPY_ROWS,
    DC_BYTES,
    DOT_ROW_BYTES,
    KC_BYTES,
    L1_BYTES,
    L2_BYTES,
    MC,
    NC,
    TILES_THAT_PAY,
    balanced,
    panels_walk_badly,
    rows_collide,
    steps_in_pages,
    walks_badly,
)
from tinytorch.backends.optimized.gemm.dot_kernel import dot_tile_f32, dot_tile_f64
from tinytorch.backends.optimized.gemm.gemv_kernel import (
    FEW_ROWS,
    GEMV_ROWS,
    dots_with_rows_f32,
    dots_with_rows_f64,
    sum_of_rows_f32,
    sum_of_rows_f64,
)
from tinytorch.backends.optimized.gemm.micro_kernel import gemm_tile_f32, gemm_tile_f64
from tinytorch.backends.optimized.gemm.packing import pack_f32, pack_f64
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.deferred import Deferred
from tinytorch.jit.library import export, kernel
from tinytorch.jit.operands import MATRIX, ROWS, SIZE, Matrix, Rows, Stack

_UNIT = host_vector_unit()
REGISTER_BYTES = _UNIT.register_bytes
TILE_VECTORS = _UNIT.tile_vectors[-1]
TILE_ROWS = (0, *(_UNIT.tile_rows(v) for v in range(1, TILE_VECTORS + 1)))  # by vectors per row
PANEL_VECTORS = tuple(_UNIT.panel_vectors(left) for left in range(TILE_VECTORS + 1))
DOT_ROWS, DOT_COLUMNS = _UNIT.dot_rows, _UNIT.dot_columns
_ROW_DOT_COLUMNS = tuple(_UNIT.columns_of_dots(1, itemsize) for itemsize in (4, 8))

PACK_DEPTH = 64  # steps of k packed at a time, so that few pages are open
ROWS_AT_ONCE = 8  # the same where a step is contiguous: few enough for the processor to read ahead

_B_BYTES = DC_BYTES * NC + 4096
SCRATCH_BYTES = _B_BYTES + DC_BYTES * MC
"""Memory that one thread needs to pack a block of B and one of A."""


@kernel(force_inline=True)
def transposed(matrix: Matrix) -> Matrix:
    """The same memory with rows as columns."""
    return Matrix(matrix.address, matrix.column, matrix.row)


@kernel(force_inline=True)
def _cost_of_tiles(m: int, n: int, k: int, lanes: int, copy_rows: int) -> int:
    """Of packing B, which costs as much as so many rows, and of tiles of C, in lanes of a vector
    instruction."""
    return (n + lanes - 1) // lanes * lanes * k * (m + copy_rows)


@kernel(inner=True)
def panel_columns(left: int, lanes: int) -> int:
    """Columns of the next panel, where `left` columns are left to do."""
    vectors = min((left + lanes - 1) // lanes, TILE_VECTORS)
    return min(PANEL_VECTORS[vectors] * lanes, left)


@kernel(force_inline=True)
def row_bytes(columns: int, lanes: int) -> int:
    """Bytes of a row of a packed panel: whole vectors, so that all of them are aligned."""
    return (columns + lanes - 1) // lanes * REGISTER_BYTES


def _make_pack_block(pack: Callable[..., None], itemsize: int) -> Callable[..., None]:
    lanes = REGISTER_BYTES // itemsize

    @kernel(force_inline=True)
    def pack_block(n: int, k: int, b: Matrix, scratch: int, width: int) -> None:
        """Copy a k x n block of B into panels, one after the other.

        They are as wide as `width`, or as `panel_columns` says if that is 0, in rows of
        `row_bytes`. Rows of B that are
        contiguous are read a few at a time, from one end to the other.
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
                pack(columns, depth, source, to)
                j += columns

    return pack_block


_PRODUCT = (SIZE, SIZE, SIZE, MATRIX, MATRIX, ROWS, ROWS, SIZE, SIZE)
_WAY = SIZE(*_PRODUCT)


def _make_dots(
    dot: Callable[..., None], dots_with_rows: Callable[..., None], itemsize: int
) -> Callable[..., int]:
    most_of_a_row = _ROW_DOT_COLUMNS[itemsize // 8]

    @export(f"tinytorch_gemm_dots_f{8 * itemsize}", _WAY)
    def dots(
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
        """C as dot products of rows of A with columns of B, both contiguous."""
        if m <= FEW_ROWS and n * k * itemsize > L2_BYTES // 2:  # B comes from memory: in one stream
            left, right = Rows(a.address, a.row), Rows(b.address, b.column)
            dots_with_rows(m, n, k, left, right, start, c, relu)
            return 0
        rows = balanced(m, DOT_ROWS)
        columns = balanced(n, DOT_COLUMNS if m > 1 else most_of_a_row)
        depth = max(balanced(k, DOT_ROW_BYTES // itemsize), 1)
        for j in range(0, n, columns):
            for i in range(0, m, rows):
                begin = start.address + i * start.stride + j * itemsize if start.address else 0
                from_start = Rows(begin, start.stride)
                to = Rows(c.address + i * c.stride + j * itemsize, c.stride)
                for p in range(0, max(k, 1), depth):
                    dot(
                        min(rows, m - i),
                        min(columns, n - j),
                        min(depth, k - p),
                        1,
                        Stack(a.address + i * a.row + p * a.column, a.row, 0),
                        Stack(b.address + j * b.column + p * b.row, b.column, 0),
                        0,
                        to if p else from_start,
                        to,
                        relu if p + depth >= k else 0,
                    )
        return 0

    return dots


def _make_rows(sum_of_rows: Callable[..., None], itemsize: int) -> Callable[..., int]:
    @export(f"tinytorch_gemm_rows_f{8 * itemsize}", _WAY)
    def rows(
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
        """Each row of C as a sum of the rows of B, in the order of memory: that is the limit."""
        for i in range(m):
            to = c.address + i * c.stride
            for p in range(0, k, GEMV_ROWS):
                begin = start.address + i * start.stride if start.address else 0
                sum_of_rows(
                    min(GEMV_ROWS, k - p),
                    n,
                    Rows(a.address + i * a.row + p * a.column, a.column),
                    Rows(b.address + p * b.row, b.row),
                    to if p else begin,
                    to,
                    relu if p + GEMV_ROWS >= k else 0,
                )
        return 0

    return rows


def _make_tiles(
    tile: Callable[..., None], pack: Callable[..., None], itemsize: int
) -> Callable[..., int]:
    pack_block = _make_pack_block(pack, itemsize)

    @export(f"tinytorch_gemm_tiles_f{8 * itemsize}", _WAY)
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
        """C tile by tile, or C.T, which is then transposed, where that costs less packing."""
        lanes, swap = REGISTER_BYTES // itemsize, False
        widest = TILE_VECTORS * lanes
        whole = (m + lanes - 1) // lanes * lanes
        if b.column != itemsize and whole * max(n * itemsize, DC_BYTES) < _B_BYTES // 2:
            # a copy, and the elements of C that are turned, cost twice where A is beyond L1
            far = 2 if m * k * itemsize > L1_BYTES else 1
            copying = COPY_ROWS * far // 2
            turned = _cost_of_tiles(n, m, k, lanes, copying) + whole * (8 + 8 * far) * n
            swap = turned < _cost_of_tiles(m, n, k, lanes, copying)
        target = c
        if swap:
            m, n, a, b = n, m, transposed(b), transposed(a)
            target = Rows(scratch + _B_BYTES // 2, n * itemsize)
            if start.address:
                pack(n, m, Matrix(start.address, start.stride, itemsize), target)
                start = target
        kc = max(min(DC_BYTES // itemsize, k), 1)
        if b.column == itemsize:
            kc = steps_in_pages(kc, b.row, m)
        if a.column != itemsize:
            kc = steps_in_pages(kc, a.column, n)
        kc = max(balanced(k, kc), 1)
        # a B that comes from L3 or memory has to be read anyway, and is read better in long rows
        readers = 2 if k * n * itemsize > L2_BYTES else TILES_THAT_PAY
        tall, broad = m >= readers * TILE_ROWS[TILE_VECTORS], n > TILES_THAT_PAY * widest
        pack_b = b.column != itemsize or (tall and panels_walk_badly(kc, b.address, b.row))
        if a.column != itemsize:
            pack_a = broad and walks_badly(kc, a.column)
        else:
            pack_a = broad and rows_collide(min(m, MC), kc * itemsize, a.row)
        mc = balanced(m, MC) if pack_a else MC
        in_l2 = max(L2_BYTES // 2 // (kc * itemsize) // widest, 1) * widest
        nc = min(NC, in_l2) if m <= MC else NC
        is_far = ASKS_AHEAD and (m * k + k * n + m * n) * itemsize > L2_BYTES // 2
        for jc in range(0, n, nc):
            block = min(nc, n - jc)
            for pc in range(0, max(k, 1), kc):
                depth = min(kc, k - pc)
                asks = is_far and (pack_b or b.column == itemsize)
                sums = (depth * itemsize + KC_BYTES - 1) // KC_BYTES
                begin = target if pc > 0 else start
                relu_now = relu if pc + depth == k else 0
                source = Matrix(b.address + pc * b.row + jc * b.column, b.row, b.column)
                # rows of B are packed a panel at a time, just before its first use: their lines are
                # asked for during the panel before; columns, and lines that collide, all at once
                at_once = pack_b and (
                    not ASKS_AHEAD
                    or b.column != itemsize
                    or rows_collide(depth, widest * itemsize, b.row)
                )
                if at_once:
                    pack_block(block, depth, source, scratch, 0)
                for ic in range(0, m, mc):
                    height = min(mc, m - ic)
                    block_of_a, wide = a.address + ic * a.row + pc * a.column, height
                    if pack_a:
                        wide = 2 * balanced(height, TILE_ROWS[TILE_VECTORS])
                        packed = scratch + _B_BYTES
                        columns_of_a = Matrix(block_of_a, a.column, a.row)
                        pack_block(height, depth, columns_of_a, packed, wide)
                        block_of_a = packed
                    j = 0
                    while j < block:
                        columns = panel_columns(block - j, lanes)
                        unpacked = Matrix(source.address + j * b.column, b.row, b.column)
                        panel = Rows(unpacked.address, b.row)
                        if pack_b:
                            is_kept = at_once or m > mc
                            packed_b = scratch + (j * depth * itemsize if is_kept else 0)
                            panel = Rows(packed_b, row_bytes(columns, lanes))
                            if ic == 0 and not at_once:
                                pack_block(columns, depth, unpacked, packed_b, 0)
                        rows = balanced(height, TILE_ROWS[(columns + lanes - 1) // lanes])
                        rows = wide // 2 if pack_a else rows
                        # the next panel: its rows are shared out among the tiles of this one
                        following = Rows(unpacked.address + columns * itemsize, b.row)
                        if pack_b and (ic > 0 or at_once):
                            skip = columns * depth * itemsize
                            following = Rows(panel.address + skip, panel.stride)
                        is_there = at_once and m <= mc  # in L2, as it has just been packed
                        count = 0
                        if asks and not is_there and j + columns < block:
                            count = (depth + height * sums - 1) // (height * sums)
                        ahead = Stack(following.address, following.stride, count * following.stride)
                        for i in range(0, height, rows):
                            tile_of_a = Matrix(block_of_a + i * a.row, a.row, a.column)
                            if pack_a:
                                before = i // wide * wide
                                skip = (before * depth + i - before) * itemsize
                                step = min(wide, height - before) * itemsize
                                tile_of_a = Matrix(block_of_a + skip, itemsize, step)
                            at, row = (jc + j) * itemsize, ic + i
                            first = begin.address + row * begin.stride + at if begin.address else 0
                            tile(
                                min(rows, height - i),
                                columns,
                                depth,
                                tile_of_a,
                                panel,
                                Rows(first, begin.stride),
                                Rows(target.address + row * target.stride + at, target.stride),
                                relu_now,
                                ahead,
                                count,
                            )
                            ahead = Stack(
                                ahead.address + rows * sums * ahead.step, ahead.stride, ahead.step
                            )
                        j += columns
        if swap:
            pack(m, n, Matrix(target.address, target.stride, itemsize), c)
        return 0

    return tiles


Way = Callable[..., int]
_WAYS: dict[int, tuple[Way, Way, Way]] = {
    4: (
        _make_dots(dot_tile_f32, dots_with_rows_f32, 4),
        _make_rows(sum_of_rows_f32, 4),
        _make_tiles(gemm_tile_f32, pack_f32, 4),
    ),
    8: (
        _make_dots(dot_tile_f64, dots_with_rows_f64, 8),
        _make_rows(sum_of_rows_f64, 8),
        _make_tiles(gemm_tile_f64, pack_f64, 8),
    ),
}
"""The ways to a product, by the bytes of an element: dot products, sums of rows, tiles. All take
the arguments of `gemm` and return 0."""


def _choosing(
    dots: Callable[..., int], rows: Callable[..., int], tiles: Callable[..., int], itemsize: int
) -> Callable[..., int]:
    """A kernel that goes one of these ways, with the arguments of `gemm`."""
    lanes = REGISTER_BYTES // itemsize

    @kernel(force_inline=True)
    def choose(
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
        if m == 0 or n == 0:
            return 0
        b = Matrix(b.address, itemsize if k <= 1 else b.row, itemsize if n == 1 else b.column)
        if n == 1 and a.column != itemsize and c.stride == itemsize and start.address == 0:
            # a column is a row: C.T = B.T @ A.T
            m, n, a, b = 1, m, transposed(b), transposed(a)
        cost_of_dots = m * n * (k + 10 * lanes)
        contiguous = a.column == itemsize and b.row == itemsize
        if contiguous and cost_of_dots < _cost_of_tiles(m, n, k, lanes, COPY_ROWS // 2):
            return dots(m, n, k, a, b, c, start, relu, scratch)
        row_by_row = 0 < k <= GEMV_ROWS and n * k * itemsize <= L2_BYTES // 8
        large = m == 1 and n * k * itemsize > L2_BYTES // 2
        if b.column == itemsize and (row_by_row or large):
            return rows(m, n, k, a, b, c, start, relu, scratch)
        return tiles(m, n, k, a, b, c, start, relu, scratch)

    return choose


SIGNATURE = types.void(*_PRODUCT)


def _make_gemm(itemsize: int) -> Callable[..., None]:
    choose = _choosing(*_WAYS[itemsize], itemsize)

    @export(f"tinytorch_gemm_f{8 * itemsize}", SIGNATURE)
    def gemm(
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
        """C = start + A @ B (then relu, if set), on this thread.

        Args:
            m, n, k: C is m x n, the sum has k terms.
            a, b: the operands.
            c: the result.
            start: what C starts from: C itself to accumulate, a bias with row stride 0, or address
                0 for nothing.
            relu: not 0: store max(value, 0).
            scratch: address of SCRATCH_BYTES of memory for packing B.
        """
        choose(m, n, k, a, b, c, start, relu, scratch)

    return gemm


gemm_f32, gemm_f64 = map(_make_gemm, (4, 8))


class LazyGemm:
    """GEMM of which each way is compiled when a product first takes it.

    Args:
        itemsize: bytes of an element, 4 or 8.
    """

    def __init__(self, itemsize: int) -> None:
        self._ways = tuple(Deferred(way, 1 + i) for i, way in enumerate(_WAYS[itemsize]))
        dots, rows, tiles = (way.call for way in self._ways)
        self.kernel: Callable[..., int] = _choosing(dots, rows, tiles, itemsize)
        """As `gemm`, for kernels to call; returns 0, or the number of the way to `load`, where
        it has done nothing."""

    def load(self, way: int) -> None:
        """Compile a way, or load it from the cache."""
        self._ways[way - 1].load()

    def load_all(self) -> None:
        """Load all ways, so that the kernel always returns 0."""
        for way in self._ways:
            way.load()


@kernel(inner=True)
def _aligned_part(size: int, count: int, unit: int) -> int:
    """The length of `count` parts of `size`, rounded up to a multiple of `unit`."""
    return ((size + count - 1) // count + unit - 1) // unit * unit


@cache
def shared_gemm(itemsize: int) -> Callable[..., None]:
    """`gemm_f32` or `gemm_f64` on several threads, with their number as the first argument.

    The longer side of C is cut into one part for each.
    """
    gemm = gemm_f32 if itemsize == 4 else gemm_f64
    columns_unit, rows_unit = TILE_VECTORS * REGISTER_BYTES // itemsize, TILE_ROWS[TILE_VECTORS]

    @kernel(parallel=True)
    def shared(
        count: int,
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
        side, unit = (n, columns_unit) if n >= m else (m, rows_unit)
        step = _aligned_part(side, count, unit)
        for t in prange(count):
            mine, at = scratch + t * SCRATCH_BYTES, t * step
            length = max(min(step, side - at), 0)
            if n >= m:
                begin = Rows(start.address + at * itemsize if start.address else 0, start.stride)
                columns = Matrix(b.address + at * b.column, b.row, b.column)
                to = Rows(c.address + at * itemsize, c.stride)
                gemm(m, length, k, a, columns, to, begin, relu, mine)
            else:
                begin = Rows(
                    start.address + at * start.stride if start.address else 0, start.stride
                )
                rows = Matrix(a.address + at * a.row, a.row, a.column)
                to = Rows(c.address + at * c.stride, c.stride)
                gemm(length, n, k, rows, b, to, begin, relu, mine)

    return shared
