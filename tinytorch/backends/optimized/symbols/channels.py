"""Batch normalisation: functions of the channels of x (n, channels, positions)."""

from __future__ import annotations

from typing import Any

from tinytorch.backends.optimized import batch_norm
from tinytorch.backends.optimized.symbols import REALS, declare
from tinytorch.backends.optimized.symbols.views import view


def _declare(real: Any) -> None:
    norm, norm_backward = batch_norm._forward, batch_norm._backward
    norm_weight = batch_norm._weight

    @declare("batch_norm", real, "n c p x w b *eps out")
    def batch_norm_(n: int, c: int, p: int, x: int, w: int, b: int, eps: float, out: int) -> None:
        shape = (n, c, p)
        norm(view(real, x, shape), view(real, w, c), view(real, b, c), eps, view(real, out, shape))

    @declare("batch_norm_backward", real, "n c p g x w *eps out")
    def batch_norm_backward(
        n: int, c: int, p: int, g: int, x: int, w: int, eps: float, out: int
    ) -> None:
        shape = (n, c, p)
        upper, images = view(real, g, shape), view(real, x, shape)
        norm_backward(upper, images, view(real, w, c), eps, view(real, out, shape))

    @declare("batch_norm_weight", real, "n c p g x *eps out")
    def batch_norm_weight(n: int, c: int, p: int, g: int, x: int, eps: float, out: int) -> None:
        shape = (n, c, p)
        norm_weight(view(real, g, shape), view(real, x, shape), eps, view(real, out, c))


for _real in REALS:
    _declare(_real)
