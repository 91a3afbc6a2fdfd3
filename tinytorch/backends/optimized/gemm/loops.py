"""Matrix multiplication: which micro-kernel for which shape.

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
"""

from __future__ import annotations

from collections.abc import Callable

from numba import types

from tinytorch.backends.optimized.gemm.blocking import (
    ASKS_AHEAD,
    DOT_ROW_BYTES,
    L2_BYTES,
    balanced,
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
from tinytorch.backends.optimized.gemm.panels import (
    DOT_COLUMNS,
    DOT_ROWS,
    REGISTER_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
)
from tinytorch.backends.optimized.gemm.tiles import (
    PRODUCT,
    WAY,
    costs_of_tiles,
    make_tiles,
    transposed,
)
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.deferred import Deferred
from tinytorch.jit.library import export, kernel
from tinytorch.jit.operands import Matrix, Rows, Stack

STEPS_OF_A_ROW = GEMV_ROWS // 2 if ASKS_AHEAD else GEMV_ROWS
"""Up to so many steps of k, where there are rows of C for whole tiles, row by row is faster: it
loads all of B for each row, at the pace of its sums, but has no beginning and end to pay for, of
which a tile that has 24 sums and not 12 gives each half as much."""

NEAR_DOT, FAR_DOT = 14 if ASKS_AHEAD else 11, 18
"""What a multiply-add of a dot product costs, in tenths of a tile's, where A and B are in L2, and
where not: by measurements of 112 shapes (a tile of 12 sums is itself slower than one of 24)."""

TURNING = 20_000
"""What it costs in any case, in multiply-adds, to copy the rows of A and turn those of C."""

_ROW_DOT_COLUMNS = tuple(host_vector_unit().columns_of_dots(1, itemsize) for itemsize in (4, 8))


@kernel(force_inline=True)
def dots_cost_less(m: int, n: int, k: int, itemsize: int) -> bool:
    """Than tiles, in multiply-adds of a tile: at the end of each dot product its lanes are added
    up, and all of A is read again for every `DOT_COLUMNS` columns of C."""
    tenths = 10
    if n > DOT_COLUMNS:
        tenths = FAR_DOT if (m + n) * k * itemsize > L2_BYTES else NEAR_DOT
    straight, turned = costs_of_tiles(m, n, k, itemsize, 1)
    dots = m * n * (tenths * k // 10 + 10 * REGISTER_BYTES // itemsize)
    return dots < min(straight, turned + TURNING)


def _make_dots(
    dot: Callable[..., None], dots_with_rows: Callable[..., None], itemsize: int
) -> Callable[..., int]:
    most_of_a_row = _ROW_DOT_COLUMNS[itemsize // 8]

    @export(f"tinytorch_gemm_dots_f{8 * itemsize}", WAY)
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
            # a row has many sums, several have one each: those begin anew, as in all other ways
            most = k if m == 1 else 2 * DOT_ROW_BYTES // itemsize
            part = max(balanced(k, max(most, 1)), 1)
            for p in range(0, k, part):
                left = Rows(a.address + p * a.column, a.row)
                right = Rows(b.address + p * b.row, b.column)
                before, last = c if p else start, relu if p + part >= k else 0
                dots_with_rows(m, n, min(part, k - p), left, right, before, c, last)
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
    @export(f"tinytorch_gemm_rows_f{8 * itemsize}", WAY)
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


Way = Callable[..., int]
_WAYS: dict[int, tuple[Way, Way, Way]] = {
    4: (
        _make_dots(dot_tile_f32, dots_with_rows_f32, 4),
        _make_rows(sum_of_rows_f32, 4),
        make_tiles(gemm_tile_f32, pack_f32, 4),
    ),
    8: (
        _make_dots(dot_tile_f64, dots_with_rows_f64, 8),
        _make_rows(sum_of_rows_f64, 8),
        make_tiles(gemm_tile_f64, pack_f64, 8),
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
        contiguous = a.column == itemsize and b.row == itemsize
        if contiguous and dots_cost_less(m, n, k, itemsize):
            return dots(m, n, k, a, b, c, start, relu, scratch)
        most = GEMV_ROWS
        if m > TILE_ROWS[TILE_VECTORS]:
            most = STEPS_OF_A_ROW if n > TILE_VECTORS * lanes else 0
        row_by_row = 0 < k <= most and n * k * itemsize <= L2_BYTES // 8
        large = m == 1 and n * k * itemsize > L2_BYTES // 2
        if b.column == itemsize and (row_by_row or large):
            return rows(m, n, k, a, b, c, start, relu, scratch)
        return tiles(m, n, k, a, b, c, start, relu, scratch)

    return choose


SIGNATURE = types.void(*PRODUCT)


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
