"""Functions of the rows of a matrix: softmax, cross entropy, layer normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.rows import cross_entropy, group_norm, layer_norm, softmax
from tinytorch.backends.optimized.symbols.table import REALS, declare, declare_kernel
from tinytorch.jit.views import view


def _declare_cross_entropy(real: Any) -> None:
    row_losses, loss_backward = cross_entropy._row_losses, cross_entropy._backward
    losses_and_gradient, mean = cross_entropy._losses_and_gradient, cross_entropy.mean

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


def _declare_layer_norm(real: Any) -> None:
    gradients = layer_norm.gradients

    @declare("layer_norm_gradients", real, "n d add g x w *eps dx dw db")
    def layer_norm_gradients(
        n: int, d: int, add: int, g: int, x: int, w: int, eps: float, dx: int, dw: int, db: int
    ) -> None:
        upper, rows, result = view(real, g, (n, d)), view(real, x, (n, d)), view(real, dx, (n, d))
        weight, to_w, to_b = view(real, w, d), view(real, dw, d), view(real, db, d)
        gradients(upper, rows, weight, eps, add != 0, result, to_w, to_b)


for _real in REALS:
    _declare_cross_entropy(_real)
    _declare_layer_norm(_real)

for _name, _forward, _backward in (
    ("softmax", softmax._softmax, softmax._softmax_backward),
    ("log_softmax", softmax._log_softmax, softmax._log_softmax_backward),
):
    declare_kernel(_name, _forward, "n d", "x[n,d] out[n,d]")
    declare_kernel(f"{_name}_backward", _backward, "n d", "g[n,d] y[n,d] out[n,d]")

declare_kernel("softmax_in_place", softmax.softmax_in_place, "n d", "x[n,d]")
declare_kernel(
    "softmax_backward_in_place", softmax.softmax_backward_in_place, "n d", "y[n,d] g[n,d]"
)

declare_kernel("layer_norm", layer_norm._forward, "n d", "x[n,d] w[d] b[d] *eps out[n,d]")
declare_kernel(
    "layer_norm_backward", layer_norm._backward, "n d", "g[n,d] x[n,d] w[d] *eps out[n,d]"
)
declare_kernel("layer_norm_weight", layer_norm._weight, "n d", "g[n,d] x[n,d] *eps out[d]")

_sizes, _rows, _vectors = "n groups d k", "[n,groups,d]", "[groups,k]"
declare_kernel(
    "group_norm", group_norm._forward, _sizes,
    f"x{_rows} w{_vectors} b{_vectors} *eps out{_rows}",
)  # fmt: skip
declare_kernel(
    "group_norm_backward", group_norm._backward, _sizes,
    f"g{_rows} x{_rows} w{_vectors} *eps out{_rows}",
)  # fmt: skip
declare_kernel(
    "group_norm_weight", group_norm._weight, _sizes, f"g{_rows} x{_rows} *eps out{_vectors}"
)
