"""Batches of matrix products. `gemm.loops.gemm_f32` is a symbol already.

Strides are in bytes. A batch has two dimensions, `outer` and `inner`; each operand has a step for
each, 0 where it repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.gemm.loops import gemm_f32, gemm_f64
from tinytorch.backends.optimized.symbols.table import SYMBOLS, declare
from tinytorch.jit.views import words


def _declare(real: Any, gemm: Callable[..., None]) -> None:
    @declare("gemm_batch", real, "plan a b c scratch")
    def gemm_batch(plan: int, a: int, b: int, c: int, scratch: int) -> None:
        """outer x inner products C = A @ B.

        Args:
            plan: address of 16 int64: outer, inner, m, n, k; strides rsa, csa, rsb, csb, ldc; the
                steps of a, b and c from product to product, two for each.
        """
        outer, inner, m, n, k, rsa, csa, rsb, csb, ldc, a0, a1, b0, b1, c0, c1 = words(plan, 16)
        for i in range(outer):
            for j in range(inner):
                gemm(
                    m, n, k, a + i * a0 + j * a1, rsa, csa, b + i * b0 + j * b1, rsb, csb,
                    c + i * c0 + j * c1, ldc, 0, 0, 0, scratch,
                )  # fmt: skip


_declare(np.float32, gemm_f32)
_declare(np.float64, gemm_f64)
SYMBOLS.update(gemm_f32=gemm_f32, gemm_f64=gemm_f64)
