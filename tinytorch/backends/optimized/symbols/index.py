"""Rows by index, and random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from tinytorch.backends.optimized.rows import embedding
from tinytorch.backends.optimized.symbols.table import REALS, SYMBOLS, declare
from tinytorch.jit.library import export
from tinytorch.jit.views import view

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S30, S27, S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _declare(real: Any) -> None:
    add_rows = embedding._scatter_add
    bits = 24 if real is np.float32 else 53  # as many as the type's mantissa holds
    unused, unit = np.uint64(64 - bits), real(2.0**-bits)

    @declare("take", real, "count length width x index out")
    def take(count: int, length: int, width: int, x: int, index: int, out: int) -> None:
        rows, indices = view(real, x, (length, width)), view(np.int64, index, count)
        result = view(real, out, (count, width))
        for i in range(count):
            source, target = rows[indices[i]], result[i]
            for j in range(width):
                target[j] = source[j]

    @declare("scatter_add", real, "count length width g index out")
    def scatter_add(count: int, length: int, width: int, g: int, index: int, out: int) -> None:
        result = view(real, out, (length, width))
        result[:, :] = 0
        add_rows(view(np.int64, index, count), view(real, g, (count, width)), result)

    @declare("uniform", real, "count seed out")
    def uniform(count: int, seed: int, out: int) -> None:
        """Element i is the i-th output of SplitMix64; see `reference.uniform`."""
        start, result = view(np.uint64, seed, 1)[0], view(real, out, count)
        for i in range(count):
            z = start + np.uint64(i + 1) * GOLDEN
            z = (z ^ (z >> S30)) * FIRST
            z = (z ^ (z >> S27)) * SECOND
            z ^= z >> S31
            result[i] = real(np.int64(z >> unused)) * unit


@export("tinytorch_outside", types.intp(types.intp, types.intp, types.intp))
def outside(count: int, extent: int, index: int) -> int:
    """Whether one of `count` indices (int64) is not in 0 .. extent - 1."""
    indices, bad = view(np.int64, index, count), False
    for i in range(count):
        bad |= (indices[i] < 0) | (indices[i] >= extent)
    return 1 if bad else 0


SYMBOLS["outside"] = outside

for _real in REALS:
    _declare(_real)
