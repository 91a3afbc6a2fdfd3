"""Matrix multiplication: the loops around the micro-kernels.

    C[m, n] = A[m, k] @ B[k, n]           six ways, chosen by layout and size:

    tiles of C, B as it is      rows of B are contiguous. A needs no copy: the micro-kernel takes
                                its elements one by one, at any stride.
    tiles of C, B packed        columns of B are not contiguous, or a walk along k misses caches
                                and pages (`blocking`). A block of B is copied into panels; and so
                                is one of A, if it is transposed and the same holds for it.
    tiles of C.T = B.T @ A.T    B would have to be packed, but A is much smaller: A is packed, and C
                                transposed.
    dot products                A and B are both contiguous along k, and m is too small to pay for
                                packing B.
    a sum of rows               m is 1 and the rows of B are contiguous.
    row by row                  k is small: each row of C is a short sum of rows of B.

The tiled loops, from the outside in (`blocking` says how the steps follow from the caches):

    for NC columns of C                       a packed block of B, KC x NC, stays in L3
      for KC steps of k
        for MC rows of C                      a block of A, MC x KC, stays in L2
          for each panel of B
            for each tile                     a tile of C stays in registers

Source: Goto and van de Geijn (2008) and Van Zee and van de Geijn (2015), as for `micro_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from numba import prange, types

from tinytorch.backends.optimized.gemm.blocking import (
    DOT_ROW_BYTES,
    KC_BYTES,
    L2_BYTES,
    MC,
    NC,
    TILES_THAT_PAY,
    balanced,
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

_UNIT = host_vector_unit()
REGISTER_BYTES = _UNIT.register_bytes
TILE_VECTORS = _UNIT.tile_vectors[-1]
TILE_ROWS = (0, *(_UNIT.tile_rows(v) for v in range(1, TILE_VECTORS + 1)))  # by vectors per row
PANEL_VECTORS = tuple(_UNIT.panel_vectors(left) for left in range(TILE_VECTORS + 1))
DOT_ROWS, DOT_COLUMNS = _UNIT.dot_rows, _UNIT.dot_columns
_ROW_DOT_COLUMNS = tuple(_UNIT.columns_of_dots(1, itemsize) for itemsize in (4, 8))

FEW_BYTES = 5 * 2**12  # of rows of A that stay in L1 while B passes
PACK_DEPTH = 64  # steps of k packed at a time, so that few pages are open
ROWS_AT_ONCE = 8  # the same where a step is contiguous: few enough for the processor to read ahead

_B_BYTES = KC_BYTES * NC + 4096
SCRATCH_BYTES = _B_BYTES + KC_BYTES * MC
"""Memory that one thread needs to pack a block of B and one of A."""


@kernel(force_inline=True)
def _cost_of_tiles(m: int, n: int, k: int, lanes: int) -> int:
    """Of packing B and of tiles of C, in lanes of a vector instruction."""
    return (n + lanes - 1) // lanes * lanes * k * (m + 6)


@kernel
def panel_columns(left: int, lanes: int) -> int:
    """Columns of the next panel, where `left` columns are left to do."""
    vectors = min((left + lanes - 1) // lanes, TILE_VECTORS)
    return min(PANEL_VECTORS[vectors] * lanes, left)


@kernel(force_inline=True)
def _pack_block(
    pack: Callable[..., None], itemsize: int, n: int, k: int, b: int, rsb: int, csb: int,
    scratch: int, width: int,
) -> None:  # fmt: skip
    """Copy a k x n block of B into panels, one after the other.

    They are as wide as `width`, or as `panel_columns` says if that is 0. Rows of B that are
    contiguous are read a few at a time, from one end to the other.
    """
    lanes = REGISTER_BYTES // itemsize
    most = ROWS_AT_ONCE if csb == itemsize else PACK_DEPTH
    for p in range(0, k, most):
        depth = min(most, k - p)
        j = 0
        while j < n:
            columns = min(width, n - j) if width else panel_columns(n - j, lanes)
            to = scratch + (j * k + p * columns) * itemsize
            pack(columns, depth, b + p * rsb + j * csb, csb, rsb, to, columns * itemsize)
            j += columns


_SIZES = [types.intp] * 15
_WAY = types.intp(*_SIZES)


def _make_dots(
    dot: Callable[..., None], dots_with_rows: Callable[..., None], itemsize: int
) -> Callable[..., int]:
    most_of_a_row = _ROW_DOT_COLUMNS[itemsize // 8]

    @export(f"tinytorch_gemm_dots_f{8 * itemsize}", _WAY)
    def dots(
        m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
        ldc: int, start: int, ld_start: int, relu: int, scratch: int,
    ) -> int:  # fmt: skip
        """C as dot products of rows of A with columns of B, both contiguous."""
        few = m == 1 or (m <= FEW_ROWS and m * k * itemsize <= FEW_BYTES)
        if few and n * k * itemsize > L2_BYTES // 2:  # B comes from memory: in one stream
            dots_with_rows(m, n, k, a, rsa, b, csb, start, ld_start, c, ldc, relu)
            return 0
        rows = balanced(m, DOT_ROWS)
        columns = balanced(n, DOT_COLUMNS if m > 1 else most_of_a_row)
        depth = max(balanced(k, DOT_ROW_BYTES // itemsize), 1)
        for j in range(0, n, columns):
            for i in range(0, m, rows):
                at, to = i * ld_start + j * itemsize, c + i * ldc + j * itemsize
                for p in range(0, max(k, 1), depth):
                    begin = start + at if start else 0
                    dot(
                        min(rows, m - i), min(columns, n - j), min(depth, k - p), 1,
                        a + i * rsa + p * csa, rsa, 0, b + j * csb + p * rsb, csb, 0, 0,
                        to if p else begin, ldc if p else ld_start, to, ldc,
                        relu if p + depth >= k else 0,
                    )  # fmt: skip
        return 0

    return dots


def _make_rows(sum_of_rows: Callable[..., None], itemsize: int) -> Callable[..., int]:
    @export(f"tinytorch_gemm_rows_f{8 * itemsize}", _WAY)
    def rows(
        m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
        ldc: int, start: int, ld_start: int, relu: int, scratch: int,
    ) -> int:  # fmt: skip
        """Each row of C as a sum of the rows of B, in the order of memory: that is the limit."""
        for i in range(m):
            for p in range(0, k, GEMV_ROWS):
                begin = start + i * ld_start if start else 0
                sum_of_rows(
                    min(GEMV_ROWS, k - p), n, a + i * rsa + p * csa, csa, b + p * rsb, rsb,
                    c + i * ldc if p else begin, c + i * ldc, relu if p + GEMV_ROWS >= k else 0,
                )  # fmt: skip
        return 0

    return rows


def _make_tiles(
    tile: Callable[..., None], pack: Callable[..., None], itemsize: int
) -> Callable[..., int]:
    @export(f"tinytorch_gemm_tiles_f{8 * itemsize}", _WAY)
    def tiles(
        m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
        ldc: int, start: int, ld_start: int, relu: int, scratch: int,
    ) -> int:  # fmt: skip
        """C tile by tile, or C.T, which is then transposed, where that costs less packing."""
        lanes, swap = REGISTER_BYTES // itemsize, False
        widest = TILE_VECTORS * lanes
        if csb != itemsize and m * max(n * itemsize, KC_BYTES) < _B_BYTES // 2:
            transposing = (m + lanes - 1) // lanes * lanes * 16 * n
            swap = _cost_of_tiles(n, m, k, lanes) + transposing < _cost_of_tiles(m, n, k, lanes)
        target, ldt = c, ldc
        if swap:
            m, n, a, rsa, csa, b, rsb, csb = n, m, b, csb, rsb, a, csa, rsa
            target, ldt = scratch + _B_BYTES // 2, n * itemsize
            if start:
                pack(n, m, start, ld_start, itemsize, target, ldt)
                start, ld_start = target, ldt
        kc = max(balanced(k, KC_BYTES // itemsize), 1)
        tall, broad = m > TILES_THAT_PAY * TILE_ROWS[TILE_VECTORS], n > TILES_THAT_PAY * widest
        pack_b = csb != itemsize or (tall and walks_badly(kc, rsb))
        pack_a = csa != itemsize and broad and walks_badly(kc, csa)
        mc = balanced(m, MC) if pack_a else MC
        for jc in range(0, n, NC):
            block = min(NC, n - jc)
            for pc in range(0, max(k, 1), kc):
                depth = min(kc, k - pc)
                begin, ld_begin = (target, ldt) if pc > 0 else (start, ld_start)
                relu_now = relu if pc + depth == k else 0
                source = b + pc * rsb + jc * csb
                if pack_b:
                    _pack_block(pack, itemsize, block, depth, source, rsb, csb, scratch, 0)
                for ic in range(0, m, mc):
                    height = min(mc, m - ic)
                    block_of_a, wide = a + ic * rsa + pc * csa, height
                    if pack_a:
                        wide = 2 * balanced(height, TILE_ROWS[TILE_VECTORS])
                        packed = scratch + _B_BYTES
                        _pack_block(
                            pack, itemsize, height, depth, block_of_a, csa, rsa, packed, wide
                        )
                        block_of_a = packed
                    j = 0
                    while j < block:
                        columns = panel_columns(block - j, lanes)
                        panel, ldb = source + j * csb, rsb
                        if pack_b:
                            panel, ldb = scratch + j * depth * itemsize, columns * itemsize
                        rows = balanced(height, TILE_ROWS[(columns + lanes - 1) // lanes])
                        rows = wide // 2 if pack_a else rows
                        for i in range(0, height, rows):
                            tile_of_a, ra, ca = block_of_a + i * rsa, rsa, csa
                            if pack_a:
                                before = i // wide * wide
                                ra, ca = itemsize, min(wide, height - before) * itemsize
                                tile_of_a = (
                                    block_of_a + before * depth * itemsize + (i - before) * ra
                                )
                            at = (jc + j) * itemsize
                            tile(
                                min(rows, height - i), columns, depth, tile_of_a, ra, ca,
                                panel, ldb, begin + (ic + i) * ld_begin + at if begin else 0,
                                ld_begin, target + (ic + i) * ldt + at, ldt, relu_now,
                            )  # fmt: skip
                        j += columns
        if swap:
            pack(m, n, target, ldt, itemsize, c, ldc)
        return 0

    return tiles


Way = Callable[..., int]
_WAYS: dict[int, tuple[Way, Way, Way]] = {
    4: (
        _make_dots(dot_tile_f32, dots_with_rows_f32, 4), _make_rows(sum_of_rows_f32, 4),
        _make_tiles(gemm_tile_f32, pack_f32, 4),
    ),
    8: (
        _make_dots(dot_tile_f64, dots_with_rows_f64, 8), _make_rows(sum_of_rows_f64, 8),
        _make_tiles(gemm_tile_f64, pack_f64, 8),
    ),
}  # fmt: skip
"""The ways to a product, by the bytes of an element: dot products, sums of rows, tiles. All take
the arguments of `gemm_f32` and return 0."""


def _choosing(
    dots: Callable[..., int], rows: Callable[..., int], tiles: Callable[..., int], itemsize: int
) -> Callable[..., int]:
    """A kernel that goes one of these ways, with the arguments of `gemm_f32`."""
    lanes = REGISTER_BYTES // itemsize

    @kernel(force_inline=True)
    def choose(
        m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
        ldc: int, start: int, ld_start: int, relu: int, scratch: int,
    ) -> int:  # fmt: skip
        if m == 0 or n == 0:
            return 0
        rsb = itemsize if k <= 1 else rsb
        csb = itemsize if n == 1 else csb
        if n == 1 and csa != itemsize and ldc == itemsize and start == 0:
            # a column is a row: C.T = B.T @ A.T
            m, n, a, rsa, csa, b, rsb, csb = 1, m, b, csb, rsb, a, csa, rsa
        cost_of_dots = m * n * (k + 10 * lanes)
        contiguous = csa == itemsize and rsb == itemsize
        if contiguous and cost_of_dots < _cost_of_tiles(m, n, k, lanes):
            return dots(m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch)
        row_by_row = 0 < k <= GEMV_ROWS and n * k * itemsize <= L2_BYTES // 8
        if csb == itemsize and (row_by_row or (m == 1 and n * k * itemsize > L2_BYTES // 2)):
            return rows(m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch)
        return tiles(m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch)

    return choose


_gemm_f32 = _choosing(*_WAYS[4], 4)
_gemm_f64 = _choosing(*_WAYS[8], 8)
_SIGNATURE = types.void(*_SIZES)


@export("tinytorch_gemm_f32", _SIGNATURE)
def gemm_f32(
    m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
    ldc: int, start: int, ld_start: int, relu: int, scratch: int,
) -> None:  # fmt: skip
    """C = start + A @ B (then relu, if set), in float32, on this thread.

    Args:
        m, n, k: C is m x n, the sum has k terms.
        a, rsa, csa, b, rsb, csb: addresses, and row and column strides in bytes; any strides.
        c, ldc: address of C and its row stride; rows are contiguous.
        start, ld_start: address and row stride of what C starts from: C itself to accumulate, a
            bias with row stride 0, or address 0 for nothing.
        relu: not 0: store max(value, 0).
        scratch: address of SCRATCH_BYTES of memory for packing B.
    """
    _gemm_f32(m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch)


@export("tinytorch_gemm_f64", _SIGNATURE)
def gemm_f64(
    m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
    ldc: int, start: int, ld_start: int, relu: int, scratch: int,
) -> None:  # fmt: skip
    """`gemm_f32` in float64."""
    _gemm_f64(m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch)


class LazyGemm:
    """GEMM of which each way is compiled when a product first takes it.

    Args:
        itemsize: bytes of an element, 4 or 8.
    """

    def __init__(self, itemsize: int) -> None:
        self._ways = tuple(Deferred(way, 1 + i) for i, way in enumerate(_WAYS[itemsize]))
        dots, rows, tiles = (way.call for way in self._ways)
        self.kernel: Callable[..., int] = _choosing(dots, rows, tiles, itemsize)
        """As `gemm_f32`, for kernels to call; returns 0, or the number of the way to `load`, where
        it has done nothing."""

    def load(self, way: int) -> None:
        """Compile a way, or load it from the cache."""
        self._ways[way - 1].load()

    def load_all(self) -> None:
        """Load all ways, so that the kernel always returns 0."""
        for way in self._ways:
            way.load()


@kernel
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
        count: int, m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int,
        csb: int, c: int, ldc: int, start: int, ld_start: int, relu: int, scratch: int,
    ) -> None:  # fmt: skip
        side, unit = (n, columns_unit) if n >= m else (m, rows_unit)
        step = _aligned_part(side, count, unit)
        for t in prange(count):
            mine, at = scratch + t * SCRATCH_BYTES, t * step
            length = max(min(step, side - at), 0)
            if n >= m:
                begin = start + at * itemsize if start else 0
                gemm(
                    m, length, k, a, rsa, csa, b + at * csb, rsb, csb, c + at * itemsize, ldc,
                    begin, ld_start, relu, mine,
                )  # fmt: skip
            else:
                begin = start + at * ld_start if start else 0
                gemm(
                    length, n, k, a + at * rsa, rsa, csa, b, rsb, csb, c + at * ldc, ldc, begin,
                    ld_start, relu, mine,
                )  # fmt: skip

    return shared
