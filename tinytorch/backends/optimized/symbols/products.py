"""Batches of matrix products. `gemm.loops.gemm_f32` is a symbol already.

Strides are in bytes. A batch has two dimensions, `outer` and `inner`; each operand has a step for
each, 0 where it repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.gemm.batches import (
    Following,
    fits_l1,
    product_f32,
    product_f64,
)
from tinytorch.backends.optimized.gemm.loops import SIGNATURE, gemm_f32, gemm_f64
from tinytorch.backends.optimized.symbols.records import BATCH_WORDS, BatchRecord
from tinytorch.backends.optimized.symbols.table import SYMBOLS, declare
from tinytorch.jit.c_functions import with_c_parameters
from tinytorch.jit.library import JIT, kernel
from tinytorch.jit.operands import NOWHERE, Matrix, Rows
from tinytorch.jit.views import words


@kernel(force_inline=True)
def _place(start: int, i: int, j: int, of_outer: int, of_inner: int) -> int:
    """The address of an operand of product (i, j)."""
    return start + i * of_outer + j * of_inner


def _declare(real: Any, gemm: Callable[..., None], product: Callable[..., None]) -> None:
    itemsize = np.dtype(real).itemsize

    @declare("gemm_batch", real, "record a b c scratch")
    def gemm_batch(record: int, a: int, b: int, c: int, scratch: int) -> None:
        """outer x inner products C = A @ B, as a `BatchRecord` says."""
        r = BatchRecord(*words(record, BATCH_WORDS))
        is_small = fits_l1(r.m, r.n, r.k, itemsize)
        for i in range(r.outer):
            for j in range(r.inner):
                at = _place(a, i, j, r.a_outer, r.a_inner)
                bt = _place(b, i, j, r.b_outer, r.b_inner)
                to = Rows(_place(c, i, j, r.c_outer, r.c_inner), r.c_row)
                left, right = Matrix(at, r.a_row, r.a_column), Matrix(bt, r.b_row, r.b_column)
                if not is_small:
                    gemm(r.m, r.n, r.k, left, right, to, NOWHERE, 0, scratch)
                    continue
                p, q = (i, j + 1) if j + 1 < r.inner else (i + 1, 0)
                following = Following(0, 0, 0)
                if r.is_far and p < r.outer:
                    following = Following(
                        _place(a, p, q, r.a_outer, r.a_inner),
                        _place(b, p, q, r.b_outer, r.b_inner),
                        _place(c, p, q, r.c_outer, r.c_inner),
                    )
                product(r.m, r.n, r.k, left, right, to, following, scratch)


_declare(np.float32, gemm_f32, product_f32)
_declare(np.float64, gemm_f64, product_f64)
for _name, _gemm in (("gemm_f32", gemm_f32), ("gemm_f64", gemm_f64)):
    SYMBOLS[_name] = _gemm if JIT else with_c_parameters(_gemm, SIGNATURE)
