"""Matrix product in plain numba, from three nested loops to a blocked kernel near the BLAS.

The three loops of `C[i, j] += A[i, p] * B[p, j]` may be in any order, and all orders do the same
arithmetic. What differs is which memory the innermost loop walks over:

    i j p    A along a row, B down a column: every step of B is in another cache line
    i p j    B and C along a row: eight or sixteen neighbours fit one vector instruction

The second order is ten to thirty times faster. Then memory is in the way: each multiply-add loads
an element of B and of C and stores one of C. `matmul_blocked` loads less in two ways. It works on a
*block* of B that stays in the cache, and in it on a *tile* of four rows of A by four of B, so that
an element that was loaded takes part in four multiply-adds and not in one.

Source: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34
(2008), sections 2 and 4.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from tinytorch.dtypes import Array
from tinytorch.jit.buffers import empty
from tinytorch.jit.library import kernel
from tinytorch.jit.threads import run_parallel, threads_for

TILE = 4  # rows of A, and rows of B, that one pass works on: 16 elements of A stay in registers
BLOCK_K = 256  # rows of a block of B
BLOCK_N = 512  # its columns; 256 x 512 float32 are half a megabyte, which the L2 cache holds
STRIP = 64  # columns of a block that one loop of known length runs over
CACHE_LINE = 64  # bytes
ROWS_AT_ONCE = 8  # of a matrix that is being transposed


@kernel
def matmul_ijk(a: Array, b: Array, c: Array) -> None:
    """C = A B in the order of the definition: a row of A times a column of B.

    Args:
        a: (m, k).
        b: (k, n).
        c: (m, n); overwritten.
    """
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a.dtype.type(0)
            for p in range(a.shape[1]):
                total += a[i, p] * b[p, j]
            c[i, j] = total


@kernel
def matmul_ikj(a: Array, b: Array, c: Array) -> None:
    """C = A B with the two inner loops exchanged: now the innermost one runs along rows.

    Element p of a row of A is multiplied by row p of B, and that is added to the row of C.

    Args:
        a: (m, k).
        b: (k, n).
        c: (m, n); overwritten.
    """
    c[:, :] = 0
    for i in range(a.shape[0]):
        c_row = c[i]
        for p in range(a.shape[1]):
            factor, b_row = a[i, p], b[p]
            for j in range(b.shape[1]):
                c_row[j] += factor * b_row[j]


@kernel
def _multiply_tile(a: Array, b: Array, starts: Array, c_rows: Array, width: int) -> None:
    """c_rows += a times the rows of b, four rows of each at a time, strip by strip.

    For p = 0, 4, 8, ...: sixteen elements of a, rows 0 to 3 and columns p to p + 3, take part in
    every step along rows p to p + 3 of b and rows 0 to 3 of c_rows.

    Row p of b is b[starts[p]], b[starts[p] + 1], ...: rows of a matrix, or slices of an image that
    overlap. A loop of constant length (STRIP) has no remainder, whose sixteen numbers would push
    vectors out of their registers; rows of c_rows at a constant distance do not overlap, which the
    compiler would otherwise have to check before it may use vector instructions.

    Args:
        a: (TILE, starts.size).
        b: flat; STRIP elements follow on the last one that counts.
        starts: where the rows of b begin, a multiple of TILE of them.
        c_rows: TILE rows of BLOCK_N elements, flat; they are added to.
        width: how many columns count; strips of STRIP columns are computed as a whole.
    """
    for start in range(0, width, STRIP):
        b_strip, c_strip = b[start:], c_rows[start:]
        for p in range(0, starts.size, TILE):
            row0, row1 = b_strip[starts[p] :], b_strip[starts[p + 1] :]
            row2, row3 = b_strip[starts[p + 2] :], b_strip[starts[p + 3] :]
            a00, a01, a02, a03 = a[0, p], a[0, p + 1], a[0, p + 2], a[0, p + 3]
            a10, a11, a12, a13 = a[1, p], a[1, p + 1], a[1, p + 2], a[1, p + 3]
            a20, a21, a22, a23 = a[2, p], a[2, p + 1], a[2, p + 2], a[2, p + 3]
            a30, a31, a32, a33 = a[3, p], a[3, p + 1], a[3, p + 2], a[3, p + 3]
            for j in range(STRIP):
                b0, b1, b2, b3 = row0[j], row1[j], row2[j], row3[j]
                c_strip[j] += a00 * b0 + a01 * b1 + a02 * b2 + a03 * b3
                c_strip[BLOCK_N + j] += a10 * b0 + a11 * b1 + a12 * b2 + a13 * b3
                c_strip[2 * BLOCK_N + j] += a20 * b0 + a21 * b1 + a22 * b2 + a23 * b3
                c_strip[3 * BLOCK_N + j] += a30 * b0 + a31 * b1 + a32 * b2 + a33 * b3


@kernel
def dot_products(a: Array, b: Array, starts: Array, c: Array) -> None:
    """c[i, j] = the sum of a[i, p] b[starts[j] + p] over p: a product along rows of both.

    Eight sums at a time, of four rows of a with two of b: six numbers are loaded for eight
    multiply-adds, and each sum is a register. Where a row or two are left over, the last one takes
    their place, and is computed again.

    Args:
        a: (m, k).
        b: flat; row j begins at starts[j].
        c: (m, starts.size); overwritten.
    """
    m, n = c.shape
    for i in range(0, m, 4):
        i1, i2, i3 = min(i + 1, m - 1), min(i + 2, m - 1), min(i + 3, m - 1)
        a0, a1, a2, a3 = a[i], a[i1], a[i2], a[i3]
        for j in range(0, n, 2):
            j1 = min(j + 1, n - 1)
            row0, row1 = b[starts[j] :], b[starts[j1] :]
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = a.dtype.type(0)
            for p in range(a.shape[1]):
                b0, b1 = row0[p], row1[p]
                s00, s01 = s00 + a0[p] * b0, s01 + a0[p] * b1
                s10, s11 = s10 + a1[p] * b0, s11 + a1[p] * b1
                s20, s21 = s20 + a2[p] * b0, s21 + a2[p] * b1
                s30, s31 = s30 + a3[p] * b0, s31 + a3[p] * b1
            c[i, j], c[i1, j], c[i2, j], c[i3, j] = s00, s10, s20, s30
            c[i, j1], c[i1, j1], c[i2, j1], c[i3, j1] = s01, s11, s21, s31


@kernel
def _aligned(size: int, like: Array) -> Array:
    """`size` elements that begin on a cache line; a vector across two lines costs two loads."""
    buffer = np.empty(size + CACHE_LINE // like.itemsize, like.dtype)
    skip = -buffer.ctypes.data % CACHE_LINE // like.itemsize
    return buffer[skip : skip + size]


@kernel
def _copy(source: Array, target: Array) -> None:
    """Write all of `source` to the first elements of `target`, which may be longer."""
    for j in range(source.size):
        target[j] = source[j]


@kernel
def matmul_blocked(a: Array, b: Array, c: Array) -> None:
    """C = A B, block by block of B, four rows of A at a time.

    A block of B has up to BLOCK_K rows and BLOCK_N columns. It is copied into a buffer; then, for
    every four rows of A, the same rows of C are copied into another one, `_multiply_tile` adds to
    them, and they are copied back. C begins as 0.

    Where the last block has no multiple of four rows, zeros fill it up, in both buffers (0 times
    infinity is NaN); where the last tile has fewer than four rows, the others hold whatever they
    hold, and are not copied to C. That costs a little arithmetic, and saves a second version of
    every loop.

    Args:
        a: (m, k).
        b: (k, n), of the same dtype.
        c: (m, n); overwritten.
    """
    (m, k), n = a.shape, b.shape[1]
    a_tile = np.zeros((TILE, BLOCK_K), a.dtype)
    b_block = _aligned(BLOCK_K * BLOCK_N, b)
    c_rows = _aligned(TILE * BLOCK_N, c)
    starts = np.arange(BLOCK_K) * BLOCK_N
    c[:, :] = 0
    for j in range(0, n, BLOCK_N):
        width = min(BLOCK_N, n - j)
        for p in range(0, k, BLOCK_K):
            used = min(BLOCK_K, k - p)
            depth = (used + TILE - 1) // TILE * TILE
            for row in range(used):
                _copy(b[p + row, j : j + width], b_block[row * BLOCK_N :])
            b_block[used * BLOCK_N : depth * BLOCK_N] = 0
            for i in range(0, m, TILE):
                rows = range(min(TILE, m - i))
                for r in rows:
                    _copy(a[i + r, p : p + used], a_tile[r])
                    a_tile[r, used:depth] = 0
                    _copy(c[i + r, j : j + width], c_rows[r * BLOCK_N :])
                _multiply_tile(a_tile, b_block, starts[:depth], c_rows, width)
                for r in rows:
                    _copy(c_rows[r * BLOCK_N : r * BLOCK_N + width], c[i + r, j : j + width])


@kernel(parallel=True)
def matmul_parallel(threads: int, a: Array, b: Array, c: Array) -> None:
    """C = A B with the rows of C shared out among `threads` threads.

    Thread t has the rows from m t / threads to m (t + 1) / threads, both rounded down. No two
    threads write the same row, so they need not wait for each other.
    """
    m = a.shape[0]
    for t in prange(threads):
        first, last = m * t // threads, m * (t + 1) // threads
        matmul_blocked(a[first:last], b, c[first:last])


@kernel
def _transpose(x: Array, out: Array) -> None:
    """out = x.T, ROWS_AT_ONCE rows of x at a time.

    Down a whole column of x every element is in another cache line, and the line is gone again
    before the next column could use it. A few lines stay.
    """
    for i in range(0, x.shape[0], ROWS_AT_ONCE):
        last = min(i + ROWS_AT_ONCE, x.shape[0])
        for j in range(x.shape[1]):
            for r in range(i, last):
                out[j, r] = x[r, j]


def _contiguous(x: Array) -> Array:
    """x, with rows that can be walked along: a transposed matrix is copied.

    These are m k steps beside the m k n of the product.
    """
    if x.ndim == 2 and x.flags.f_contiguous and not x.flags.c_contiguous:
        out = empty(x.shape, x.dtype)
        _transpose(x.T, out)
        return out
    return np.ascontiguousarray(x)


def matmul(a: Array, b: Array) -> Array:
    """(..., m, k) times (..., k, n); the batch dimensions broadcast.

    Args:
        a: (..., m, k), float32 or float64.
        b: (..., k, n), of the same dtype.
    """
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    a, b = _contiguous(a), _contiguous(b)
    threads = threads_for(m * k * n)
    if a.ndim == b.ndim == 2:
        out = empty((m, n), a.dtype)
        run_parallel(matmul_parallel, matmul_blocked, threads, a, b, out)
        return out
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = empty((*batch, m, n), a.dtype)
    lefts, rights = np.broadcast_to(a, (*batch, m, k)), np.broadcast_to(b, (*batch, k, n))
    for index in np.ndindex(batch):
        run_parallel(
            matmul_parallel, matmul_blocked, threads, lefts[index], rights[index], out[index]
        )
    return out


def linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """x @ w.T + b: both are walked along their rows, so that nothing is transposed.

    Weights that do not fit the cache, where each row of x would read them all from memory, are
    multiplied block by block.

    Args:
        x: (..., in), float32 or float64.
        w: (out, in), of the same dtype.
        b: (out,), or None.

    Returns:
        (..., out).
    """
    if w.size > BLOCK_K * BLOCK_N:
        out = matmul(x, w.T)
    else:
        rows = np.ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), w.shape[1])
        out = empty((rows.shape[0], w.shape[0]), x.dtype)
        starts = np.arange(w.shape[0]) * w.shape[1]
        dot_products(rows, np.ascontiguousarray(w).reshape(-1), starts, out)
        out = out.reshape(*x.shape[:-1], w.shape[0])
    if b is not None:
        out += b
    return out
