"""Matrix multiplication: the loops around the micro-kernels, and the entry points on arrays.

    C[m, n] = A[m, k] @ B[k, n]           five ways, chosen by layout and size:

    tiles of C, B as it is      rows of B are contiguous. A is never copied: the micro-kernel takes
                                its elements one by one, at any stride.
    tiles of C, B packed        columns of B are not contiguous, or B is so large that the rows of
                                a panel lie in too many pages. A block of B is copied into panels.
    dot products                A and B are both contiguous along k, and m is too small to pay for
                                packing B.
    a sum of rows               m is 1 and the rows of B are contiguous.
    row by row                  k is small: each row of C is a short sum of rows of B.

The tiled loops, from the outside in (sizes of one core's caches decide the steps):

    for NC columns of C                       a packed block of B, KC x NC, stays in L3
      for KC steps of k
        for MC rows of C                      a block of A, MC x KC, stays in L2
          for each panel of B
            for each tile                     a tile of C stays in registers

Source: Goto and van de Geijn (2008) and Van Zee and van de Geijn (2015), as for `gemm_kernel`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import prange, types

from tinytorch.backends import reference
from tinytorch.backends.optimized import threads
from tinytorch.backends.optimized.buffers import empty, workspace
from tinytorch.backends.optimized.cpu import host_vector_unit
from tinytorch.backends.optimized.dot_kernel import dot_tile_f32, dot_tile_f64
from tinytorch.backends.optimized.entries import SIZE, Entries, array_type
from tinytorch.backends.optimized.gemm_kernel import gemm_tile_f32, gemm_tile_f64
from tinytorch.backends.optimized.gemv import GEMV_ROWS, sum_of_rows_f32, sum_of_rows_f64
from tinytorch.backends.optimized.library import export, kernel
from tinytorch.backends.optimized.llvm import address
from tinytorch.backends.optimized.packing import pack_f32, pack_f64
from tinytorch.dtypes import Array

_UNIT = host_vector_unit()
REGISTER_BYTES = _UNIT.register_bytes
TILE_VECTORS = _UNIT.tile_vectors[-1]
TILE_ROWS = (0, *(_UNIT.tile_rows(v) for v in range(1, TILE_VECTORS + 1)))  # by vectors per row
PANEL_VECTORS = tuple(_UNIT.panel_vectors(left) for left in range(TILE_VECTORS + 1))
DOT_ROWS, DOT_COLUMNS = _UNIT.dot_rows, _UNIT.dot_columns

KC_BYTES = 4096  # of a row of A: steps of k before C goes to memory
MC = 84  # rows of A: MC * KC_BYTES is a third of a 1 MiB L2 cache
NC = 2048  # columns of B
L2_BYTES = 2**20
PACK_BYTES = 4 * 2**20  # a B of this size is packed, if there are enough rows of A to pay
PACK_ROWS = 256
PACK_DEPTH = 64  # steps of k packed at a time, so that few pages are open

SCRATCH_BYTES = KC_BYTES * NC + 4096
"""Memory that one thread needs to pack a block of B."""


@kernel
def balanced(size: int, most: int) -> int:
    """The length of the parts, if `size` is cut into equal parts of at most `most`."""
    parts = (size + most - 1) // most
    return (size + parts - 1) // max(parts, 1)


@kernel
def _dots_are_cheaper(m: int, n: int, k: int, lanes: int) -> bool:
    """Whether dot products beat packing B and tiles of C, in units of a vector instruction."""
    dots = m * n * (k + 10 * lanes)
    tiles = (n + lanes - 1) // lanes * lanes * k * (m + 6)
    return dots < tiles


@kernel
def _dots(
    dot: Callable[..., None], itemsize: int, m: int, n: int, k: int, a: int, rsa: int, b: int,
    csb: int, c: int, ldc: int, start: int, ld_start: int, relu: int,
) -> None:  # fmt: skip
    """C as dot products of rows of A with columns of B, both contiguous."""
    rows, columns = balanced(m, DOT_ROWS), balanced(n, DOT_COLUMNS)
    for j in range(0, n, columns):
        for i in range(0, m, rows):
            at = i * ld_start + j * itemsize
            dot(
                min(rows, m - i), min(columns, n - j), k, 1, a + i * rsa, rsa, 0,
                b + j * csb, csb, 0, 0, start + at if start else 0, ld_start,
                c + i * ldc + j * itemsize, ldc, relu,
            )  # fmt: skip


@kernel
def _rows(
    sum_of_rows: Callable[..., None], n: int, k: int, a: int, csa: int, b: int, rsb: int, c: int,
    start: int, relu: int,
) -> None:  # fmt: skip
    """C, a single row, as a sum of the rows of B."""
    for p in range(0, k, GEMV_ROWS):
        last = p + GEMV_ROWS >= k
        sum_of_rows(
            min(GEMV_ROWS, k - p), n, a + p * csa, csa, b + p * rsb, rsb, c if p else start, c,
            relu if last else 0,
        )  # fmt: skip


@kernel
def _row_by_row(
    sum_of_rows: Callable[..., None], m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int,
    rsb: int, c: int, ldc: int, start: int, ld_start: int, relu: int,
) -> None:  # fmt: skip
    """C, with few terms in a sum, in the order in which it lies in memory: that is the limit."""
    for i in range(m):
        begin = start + i * ld_start if start else 0
        sum_of_rows(k, n, a + i * rsa, csa, b, rsb, begin, c + i * ldc, relu)


@kernel
def panel_columns(left: int, lanes: int) -> int:
    """Columns of the next panel, where `left` columns are left to do."""
    vectors = min((left + lanes - 1) // lanes, TILE_VECTORS)
    return min(PANEL_VECTORS[vectors] * lanes, left)


@kernel
def _pack_block(
    pack: Callable[..., None], itemsize: int, n: int, k: int, b: int, rsb: int, csb: int,
    scratch: int,
) -> None:  # fmt: skip
    """Copy a k x n block of B into panels, one after the other."""
    lanes = REGISTER_BYTES // itemsize
    for p in range(0, k, PACK_DEPTH):
        depth = min(PACK_DEPTH, k - p)
        j = 0
        while j < n:
            columns = panel_columns(n - j, lanes)
            to = scratch + (j * k + p * columns) * itemsize
            pack(columns, depth, b + p * rsb + j * csb, csb, rsb, to, columns * itemsize)
            j += columns


@kernel
def _tiles(
    tile: Callable[..., None], pack: Callable[..., None], itemsize: int, m: int, n: int, k: int,
    a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int, ldc: int, start: int,
    ld_start: int, relu: int, scratch: int,
) -> None:  # fmt: skip
    """C tile by tile; B is packed if there is scratch memory for it."""
    lanes = REGISTER_BYTES // itemsize
    kc = max(balanced(k, KC_BYTES // itemsize), 1)
    for jc in range(0, n, NC):
        block = min(NC, n - jc)
        for pc in range(0, max(k, 1), kc):
            depth = min(kc, k - pc)
            begin, ld_begin = (c, ldc) if pc > 0 else (start, ld_start)
            relu_now = relu if pc + depth == k else 0
            if scratch:
                source = b + pc * rsb + jc * csb
                _pack_block(pack, itemsize, block, depth, source, rsb, csb, scratch)
            for ic in range(0, m, MC):
                height = min(MC, m - ic)
                j = 0
                while j < block:
                    columns = panel_columns(block - j, lanes)
                    rows = balanced(height, TILE_ROWS[(columns + lanes - 1) // lanes])
                    panel, ldb = b + pc * rsb + (jc + j) * csb, rsb
                    if scratch:
                        panel, ldb = scratch + j * depth * itemsize, columns * itemsize
                    for i in range(ic, ic + height, rows):
                        at = (jc + j) * itemsize
                        tile(
                            min(rows, ic + height - i), columns, depth,
                            a + i * rsa + pc * csa, rsa, csa, panel, ldb,
                            begin + i * ld_begin + at if begin else 0, ld_begin,
                            c + i * ldc + at, ldc, relu_now,
                        )  # fmt: skip
                    j += columns


@kernel
def _gemm(
    tile: Callable[..., None], dot: Callable[..., None], sum_of_rows: Callable[..., None],
    pack: Callable[..., None], itemsize: int, m: int, n: int, k: int, a: int, rsa: int, csa: int,
    b: int, rsb: int, csb: int, c: int, ldc: int, start: int, ld_start: int, relu: int,
    scratch: int,
) -> None:  # fmt: skip
    """Choose one of the five ways."""
    if m == 0 or n == 0:
        return
    rsb = itemsize if k <= 1 else rsb
    csb = itemsize if n == 1 else csb
    if n == 1 and csa != itemsize and ldc == itemsize and start == 0:
        # a column is a row: C.T = B.T @ A.T
        m, n, a, rsa, csa, b, rsb, csb = 1, m, b, csb, rsb, a, csa, rsa
    lanes = REGISTER_BYTES // itemsize
    if csa == itemsize and rsb == itemsize and _dots_are_cheaper(m, n, k, lanes):
        _dots(dot, itemsize, m, n, k, a, rsa, b, csb, c, ldc, start, ld_start, relu)
        return
    if m == 1 and csb == itemsize and n * k * itemsize > L2_BYTES // 2:
        _rows(sum_of_rows, n, k, a, csa, b, rsb, c, start, relu)
        return
    if 0 < k <= GEMV_ROWS and csb == itemsize and n * k * itemsize <= L2_BYTES // 8:
        _row_by_row(sum_of_rows, m, n, k, a, rsa, csa, b, rsb, c, ldc, start, ld_start, relu)
        return
    packed = csb != itemsize or (n * k * itemsize >= PACK_BYTES and m > PACK_ROWS)
    _tiles(
        tile, pack, itemsize, m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu,
        scratch if packed else 0,
    )  # fmt: skip


_SIGNATURE = types.void(*[types.intp] * 15)


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
    _gemm(
        gemm_tile_f32, dot_tile_f32, sum_of_rows_f32, pack_f32, 4,
        m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch,
    )  # fmt: skip


@export("tinytorch_gemm_f64", _SIGNATURE)
def gemm_f64(
    m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int, csb: int, c: int,
    ldc: int, start: int, ld_start: int, relu: int, scratch: int,
) -> None:  # fmt: skip
    """`gemm_f32` in float64."""
    _gemm(
        gemm_tile_f64, dot_tile_f64, sum_of_rows_f64, pack_f64, 8,
        m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch,
    )  # fmt: skip


# -- on arrays ------------------------------------------------------------------------------------


class _Scratch(threading.local):
    """This thread's memory for packing. Only what is written to is backed by real memory."""

    def __init__(self) -> None:
        self.parts = 0
        self.grow(1)

    def grow(self, parts: int) -> int:
        """The address of at least `parts` times SCRATCH_BYTES."""
        if parts > self.parts:
            self.memory = workspace((SCRATCH_BYTES * parts,), np.dtype(np.uint8))
            self.address: int = self.memory.ctypes.data
            self.parts = parts
        return self.address


_scratch = _Scratch()


def scratch(parts: int = 1) -> int:
    """Address of SCRATCH_BYTES times `parts`, for this thread only, until its next call."""
    return _scratch.grow(parts)


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


def _make_entries(dtype: Any, gemm: Callable[..., None]) -> Entries:
    """The kernels on arrays, for one dtype."""
    shared = shared_gemm(dtype.bitwidth // 8)

    @kernel(nogil=False)  # only small products come this way
    def product(a: Array, b: Array, out: Array, scratch: int) -> None:
        gemm(
            out.shape[0], out.shape[1], a.shape[1], address(a), a.strides[0], a.strides[1],
            address(b), b.strides[0], b.strides[1], address(out), out.strides[0], 0, 0, 0, scratch,
        )  # fmt: skip

    @kernel
    def affine(a: Array, b: Array, bias: Array, out: Array, scratch: int) -> None:
        gemm(
            out.shape[0], out.shape[1], a.shape[1], address(a), a.strides[0], a.strides[1],
            address(b), b.strides[0], b.strides[1], address(out), out.strides[0],
            address(bias) if bias.size else 0, 0, 0, scratch,
        )  # fmt: skip

    @kernel
    def affine_parallel(
        count: int, a: Array, b: Array, bias: Array, out: Array, scratch: int
    ) -> None:
        shared(
            count, out.shape[0], out.shape[1], a.shape[1], address(a), a.strides[0], a.strides[1],
            address(b), b.strides[0], b.strides[1], address(out), out.strides[0],
            address(bias) if bias.size else 0, 0, 0, scratch,
        )  # fmt: skip

    @kernel
    def item(a: Array, b: Array, out: Array, index: int, scratch: int) -> None:
        """One product of a batch; a batch dimension of size 1 repeats."""
        i, j = index // out.shape[1], index % out.shape[1]
        product(
            a[min(i, a.shape[0] - 1), min(j, a.shape[1] - 1)],
            b[min(i, b.shape[0] - 1), min(j, b.shape[1] - 1)],
            out[i, j],
            scratch,
        )

    @kernel
    def batch(a: Array, b: Array, out: Array, scratch: int) -> None:
        for index in range(out.shape[0] * out.shape[1]):
            item(a, b, out, index, scratch)

    @kernel(parallel=True)
    def batch_parallel(count: int, a: Array, b: Array, out: Array, scratch: int) -> None:
        items = out.shape[0] * out.shape[1]
        step = (items + count - 1) // count
        for t in prange(count):
            for index in range(t * step, min((t + 1) * step, items)):
                item(a, b, out, index, scratch + t * SCRATCH_BYTES)

    matrix, vector, stack = (array_type(dtype, ndim) for ndim in (2, 1, 4))
    return Entries(
        product=(product, matrix, matrix, matrix, SIZE),
        affine=(affine, matrix, matrix, vector, matrix, SIZE),
        affine_parallel=(affine_parallel, SIZE, matrix, matrix, vector, matrix, SIZE),
        batch=(batch, stack, stack, stack, SIZE),
        batch_parallel=(batch_parallel, SIZE, stack, stack, stack, SIZE),
    )


@cache
def entries(itemsize: int) -> Entries:
    """The kernels on arrays whose elements have 4 or 8 bytes."""
    if itemsize == 4:
        return _make_entries(types.float32, gemm_f32)
    return _make_entries(types.float64, gemm_f64)


_products: dict[np.dtype[Any], Callable[..., None]] = {}
"""`entries(...).product` by dtype, once it is there."""

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_NO_BIAS: dict[int, Array] = {4: np.empty(0, np.float32), 8: np.empty(0, np.float64)}


def matmul(a: Array, b: Array) -> Array:
    """a @ b over the last two dimensions; the dimensions before them broadcast.

    Args:
        a: (..., m, k), any strides. The kernels are for float32 and float64; others go to NumPy.
        b: (..., k, n), of the same dtype.

    Returns:
        (..., m, n).

    Example:
        >>> matmul(np.ones((2, 3)), np.ones((3, 4)))[0, 0]
        np.float64(3.0)
    """
    try:  # the shortest way: the kernel of a small product takes no longer than these lines
        m, k = a.shape
        _, n = b.shape
        dtype = a.dtype
        product = _products[dtype]
    except (ValueError, KeyError):
        return _not_yet_or_no_matrices(a, b)
    if m * n * k >= threads.SERIAL_BELOW:
        return _affine(a, b, _NO_BIAS[a.itemsize])
    out = np.empty((m, n), dtype)
    product(a, b, out, _scratch.address)
    return out


def _not_yet_or_no_matrices(a: Array, b: Array) -> Array:
    """`matmul` where it is not the product of two matrices with a kernel that is ready."""
    if a.dtype not in _FLOATS:
        return reference.matmul(a, b)
    if a.ndim != 2 or b.ndim != 2:
        return _batched(a, b)
    _products[a.dtype] = entries(a.itemsize).product
    return matmul(a, b)


def linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """x @ w.T + b, the bias being what the sums start from.

    Args:
        x: (..., in), float32 or float64.
        w: (out, in).
        b: (out,) or None.

    Returns:
        (..., out).
    """
    bias = _NO_BIAS[x.itemsize] if b is None else np.ascontiguousarray(b)
    if x.ndim == 2:
        return _affine(x, w.T, bias)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _affine(rows, w.T, bias).reshape(*x.shape[:-1], w.shape[0])


def _affine(a: Array, b: Array, bias: Array) -> Array:
    """a @ b + bias for matrices."""
    m, k = a.shape
    n = b.shape[1]
    out = empty((m, n), a.dtype)
    count = threads.threads_for(m * n * k)
    of_dtype = entries(a.itemsize)
    of_dtype.run("affine", count, a, b, bias, out, scratch(count))
    return out


def _batched(a: Array, b: Array) -> Array:
    """Matrix products over batch dimensions."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = *a.shape[-2:], b.shape[-1]
    if b.ndim == 2 and a.flags.c_contiguous:  # one tall matrix
        return matmul(a.reshape(math.prod(batch) * m, k), b).reshape(*batch, m, n)
    out = empty((*batch, m, n), a.dtype)
    a, b, target = (_with_two_batch_dimensions(x, batch) for x in (a, b, out))
    items = target.shape[0] * target.shape[1]
    of_dtype = entries(a.itemsize)
    count = min(threads.threads_for(items * m * n * k), max(items, 1))
    of_dtype.run("batch", count, a, b, target, scratch(count))
    return out


def _with_two_batch_dimensions(x: Array, batch: tuple[int, ...]) -> Array:
    """x as (p, q, rows, columns); p or q may be 1 where it broadcasts."""
    if len(batch) > 2:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
        return x.reshape(math.prod(batch[:-1]), *x.shape[-3:])
    return x.reshape((1,) * (4 - x.ndim) + x.shape)
