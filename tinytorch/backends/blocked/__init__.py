"""`BlockedBackend`: fast kernels that a student can write, in plain numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends import reference, reference_conv
from tinytorch.backends.base import Kernel
from tinytorch.backends.blocked import (
    batch_norm,
    conv,
    cross_entropy,
    elementwise,
    matmul,
    optimizers,
    pooling,
    sums,
)
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.dtypes import Array
from tinytorch.op import Op, Plan

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
SMALL = 4_096  # elements up to which an elementwise op is a NumPy function: it is called faster


class BlockedBackend(NumpyBackend):
    """Blocked matrix product, im2col convolution, fused normalization; the rest by NumPy.

    Its kernels are for float32 and float64; other dtypes go to NumPy.
    """

    trusted = True

    linear = staticmethod(matmul.linear)  # before the name is the op

    def matmul(self, a: Array, b: Array) -> Array:
        if a.dtype not in _FLOATS:
            return super().matmul(a, b)
        return matmul.matmul(a, b)

    def linear_weight(self, g: Array, x: Array) -> Array:
        """g.T @ x over all rows."""
        rows, columns = (a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) for a in (g, x))
        return self.matmul(rows.T, columns)

    def conv2d(self, x: Array, w: Array, b: Array | None = None, **params: Any) -> Array:
        if x.dtype not in _FLOATS:
            return super().conv2d(x, w, b, **params)
        return conv.conv2d(x, w, b, **params)

    def conv2d_input(self, g: Array, w: Array, **params: Any) -> Array:
        return conv.conv2d_input(g, w, **params)

    def conv2d_weight(self, x: Array, g: Array, **params: Any) -> Array:
        return conv.conv2d_weight(x, g, **params)

    def max_pool2d(self, x: Array, **params: Any) -> Array:
        if x.dtype not in _FLOATS or not x.size:
            return reference_conv.max_pool2d(x, **params)
        return pooling.max_pool2d(x, **params)

    def max_pool2d_backward(self, g: Array, x: Array, **params: Any) -> Array:
        if not x.size:
            return reference_conv.max_pool2d_backward(g, x, **params)
        return pooling.max_pool2d_backward(g, x, **params)

    running_statistics = staticmethod(batch_norm.running_statistics)
    batch_norm_backward = staticmethod(batch_norm.batch_norm_backward)
    batch_norm_weight = staticmethod(batch_norm.batch_norm_weight)
    batch_norm = staticmethod(batch_norm.batch_norm)  # from here on the name is the op
    cross_entropy_backward = staticmethod(cross_entropy.cross_entropy_backward)
    cross_entropy = staticmethod(cross_entropy.cross_entropy)
    sgd_step = staticmethod(optimizers.sgd_step)
    adam_step = staticmethod(optimizers.adam_step)

    def specialize(self, plan: Plan) -> Kernel:
        """The kernel for a plan: what shapes and dtypes decide is decided once.

        Elementwise ops on little data, or with operands to broadcast, go to NumPy: a loop of one
        length for all has to write out in full what NumPy reads again and again where it is.
        """
        if plan.op.kind == "elementwise":
            if math.prod(plan.meta.shape) <= SMALL or _broadcasts(plan):
                return reference.find_kernel(plan.op) or super().specialize(plan)
            if all(o == plan.meta for o in plan.operands) and plan.meta.dtype.dtype in _FLOATS:
                return elementwise.compile_same_shape(plan.op)
        if plan.op.name == "sum" and _sums_channels(plan):
            return sums.channel_sums
        return super().specialize(plan)

    def elementwise(self, op: Op, *operands: Any) -> Array:
        if not _computes_floats(op, operands):
            return reference.find_kernel(op)(*operands)  # type: ignore[misc]
        return elementwise.compile_op(op)(*operands)


def _broadcasts(plan: Plan) -> bool:
    """Whether an array (not a scalar) has another shape than the result."""
    shapes = [o.shape for o in plan.operands if not isinstance(o, type)]
    return any(shape != plan.meta.shape for shape in shapes)


def _sums_channels(plan: Plan) -> bool:
    """Whether a float array (n, channels, ...) is summed over all dimensions but the second."""
    (x,) = plan.operands
    if isinstance(x, type) or x.ndim < 3 or x.dtype.dtype not in _FLOATS:
        return False
    return bool(plan.params["dims"] == tuple(d for d in range(x.ndim) if d != 1))


def _computes_floats(op: Op, operands: tuple[Any, ...]) -> bool:
    """Whether all arrays are float32 or float64 (a condition may be bool), and so is the result."""
    dtypes = [x.dtype for x in operands if isinstance(x, np.ndarray)]
    if op.name == "where":
        dtypes = dtypes[1:]
    if not dtypes or any(d not in _FLOATS for d in dtypes):
        return False
    ones = [1.0] * len(op.inputs)
    return not isinstance(op.scalar(*ones), bool)  # type: ignore[misc]
