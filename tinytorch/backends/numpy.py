"""`NumpyBackend`: NumPy for everything; the oracle that the other backends are tested against."""

from __future__ import annotations

from typing import Any

from tinytorch.backends import reference, reference_ctc
from tinytorch.backends.base import ComputeBackend
from tinytorch.dtypes import Array


class NumpyBackend(ComputeBackend):
    """Runs every op by NumPy: matrix products by its BLAS, convolution as im2col and a product."""

    trusted = True
    replays = True

    matmul = staticmethod(reference.matmul)  # itself, so that `specialize_out` knows it

    def conv2d(self, x: Array, w: Array, b: Array | None = None, **params: Any) -> Array:
        return reference.conv2d(x, w, b, **params)

    def conv2d_input(self, g: Array, w: Array, **params: Any) -> Array:
        return reference.conv2d_input(g, w, **params)

    gather = staticmethod(reference.gather)
    scatter = staticmethod(reference.scatter)
    partial_argsort = staticmethod(reference.partial_argsort)
    running_argmax = staticmethod(reference.running_argmax)
    running_argmin = staticmethod(reference.running_argmin)
    dynamic_update_slice = staticmethod(reference.dynamic_update_slice)
    prod = staticmethod(reference.prod)
    cross = staticmethod(reference.cross)
    cumprod = staticmethod(reference.cumprod)
    cumprod_backward = staticmethod(reference.cumprod_backward)
    ctc_loss = staticmethod(reference_ctc.ctc_loss)
    ctc_loss_backward = staticmethod(reference_ctc.ctc_loss_backward)

    def conv2d_weight(self, x: Array, g: Array, **params: Any) -> Array:
        return reference.conv2d_weight(x, g, **params)
