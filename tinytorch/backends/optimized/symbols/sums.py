"""Reductions of x (outer, reduced, inner) to (outer, inner); with inner = 1, of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.backends.optimized import reductions
from tinytorch.backends.optimized.symbols import REALS, declare
from tinytorch.backends.optimized.symbols.views import view


def _declare(name: str, real: Any, rows: Callable[..., None], columns: Callable[..., None]) -> None:
    @declare(f"{name}_rows", real, "outer reduced x out")
    def of_rows(outer: int, reduced: int, x: int, out: int) -> None:
        rows(view(real, x, (outer, reduced)), view(real, out, outer))

    @declare(f"{name}_columns", real, "outer reduced inner x out")
    def of_columns(outer: int, reduced: int, inner: int, x: int, out: int) -> None:
        columns(view(real, x, (outer, reduced, inner)), view(real, out, (outer, inner)))


for _name, _kernels in reductions.KERNELS.items():
    for _real in REALS:
        _declare(_name, _real, *_kernels)
