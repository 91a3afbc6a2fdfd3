"""Products with weights in bfloat16, the upper halves of float32: exact, in half of the bytes."""

from __future__ import annotations

import numpy as np
from numba import prange

from tinytorch.backends.optimized.gemm.gemv_kernel import dots_with_bfloat16
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import Rows

_HALF = np.int32(16)


@kernel
def few_rows_of_halves(
    first: int, stop: int, x: Array, weight: tuple[Array, Array, Array], out: Array
) -> None:
    """The outputs from `first` to before `stop`, for up to MOST_ROWS rows.

    Args:
        x: (m, k), float32.
        weight: its codes are uint16 (n, columns), columns up to whole vectors; see `loops.Weight`.
        out: (m, n)
    """
    codes, scale, bias = weight
    m, k = x.shape
    w = Rows(address(codes) + first * codes.strides[0], codes.strides[0])
    y = Rows(address(out) + first * out.itemsize, out.strides[0])
    given = Rows(address(x), x.strides[0])
    dots_with_bfloat16(m, stop - first, k, given, w, Rows(0, 0), y, 0)
    for r in range(m):
        for o in range(first, stop):
            value = out[r, o] * scale[o, 0]
            out[r, o] = value + bias[o] if bias.size else value


@kernel(parallel=True)
def few_rows_of_halves_parallel(
    threads: int, n: int, x: Array, weight: tuple[Array, Array, Array], out: Array
) -> None:
    for t in prange(threads):
        few_rows_of_halves(n * t // threads, n * (t + 1) // threads, x, weight, out)


@kernel
def floats_of_halves(codes: Array, scale: Array, group: int, out: Array) -> None:
    """codes (n, stored) times scale (n, 1) as floats (n, k); `group` is of no account."""
    for i in range(out.shape[0]):
        factor = scale[i, 0]
        for j in range(out.shape[1]):
            bits = np.int32(np.int32(codes[i, j]) << _HALF)
            out[i, j] = bits.view(np.float32) * factor
