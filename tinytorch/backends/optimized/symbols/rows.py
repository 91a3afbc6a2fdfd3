"""Functions of the rows of a matrix: softmax, cross entropy, layer normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized import cross_entropy, layer_norm, softmax
from tinytorch.backends.optimized.symbols import REALS, declare
from tinytorch.backends.optimized.symbols.views import view


def _declare_softmax(name: str, real: Any) -> None:
    forward = getattr(softmax, f"_{name}")
    backward = getattr(softmax, f"_{name}_backward")

    @declare(name, real, "n d x out")
    def of_rows(n: int, d: int, x: int, out: int) -> None:
        forward(view(real, x, (n, d)), view(real, out, (n, d)))

    @declare(f"{name}_backward", real, "n d g y out")
    def of_rows_backward(n: int, d: int, g: int, y: int, out: int) -> None:
        backward(view(real, g, (n, d)), view(real, y, (n, d)), view(real, out, (n, d)))


def _declare(real: Any) -> None:
    row_losses, loss_backward = cross_entropy._row_losses, cross_entropy._backward
    losses_and_gradient, mean = cross_entropy._losses_and_gradient, cross_entropy.mean
    norm, norm_backward = layer_norm._forward, layer_norm._backward
    norm_weight = layer_norm._weight

    @declare("cross_entropy", real, "n d x target out scratch")
    def cross_entropy_(n: int, d: int, x: int, target: int, out: int, scratch: int) -> None:
        losses = view(real, scratch, n)
        row_losses(view(real, x, (n, d)), view(np.int64, target, n), losses)
        view(real, out, 1)[0] = mean(losses)

    @declare("cross_entropy_backward", real, "n d g x target out")
    def cross_entropy_backward(n: int, d: int, g: int, x: int, target: int, out: int) -> None:
        scale = view(real, g, 1)[0] / np.float64(n)
        labels = view(np.int64, target, n)
        loss_backward(view(real, x, (n, d)), labels, scale, view(real, out, (n, d)))

    @declare("cross_entropy_and_gradient", real, "n d x target loss out")
    def cross_entropy_and_gradient(
        n: int, d: int, x: int, target: int, loss: int, out: int
    ) -> None:
        labels, losses = view(np.int64, target, n), np.empty(n, real)
        losses_and_gradient(view(real, x, (n, d)), labels, losses, view(real, out, (n, d)))
        view(real, loss, 1)[0] = mean(losses)

    @declare("layer_norm", real, "n d x w b *eps out")
    def layer_norm_(n: int, d: int, x: int, w: int, b: int, eps: float, out: int) -> None:
        norm(
            view(real, x, (n, d)), view(real, w, d), view(real, b, d), eps, view(real, out, (n, d))
        )

    @declare("layer_norm_backward", real, "n d g x w *eps out")
    def layer_norm_backward(n: int, d: int, g: int, x: int, w: int, eps: float, out: int) -> None:
        upper, rows = view(real, g, (n, d)), view(real, x, (n, d))
        norm_backward(upper, rows, view(real, w, d), eps, view(real, out, (n, d)))

    @declare("layer_norm_weight", real, "n d g x *eps out")
    def layer_norm_weight(n: int, d: int, g: int, x: int, eps: float, out: int) -> None:
        norm_weight(view(real, g, (n, d)), view(real, x, (n, d)), eps, view(real, out, d))


for _real in REALS:
    _declare_softmax("softmax", _real)
    _declare_softmax("log_softmax", _real)
    _declare(_real)
