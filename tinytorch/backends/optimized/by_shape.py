"""Kernels made for the shapes of a plan, where the ordinary ones look at them in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends import reference
from tinytorch.backends.base import Kernel
from tinytorch.backends.optimized.elementwise import casts
from tinytorch.backends.optimized.gemm import small as small_products
from tinytorch.backends.optimized.pooling import small as small_pooling
from tinytorch.backends.optimized.rows import (
    cross_entropy,
    fold,
    movement,
    reductions,
    small,
    small_index,
    small_order,
    uniform,
)
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.op import Plan
from tinytorch.shapes import contiguous_strides

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

_UFUNCS: Any = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _reduction(plan: Plan) -> Kernel | None:
    """The kernel of a reduction of integers, or of a few floats, by shape; None for another."""
    (x,) = plan.operands
    assert isinstance(x, TensorMeta)
    dtype, params = x.dtype.dtype, dict(plan.params)
    if "dim" in params:  # of a product
        params["dims"] = (params.pop("dim"),)
    of_truth = dtype == np.bool_ and plan.op.name in ("amax", "amin")
    if dtype in (_F32, _F64) or (x.size and (dtype == np.int64 or of_truth)):
        return reductions.specialize(plan.op.name, dtype, x.shape, **params)
    ufunc, shape, result = _UFUNCS[plan.op.name], plan.meta.shape, plan.meta.dtype.dtype

    def reduce(a: Array, **_: Any) -> Array:  # into an array: NumPy would make a number of one
        out = np.empty(shape, result)
        return ufunc.reduce(a, params["dims"], None, out, params["keepdim"])

    reduce.gives_arrays = True  # type: ignore[attr-defined]
    return reduce


def _expand(plan: Plan) -> Kernel:
    (x,) = plan.operands
    assert isinstance(x, TensorMeta)
    shape = plan.meta.shape
    new, of_x = len(shape) - x.ndim, contiguous_strides(x.shape, x.dtype.itemsize)
    strides = [
        0 if x.shape[i] == 1 != n else stride
        for i, (n, stride) in enumerate(zip(shape[new:], of_x, strict=True))
    ]
    return reference.view_maker(shape, [*(0,) * new, *strides], 0, reference.expand)


def _unfold(plan: Plan) -> Kernel:
    (x,) = plan.operands
    assert isinstance(x, TensorMeta)
    *before, each = contiguous_strides(x.shape, x.dtype.itemsize)
    strides = [*before, plan.params["step"] * each, each]
    return reference.view_maker(plan.meta.shape, strides, 0, reference.unfold)


#: By the name of an op: the kernel for a plan, or None for the ordinary one.
BY_SHAPE: dict[str, Callable[[Plan], Kernel | None]] = {
    **dict.fromkeys(("sum", "amax", "amin", "prod"), _reduction),
    **dict.fromkeys(small.ALONG, small.along),
    **dict.fromkeys(("argmax", "argmin"), small.extreme_at),
    "partial_argsort": small_order.partial_argsort,
    "argsort": small_order.argsort,
    "gather": small_index.gather,
    "scatter": small_index.scatter,
    "take": small_index.take,
    "scatter_add": small_index.scatter_add,
    "avg_pool2d": small_pooling.avg_pool2d,
    "max_pool2d": small_pooling.max_pool2d,
    "reshape": movement.reshape,
    "copy": movement.copy,
    "cast": casts.cast,
    "cross_entropy": cross_entropy.small,
    "cross_entropy_backward": cross_entropy.small_backward,
    "cat": movement.cat,
    "unslice": movement.unslice,
    "expand": _expand,
    "unfold": _unfold,
    "fold": fold.fold,
    "linear": small_products.linear,
    "linear_weight": small_products.linear_weight,
    "matmul": small_products.matmul,
    "uniform": uniform.small,
}
