"""Random numbers: SplitMix64, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.dtypes import Array, DType, Shape
from tinytorch.jit import buffers
from tinytorch.jit.library import kernel

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


def uniform(seed: Array, *, shape: Shape, dtype: DType) -> Array:
    """Numbers in [0, 1): those of `reference.uniform`, to the last bit.

    Args:
        seed: 0-d int64.
        dtype: float32 or float64.
    """
    out = buffers.empty(shape, dtype.dtype)
    FILL[dtype.dtype.type](np.uint64(seed.view(np.uint64)[()]), out.reshape(-1))
    return out
