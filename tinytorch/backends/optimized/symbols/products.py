"""Batches of matrix products. `gemm.loops.gemm_f32` is a symbol already.

Strides are in bytes. A batch has two dimensions, `outer` and `inner`; each operand has a step for
each, 0 where it repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.gemm.loops import SIGNATURE, gemm_f32, gemm_f64
from tinytorch.backends.optimized.symbols.records import BATCH_WORDS, BatchRecord
from tinytorch.backends.optimized.symbols.table import SYMBOLS, declare
from tinytorch.jit.c_functions import with_c_parameters
from tinytorch.jit.library import JIT
from tinytorch.jit.operands import NOWHERE, Matrix, Rows
from tinytorch.jit.views import words


def _declare(real: Any, gemm: Callable[..., None]) -> None:
    @declare("gemm_batch", real, "record a b c scratch")
    def gemm_batch(record: int, a: int, b: int, c: int, scratch: int) -> None:
        """outer x inner products C = A @ B, as a `BatchRecord` says."""
        r = BatchRecord(*words(record, BATCH_WORDS))
        for i in range(r.outer):
            for j in range(r.inner):
                at = a + i * r.a_outer + j * r.a_inner
                bt = b + i * r.b_outer + j * r.b_inner
                ct = c + i * r.c_outer + j * r.c_inner
                left, right = Matrix(at, r.a_row, r.a_column), Matrix(bt, r.b_row, r.b_column)
                gemm(r.m, r.n, r.k, left, right, Rows(ct, r.c_row), NOWHERE, 0, scratch)


_declare(np.float32, gemm_f32)
_declare(np.float64, gemm_f64)
for _name, _gemm in (("gemm_f32", gemm_f32), ("gemm_f64", gemm_f64)):
    SYMBOLS[_name] = _gemm if JIT else with_c_parameters(_gemm, SIGNATURE)
