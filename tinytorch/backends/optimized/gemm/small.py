"""Small products, and several by one weight: their shapes are taken apart once, for a plan, and not
at each call.

The kernel of a small product takes a microsecond or two, as long as a look at shapes does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinytorch.backends.optimized.gemm.library import LARGE
from tinytorch.backends.optimized.gemm.matmul import (
    FLOATS,
    NO_BIAS,
    entries,
    lazy_gemm,
    linear as linear_of_any_size,
    scratch_memory,
)
from tinytorch.backends.optimized.gemm.prepacked import PrepackedWeight
from tinytorch.backends.optimized.gemm.shared import goes_by_dots
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.jit import threads
from tinytorch.jit.buffers import POOLED_FROM, empty
from tinytorch.op import Plan

LEAST_PACKED = 2**13
"""Elements of a weight: of fewer the calls that pack it take longer than some of its products."""

Product = Callable[..., Array]
#: A weight, a bias, and the product with both, if they are packed.
Packed = tuple[Array, Array | None, Callable[[Array, Array], None] | None]


def matmul(plan: Plan) -> Product | None:
    """The kernel of `a @ b` for matrices, or a batch of them; None for others."""
    a, b = _metas(plan)
    if a.ndim != 2 or b.ndim != 2:
        return batch(plan)
    if not _is_small(plan, a.shape[1]):
        return None
    dtype, shape = plan.meta.dtype.dtype, plan.meta.shape
    product, load = entries(dtype.itemsize).product, lazy_gemm(dtype.itemsize).load

    def kernel(a: Array, b: Array) -> Array:
        out = np.empty(shape, dtype)
        while missing := product(a, b, out, scratch_memory.address):
            load(missing)
        return out

    return kernel


def linear_weight(plan: Plan) -> Product | None:
    """The kernel of `g.T @ x` for matrices; None for others."""
    g, x = _metas(plan)
    if g.ndim != 2 or x.ndim != 2 or not _is_small(plan, g.shape[0]):
        return None
    dtype, shape = plan.meta.dtype.dtype, plan.meta.shape
    product, load = entries(dtype.itemsize).product, lazy_gemm(dtype.itemsize).load

    def kernel(g: Array, x: Array) -> Array:
        out = np.empty(shape, dtype)
        while missing := product(g.T, x, out, scratch_memory.address):
            load(missing)
        return out

    return kernel


def linear(plan: Plan) -> Product | None:
    """The kernel of `x @ w.T + b` for matrices; None for others."""
    x = _metas(plan)[0]
    if x.ndim != 2 or not _is_small(plan, x.shape[1]):
        return None
    dtype, shape = plan.meta.dtype.dtype, plan.meta.shape
    affine, load = entries(dtype.itemsize).affine, lazy_gemm(dtype.itemsize).load
    none = NO_BIAS[dtype.itemsize]

    def kernel(x: Array, w: Array, b: Array | None = None) -> Array:
        out, bias = np.empty(shape, dtype), none if b is None else np.ascontiguousarray(b)
        while missing := affine(x, w.T, bias, out, scratch_memory.address):
            load(missing)
        return out

    return kernel


def packed_linear(plan: Plan) -> tuple[Callable[..., Packed], Product] | None:
    """What packs a weight and a bias, and `x @ w.T + b` by these; None where that goes by dot
    products, which round in another way, or might be computed by a library.

    On how many threads a product runs, and so how large their parts are, is known when it runs.
    Operands in another order are not packed, as blocks of k may then be shorter.
    """
    dtype, shape = plan.meta.dtype.dtype, plan.meta.shape
    k, n, m = _metas(plan)[0].shape[-1], shape[-1], math.prod(shape[:-1])
    work, unpacked = m * n * k, linear(plan) or linear_of_any_size

    def by_dots() -> bool:
        return goes_by_dots(threads.threads_for(work), m, n, k, dtype.itemsize)

    def pack(w: Array, b: Array | None = None) -> Packed:
        if not w.flags.c_contiguous or by_dots():
            return w, b, None
        weight = PrepackedWeight(w, b)
        is_serial = threads.threads_for(work) == 1
        return w, b, weight.for_rows(m) if is_serial else weight.multiply

    def product(x: Array, weight: Packed) -> Array:
        w, b, multiply = weight
        if multiply is not None and x.flags.c_contiguous and x.flags.aligned:
            out = empty(shape, dtype)
            multiply(x, out)
            return out
        return unpacked(x, w, b)

    if dtype not in FLOATS or m < 2 or n * k < LEAST_PACKED or work >= LARGE or by_dots():
        return None
    return pack, product


def batch(plan: Plan) -> Product | None:
    """The kernel of `a @ b` for a batch of matrices each; None for others."""
    a, b = _metas(plan)
    out, dtype = plan.meta, plan.meta.dtype.dtype
    if out.ndim not in (3, 4) or b.ndim == 2 or not _is_small(plan, a.shape[-1]):
        return None
    new_a, new_b, new_out = ((None,) * (4 - m.ndim) for m in (a, b, out))
    shape, products = out.shape, entries(dtype.itemsize).batch
    lazy_gemm(dtype.itemsize).load_all()

    def product(a: Array, b: Array) -> Array:
        result = np.empty(shape, dtype)
        products(a[new_a], b[new_b], result[new_out], scratch_memory.address)
        return result

    return product


def _metas(plan: Plan) -> list[TensorMeta]:
    return [meta for meta in plan.operands if isinstance(meta, TensorMeta)]


def _is_small(plan: Plan, terms: int) -> bool:
    """Whether a product with sums of so many terms is for one thread, in memory of its own."""
    meta = plan.meta
    work = meta.size * terms
    is_small = 0 < work < threads.SERIAL_BELOW and meta.nbytes < POOLED_FROM
    return is_small and meta.dtype.dtype in FLOATS
