"""Rows by index, and random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from tinytorch.backends.optimized.rows import embedding
from tinytorch.backends.optimized.rows.uniform import FILL
from tinytorch.backends.optimized.symbols.table import REALS, SYMBOLS, declare
from tinytorch.jit.library import export
from tinytorch.jit.views import view


def _declare(real: Any) -> None:
    add_rows = embedding._scatter_add
    fill = FILL[real]

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
        fill(view(np.uint64, seed, 1)[0], view(real, out, count))


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
