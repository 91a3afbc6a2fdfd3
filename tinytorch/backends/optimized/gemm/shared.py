"""One matrix product on several threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from numba import prange

from tinytorch.backends.optimized.gemm.loops import dots_cost_less, gemm_f32, gemm_f64
from tinytorch.backends.optimized.gemm.panels import (
    REGISTER_BYTES,
    SCRATCH_BYTES,
    TILE_ROWS,
    TILE_VECTORS,
)
from tinytorch.jit.library import kernel
from tinytorch.jit.operands import Matrix, Rows


@kernel(inner=True)
def _aligned_part(size: int, count: int, unit: int) -> int:
    """The length of `count` parts of `size`, rounded up to a multiple of `unit`."""
    return ((size + count - 1) // count + unit - 1) // unit * unit


@kernel(inner=True)
def _parts(count: int, m: int, n: int, itemsize: int) -> tuple[int, int]:
    """The longer side of C, and the length of a part of it for each thread."""
    if n >= m:
        return n, _aligned_part(n, count, TILE_VECTORS * REGISTER_BYTES // itemsize)
    return m, _aligned_part(m, count, TILE_ROWS[TILE_VECTORS])


@kernel
def goes_by_dots(count: int, m: int, n: int, k: int, itemsize: int) -> bool:
    """Whether a thread would compute its part of C by dot products, where operands allow it."""
    side, step = _parts(count, m, n, itemsize)
    for at in range(0, side, step):
        part = min(step, side - at)
        if dots_cost_less(part if m > n else m, part if n >= m else n, k, itemsize):
            return True
    return False


@cache
def shared_gemm(itemsize: int) -> Callable[..., None]:
    """`gemm_f32` or `gemm_f64` on several threads, with their number as the first argument.

    The longer side of C is cut into one part for each.
    """
    gemm = gemm_f32 if itemsize == 4 else gemm_f64

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
        side, step = _parts(count, m, n, itemsize)
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
