"""Matrix products on several threads, and batches of them. `gemm.gemm_f32` is a symbol already.

Strides are in bytes. A batch has two dimensions, `outer` and `inner`; each operand has a step for
each, 0 where it repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from tinytorch.backends.optimized.gemm import SCRATCH_BYTES, gemm_f32, gemm_f64, shared_gemm
from tinytorch.backends.optimized.library import kernel
from tinytorch.backends.optimized.symbols import _symbols, declare
from tinytorch.backends.optimized.symbols.views import words


def _declare(real: Any, gemm: Callable[..., None]) -> None:
    shared = shared_gemm(np.dtype(real).itemsize)

    @declare(
        "gemm_parallel", real, "threads m n k a rsa csa b rsb csb c ldc start ld_start relu scratch"
    )
    def gemm_parallel(
        threads: int, m: int, n: int, k: int, a: int, rsa: int, csa: int, b: int, rsb: int,
        csb: int, c: int, ldc: int, start: int, ld_start: int, relu: int, scratch: int,
    ) -> None:  # fmt: skip
        """`gemm_f32` on so many threads, with SCRATCH_BYTES of scratch for each."""
        if threads <= 1:
            gemm(m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch)
        else:
            shared(
                threads, m, n, k, a, rsa, csa, b, rsb, csb, c, ldc, start, ld_start, relu, scratch
            )

    @kernel
    def items(plan: int, a: int, b: int, c: int, first: int, last: int, scratch: int) -> None:
        _, inner, m, n, k, rsa, csa, rsb, csb, ldc, a0, a1, b0, b1, c0, c1 = words(plan, 16)
        for item in range(first, last):
            i, j = item // inner, item % inner
            gemm(
                m, n, k, a + i * a0 + j * a1, rsa, csa, b + i * b0 + j * b1, rsb, csb,
                c + i * c0 + j * c1, ldc, 0, 0, 0, scratch,
            )  # fmt: skip

    @kernel(parallel=True)
    def shared_items(count: int, plan: int, a: int, b: int, c: int, scratch: int) -> None:
        outer, inner = words(plan, 2)
        total = outer * inner
        for t in prange(count):
            first, last = total * t // count, total * (t + 1) // count
            items(plan, a, b, c, first, last, scratch + t * SCRATCH_BYTES)

    @declare("gemm_batch", real, "plan a b c scratch")
    def gemm_batch(plan: int, a: int, b: int, c: int, scratch: int) -> None:
        """outer x inner products C = A @ B.

        Args:
            plan: address of 16 int64: outer, inner, m, n, k; strides rsa, csa, rsb, csb, ldc; the
                steps of a, b and c from product to product, two for each.
        """
        outer, inner = words(plan, 2)
        items(plan, a, b, c, 0, outer * inner, scratch)

    @declare("gemm_batch_parallel", real, "threads plan a b c scratch")
    def gemm_batch_parallel(threads: int, plan: int, a: int, b: int, c: int, scratch: int) -> None:
        outer, inner = words(plan, 2)
        if threads <= 1:
            items(plan, a, b, c, 0, outer * inner, scratch)
        else:
            shared_items(threads, plan, a, b, c, scratch)


_declare(np.float32, gemm_f32)
_declare(np.float64, gemm_f64)
_symbols.update(gemm_f32=gemm_f32, gemm_f64=gemm_f64)
