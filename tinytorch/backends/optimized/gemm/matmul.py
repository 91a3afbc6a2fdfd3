"""Matrix products of arrays, batches of them, and linear layers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import prange, types

from tinytorch.backends import reference
from tinytorch.backends.optimized.gemm import integers, library
from tinytorch.backends.optimized.gemm.loops import LazyGemm
from tinytorch.backends.optimized.gemm.panels import SCRATCH_BYTES
from tinytorch.backends.optimized.gemm.shared import shared_gemm
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.blas import find_blas
from tinytorch.jit.buffers import empty, workspace
from tinytorch.jit.entries import Entries, array_type
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import NOWHERE, SIZE, Matrix, Rows


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


scratch_memory = _Scratch()
"""`scratch_memory.address` is what `scratch()` returns, at a third of the time."""


def scratch(parts: int = 1) -> int:
    """Address of SCRATCH_BYTES times `parts`, for this thread only, until its next call."""
    return scratch_memory.grow(parts)


def _make_entries(dtype: Any) -> Entries:
    """The kernels on arrays, for one dtype.

    `product` and `affine` return what `LazyGemm.kernel` does; the others need all of its ways.
    """
    itemsize = dtype.bitwidth // 8
    shared, gemm = shared_gemm(itemsize), lazy_gemm(itemsize).kernel

    @kernel(nogil=False)  # only small products come this way
    def product(a: Array, b: Array, out: Array, scratch: int) -> int:
        m, n = out.shape
        left, right = Matrix(address(a), *a.strides), Matrix(address(b), *b.strides)
        return gemm(
            m, n, a.shape[1], left, right, Rows(address(out), out.strides[0]), NOWHERE, 0, scratch
        )

    @kernel
    def affine(a: Array, b: Array, bias: Array, out: Array, scratch: int) -> int:
        m, n = out.shape
        left, right = Matrix(address(a), *a.strides), Matrix(address(b), *b.strides)
        to, start = Rows(address(out), out.strides[0]), Rows(address(bias) if bias.size else 0, 0)
        return gemm(m, n, a.shape[1], left, right, to, start, 0, scratch)

    @kernel
    def affine_parallel(
        count: int, a: Array, b: Array, bias: Array, out: Array, scratch: int
    ) -> None:
        m, n = out.shape
        left, right = Matrix(address(a), *a.strides), Matrix(address(b), *b.strides)
        to, start = Rows(address(out), out.strides[0]), Rows(address(bias) if bias.size else 0, 0)
        shared(count, m, n, a.shape[1], left, right, to, start, 0, scratch)

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
    return _make_entries(types.float32 if itemsize == 4 else types.float64)


lazy_gemm = cache(LazyGemm)

_products: dict[np.dtype[Any], Callable[..., int]] = {}
"""`entries(...).product` by dtype, once it is there."""

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
NO_BIAS: dict[int, Array] = {4: np.empty(0, np.float32), 8: np.empty(0, np.float64)}
"""What `affine` takes for no bias, by the bytes of an element."""


def own_affine(a: Array, b: Array, bias: Array, count: int = 0) -> Array:
    """a @ b + bias for matrices, by these kernels; on `count` threads, 0 for as many as it pays."""
    m, k = a.shape
    n = b.shape[1]
    out = empty((m, n), a.dtype)
    of_dtype = entries(a.itemsize)
    count = count or threads.threads_for(m * n * k)
    if count == 1:  # as `run` would do, in a third of the time
        while missing := of_dtype.affine(a, b, bias, out, scratch_memory.address):
            lazy_gemm(a.itemsize).load(missing)
    else:
        lazy_gemm(a.itemsize).load_all()
        of_dtype.run("affine", count, a, b, bias, out, scratch(count))
    return out


@cache
def choices() -> library.Choices:
    """Which products NumPy's library computes in this process."""
    blas = find_blas()
    return library.Choices(
        own_affine,
        library.library_affine,
        library.fits,
        "" if blas is None else f"numpy {np.__version__}, {blas.name}",
        library.kernel_folders,
    )


def fastest_affine(a: Array, b: Array, bias: Array) -> Array:
    """a @ b + bias for matrices, by these kernels or, where it is faster, by NumPy's library."""
    m, k = a.shape
    n = b.shape[1]
    if m * n * k < library.LARGE:
        return own_affine(a, b, bias)
    count = threads.threads_for(m * n * k)
    product = library.class_of((m, n, k), a.strides, b.strides, a.itemsize, count)
    if product is not None and choices().prefers_library(product):
        return library.library_affine(a, b, bias, count)
    return own_affine(a, b, bias, count)


def matmul(a: Array, b: Array, affine: library.Affine = fastest_affine) -> Array:
    """a @ b over the last two dimensions; the dimensions before them broadcast.

    Args:
        a: (..., m, k), any strides. The kernels are for float32 and float64; int64 has
            one of its own, others go to NumPy.
        b: (..., k, n), of the same dtype.
        affine: computes what is not small; `own_affine` for these kernels alone.

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
        return _not_yet_or_no_matrices(a, b, affine)
    if m * n * k >= threads.SERIAL_BELOW:
        return affine(a, b, NO_BIAS[a.itemsize])
    out = np.empty((m, n), dtype)
    while missing := product(a, b, out, scratch_memory.address):
        lazy_gemm(a.itemsize).load(missing)
    return out


def _not_yet_or_no_matrices(a: Array, b: Array, affine: library.Affine) -> Array:
    """`matmul` where it is not the product of two matrices with a kernel that is ready."""
    if a.dtype not in FLOATS:
        if (floats := reference.as_exact_floats(a, b)) is not None:
            return matmul(*floats, affine).astype(np.int64)
        is_compiled = a.dtype == np.int64 and min(a.ndim, b.ndim) > 1
        return (integers if is_compiled else reference).matmul(a, b)
    if a.ndim != 2 or b.ndim != 2:
        return _batched(a, b, affine)
    _products[a.dtype] = entries(a.itemsize).product
    return matmul(a, b, affine)


def linear(
    x: Array, w: Array, b: Array | None = None, affine: library.Affine = fastest_affine
) -> Array:
    """x @ w.T + b, the bias being what the sums start from.

    Args:
        x: (..., in), float32 or float64.
        w: (out, in).
        b: (out,) or None.
        affine: as `matmul` takes it.

    Returns:
        (..., out).
    """
    bias = NO_BIAS[x.itemsize] if b is None else np.ascontiguousarray(b)
    if x.ndim == 2:
        return affine(x, w.T, bias)
    return affine(_rows(x), w.T, bias).reshape(*x.shape[:-1], w.shape[0])


def linear_weight(g: Array, x: Array, affine: library.Affine = fastest_affine) -> Array:
    """g.T @ x over all rows."""
    return matmul(_rows(g).T, _rows(x), affine)


def _rows(a: Array) -> Array:
    return a if a.ndim == 2 else a.reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _batched(a: Array, b: Array, affine: library.Affine) -> Array:
    """Matrix products over batch dimensions."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = *a.shape[-2:], b.shape[-1]
    if b.ndim == 2 and a.flags.c_contiguous:  # one tall matrix
        return matmul(a.reshape(math.prod(batch) * m, k), b, affine).reshape(*batch, m, n)
    out = empty((*batch, m, n), a.dtype)
    a, b, target = (_with_two_batch_dimensions(x, batch) for x in (a, b, out))
    items = target.shape[0] * target.shape[1]
    of_dtype = entries(a.itemsize)
    lazy_gemm(a.itemsize).load_all()
    count = min(threads.threads_for(items * m * n * k), max(items, 1))
    of_dtype.run("batch", count, a, b, target, scratch(count))
    return out


def _with_two_batch_dimensions(x: Array, batch: tuple[int, ...]) -> Array:
    """x as (p, q, rows, columns); p or q may be 1 where it broadcasts."""
    if len(batch) > 2:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
        return x.reshape(math.prod(batch[:-1]), *x.shape[-3:])
    return x.reshape((1,) * (4 - x.ndim) + x.shape)
