"""`BlockedBackend`: fast kernels that a student can write, in plain numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends import reference, reference_conv
from tinytorch.backends.base import Kernel
from tinytorch.backends.blocked import batch_norm, conv, elementwise, matmul, optimizers, pooling
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

    def matmul(self, a: Array, b: Array) -> Array:
        if a.dtype not in _FLOATS:
            return super().matmul(a, b)
        return matmul.matmul(a, b)

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

    batch_norm_backward = staticmethod(batch_norm.batch_norm_backward)
    batch_norm_weight = staticmethod(batch_norm.batch_norm_weight)
    batch_norm = staticmethod(batch_norm.batch_norm)  # from here on the name is the op
    sgd_step = staticmethod(optimizers.sgd_step)
    adam_step = staticmethod(optimizers.adam_step)

    def specialize(self, plan: Plan) -> Kernel:
        """Elementwise ops on little data go to NumPy, chosen once for each plan."""
        if plan.op.kind == "elementwise" and math.prod(plan.meta.shape) <= SMALL:
            return reference.find_kernel(plan.op) or super().specialize(plan)
        return super().specialize(plan)

    def elementwise(self, op: Op, *operands: Any) -> Array:
        if not _computes_floats(op, operands):
            return reference.find_kernel(op)(*operands)  # type: ignore[misc]
        return elementwise.compile_op(op)(*operands)


def _computes_floats(op: Op, operands: tuple[Any, ...]) -> bool:
    """Whether all arrays are float32 or float64 (a condition may be bool), and so is the result."""
    dtypes = [x.dtype for x in operands if isinstance(x, np.ndarray)]
    if op.name == "where":
        dtypes = dtypes[1:]
    if not dtypes or any(d not in _FLOATS for d in dtypes):
        return False
    ones = [1.0] * len(op.inputs)
    return not isinstance(op.scalar(*ones), bool)  # type: ignore[misc]
