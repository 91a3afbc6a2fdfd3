"""NumPy functions that write an op's result into an array they are given, after the inputs.

For the ops where NumPy can do that without a second array; the values are those of `reference`, to
the last bit. The result may be in the memory of an input of its own shape and dtype. Nothing is
silenced here: the caller holds `np.errstate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends import reference_special
from tinytorch.backends.reference import ELEMENTWISE, cast, slice_
from tinytorch.backends.reference_elementwise import clip, negative, power
from tinytorch.backends.reference_movement import fill_array
from tinytorch.dtypes import Array, DType, Shape, bfloat16, bits_of_bfloat16
from tinytorch.op import Op


def _sign(a: Array, out: Array) -> None:
    np.subtract(a > 0, a < 0, out, dtype=out.dtype)


def _power(a: Any, b: Any, out: Array) -> None:
    if out.dtype.kind == "f":
        np.power(a, b, out)
    else:
        np.copyto(out, power(a, b))  # NumPy may refuse b when it has written a part, and a be out


def _maximum(a: Any, b: Any, out: Array) -> None:
    np.maximum(a, b, out=out)  # by position NumPy takes no third array here


def _minimum(a: Any, b: Any, out: Array) -> None:
    np.minimum(a, b, out=out)


def _relu(a: Array, out: Array) -> None:
    is_zero = np.equal(a, 0)
    zeros = a[is_zero]  # with their signs, before anything is written, since a may be in out
    np.maximum(0, a, out=out)
    out[is_zero] = zeros


def _relu_backward(g: Any, y: Any, out: Array) -> None:
    stopped = np.less_equal(y, 0)  # before anything is written, since y may be in out
    np.copyto(out, g)
    np.copyto(out, 0, where=stopped)


def _round(a: Array, out: Array) -> None:
    np.round(a, 0, out)


def _reduction(ufunc: Any) -> Callable[..., None]:
    def reduce(a: Array, out: Array, *, dims: tuple[int, ...], keepdim: bool) -> None:
        ufunc(a, dims, None, out, keepdim)

    return reduce


def _copy(a: Array, out: Array) -> None:
    np.copyto(out, a)


def _cast(a: Array, out: Array, *, dtype: DType) -> None:
    special = dtype is bfloat16 or a.dtype == np.uint16
    np.copyto(out, cast(a, dtype=dtype) if special else a, casting="unsafe")


def _unslice(
    a: Array, out: Array, *, shape: Shape, bounds: tuple[tuple[int, int, int], ...]
) -> None:
    fill_array(out, 0)
    np.copyto(slice_(out, bounds=bounds), a)


def _cat(*arrays: Array, dim: int) -> None:
    *parts, out = arrays
    np.concatenate(parts, dim, out)


def _cumsum(a: Array, out: Array, *, dim: int) -> None:
    np.cumsum(a, dim, out=out)


def _scatter_add(a: Array, index: Array, out: Array, *, length: int) -> None:
    fill_array(out, 0)
    np.add.at(out, index, a)


def _full(out: Array, *, shape: Shape, value: Any, dtype: DType) -> None:
    fill_array(out, bits_of_bfloat16(np.asarray(value)) if dtype is bfloat16 else value)


_UFUNCS: dict[str, Callable[..., Any]] = {
    name: function for name, function in ELEMENTWISE.items() if isinstance(function, np.ufunc)
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_UFUNCS,
    "neg": negative,
    "pow": _power,
    "maximum": _maximum,
    "minimum": _minimum,
    "sign": _sign,
    "relu": _relu,
    "sigmoid": reference_special.sigmoid.into,
    "erf": reference_special.erf.into,
    "relu_backward": _relu_backward,
    "clip": clip,
    "round": _round,
    "sum": _reduction(np.add.reduce),
    "amax": _reduction(np.maximum.reduce),
    "amin": _reduction(np.minimum.reduce),
    "copy": _copy,
    "cast": _cast,
    "unslice": _unslice,
    "cat": _cat,
    "cumsum": _cumsum,
    "scatter_add": _scatter_add,
    "full": _full,
    "matmul": np.matmul,
}


def find_kernel(op: Op) -> Callable[..., Any] | None:
    """The function `kernel(*inputs, out, **params)` of this op; None if NumPy has none."""
    return _FUNCTIONS.get(op.name)
