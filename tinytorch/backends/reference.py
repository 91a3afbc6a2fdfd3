"""Every op as a NumPy function: what backends fall back to and are tested against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.reference_conv import (
    avg_pool2d,
    avg_pool2d_backward,
    conv2d,
    conv2d_input,
    conv2d_input_by,
    conv2d_weight,
    conv2d_weight_by,
    max_pool2d,
    max_pool2d_backward,
    max_pool2d_select,
)
from tinytorch.backends.reference_elementwise import ELEMENTWISE, SILENT, quiet
from tinytorch.backends.reference_indexing import (
    bisected,
    compressed,
    drawn,
    dynamic_update_slice,
    gather,
    is_within,
    row_starts,
    scatter,
    scatter_add,
    take,
    within_reach,
    write_places,
    write_positions,
)
from tinytorch.backends.reference_movement import (
    cast,
    cat,
    copy,
    detach,
    expand,
    fill_array,
    fold,
    permute,
    reshape,
    slice_,
    slices,
    unfold,
    unslice,
    view_maker,
)
from tinytorch.backends.reference_reductions import (
    amax,
    amin,
    argmax,
    argmin,
    argsort,
    cross,
    cumprod,
    cumprod_backward,
    cumsum,
    partial_argsort,
    prod,
    running_argmax,
    running_argmin,
    sum,
)
from tinytorch.dtypes import Array, DType, Shape, bfloat16, bits_of_bfloat16
from tinytorch.op import Op

LONG_SUM = 32  # of a product of int64, from which on to convert both operands pays


def full(*, shape: Shape, value: Any, dtype: DType) -> Array:
    out = np.empty(shape, dtype.dtype)
    fill_array(out, bits_of_bfloat16(np.asarray(value)) if dtype is bfloat16 else value)
    return out


def arange(*, start: float, stop: float, step: float, dtype: DType) -> Array:
    return np.arange(start, stop, step, dtype=dtype.dtype)


def uniform(seed: Array, *, shape: Shape, dtype: DType) -> Array:
    """Numbers in [0, 1): element i is the i-th output of SplitMix64 started at `seed`.

    Every backend gives the same bits, in any order of evaluation. Source: G. Steele, D. Lea,
    C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17.
    """
    size = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        z = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += seed.astype(np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    bits = 53 if dtype.name == "float64" else 24  # as many as the type's mantissa holds
    values = (z >> np.uint64(64 - bits)).astype(dtype.dtype) * dtype.dtype.type(2.0**-bits)
    return values.reshape(shape)


@quiet
def matmul(a: Array, b: Array) -> Array:
    """The product in row-major order, whatever that of a batch is (NumPy takes the operands')."""
    floats = as_exact_floats(a, b)
    if floats is None:
        return np.matmul(a, b, order="C")
    return np.matmul(*floats, order="C").astype(np.int64)


def as_exact_floats(a: Array, b: Array) -> tuple[Array, Array] | None:
    """Matrices of int64 in float64, if that has each sum of their product and a BLAS pays."""
    if not a.dtype == np.int64 == b.dtype or min(a.ndim, b.ndim) < 2:
        return None
    if min(a.size, *a.shape[-2:], *b.shape[-2:]) < LONG_SUM:
        return None
    most = [max(int(x.max(initial=0)), -int(x.min(initial=0))) for x in (a, b)]
    if most[0] * most[1] * a.shape[-1] >= 2**53:
        return None
    return a.astype(np.float64), b.astype(np.float64)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: f if name in SILENT else quiet(f) for name, f in ELEMENTWISE.items()},
    "slice": slice_,
    "sum": sum,
    "cumsum": cumsum,
    **{
        f.__name__: f
        for f in (
            *(amax, amin, argmax, argmin, argsort),
            *(reshape, permute, expand, unslice, unfold, fold, cat, detach, copy, cast),
            *(take, scatter_add, full, arange, uniform, matmul),
            *(conv2d, conv2d_input, conv2d_weight, max_pool2d, max_pool2d_backward),
            *(max_pool2d_select, avg_pool2d, avg_pool2d_backward),
        )
    },
}

__all__ = [
    "ELEMENTWISE", "amax", "amin", "arange", "argmax", "argmin", "argsort", "avg_pool2d",
    "avg_pool2d_backward", "bisected", "cast", "cat", "compressed", "conv2d", "conv2d_input",
    "conv2d_input_by", "conv2d_weight", "conv2d_weight_by", "copy", "cross", "cumprod",
    "cumprod_backward", "cumsum",
    "detach", "drawn", "dynamic_update_slice", "expand", "find_kernel", "fold", "full", "gather",
    "is_within", "matmul", "max_pool2d", "max_pool2d_backward", "max_pool2d_select",
    "partial_argsort", "permute", "prod", "reshape", "row_starts", "running_argmax",
    "running_argmin", "scatter", "scatter_add", "slice_", "slices", "sum", "take", "unfold",
    "uniform", "unslice", "view_maker",
    "within_reach", "write_places", "write_positions",
]  # fmt: skip


def _looped(scalar: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that calls a scalar definition for each element, by `np.vectorize`.

    The result is bool if `scalar` answers with bool (it is tried on ones), otherwise it has the
    common dtype of the operands; also where there are no elements, of which NumPy could not see a
    type.
    """

    def kernel(*operands: Any) -> Array:
        ones = [1] * len(operands)
        dtype: Any = bool if isinstance(scalar(*ones), bool) else np.result_type(*operands)
        return np.vectorize(scalar, otypes=[dtype])(*operands)

    return kernel


def find_kernel(op: Op) -> Callable[..., Any] | None:
    """The NumPy function of this op, or None.

    `_FUNCTIONS` is the table: NumPy's function by the name of the op. An elementwise op that a user
    added is not in it, and has only its scalar definition; NumPy then loops over that (`_looped`).
    """
    if op.name in _FUNCTIONS:
        return _FUNCTIONS[op.name]
    if op.kind == "elementwise":
        assert op.scalar is not None
        return _looped(op.scalar)
    return None
