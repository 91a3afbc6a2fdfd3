"""Random numbers: SplitMix64, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from tinytorch.dtypes import Array, DType, Shape
from tinytorch.jit import buffers
from tinytorch.jit.entries import Entries, flat_type
from tinytorch.jit.library import kernel
from tinytorch.op import Plan

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S30, S27, S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _of_type(real: Any) -> Callable[[Any, Array], None]:
    bits = 24 if real is np.float32 else 53  # as many as the type's mantissa holds
    unused, unit = np.uint64(64 - bits), real(2.0**-bits)

    @kernel
    def fill(start: Any, out: Array) -> None:
        """Element i is the i-th output of SplitMix64 from `start` (uint64) on."""
        for i in range(out.size):
            z = start + np.uint64(i + 1) * GOLDEN
            z = (z ^ (z >> S30)) * FIRST
            z = (z ^ (z >> S27)) * SECOND
            z ^= z >> S31
            out[i] = real(np.int64(z >> unused)) * unit

    return fill


FILL = {real: _of_type(real) for real in (np.float32, np.float64)}


@cache
def _entry(dtype: np.dtype[Any]) -> Callable[..., None]:
    fill = FILL[dtype.type]

    def from_seed(seed: Array, out: Array) -> None:
        fill(np.uint64(seed[0]), out)

    arrays = flat_type(types.int64), flat_type(from_dtype(dtype))
    return Entries(step=(kernel(nogil=False)(from_seed), *arrays)).step


def small(plan: Plan) -> Callable[..., Array] | None:
    """The kernel for few numbers, called without numba's dispatch; None for many."""
    if plan.meta.nbytes >= buffers.POOLED_FROM:
        return None
    fill = _entry(plan.meta.dtype.dtype)

    def uniform(seed: Array, *, shape: Shape, dtype: DType) -> Array:
        out = np.empty(shape, dtype.dtype)
        fill(seed, out)
        return out

    return uniform


def uniform(seed: Array, *, shape: Shape, dtype: DType) -> Array:
    """Numbers in [0, 1): those of `reference.uniform`, to the last bit.

    Args:
        seed: 0-d int64.
        dtype: float32 or float64.
    """
    out = buffers.empty(shape, dtype.dtype)
    FILL[dtype.dtype.type](np.uint64(seed.view(np.uint64)[()]), out.reshape(-1))
    return out
