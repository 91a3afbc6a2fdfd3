"""Reductions of x (outer, reduced, inner) to (outer, inner); with inner = 1, of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.rows import extremes, reductions
from tinytorch.backends.optimized.symbols.table import REALS, declare, declare_kernel
from tinytorch.jit.views import view

for _name, (_rows, _columns) in reductions.KERNELS.items():
    declare_kernel(f"{_name}_rows", _rows, "outer reduced", "x[outer,reduced] out[outer]")
    declare_kernel(
        f"{_name}_columns", _columns,
        "outer reduced inner", "x[outer,reduced,inner] out[outer,inner]",
    )  # fmt: skip


def _declare_places(name: str, real: Any) -> None:
    find = extremes.KERNELS[name]

    @declare(name, real, "outer reduced inner x out")
    def places(outer: int, reduced: int, inner: int, x: int, out: int) -> None:
        find(view(real, x, (outer, reduced, inner)), view(np.int64, out, (outer, inner)))


for _name in extremes.KERNELS:
    for _real in REALS:
        _declare_places(_name, _real)
