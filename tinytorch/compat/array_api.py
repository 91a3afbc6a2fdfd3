"""The array API standard's names for what TinyTorch has, as `array_api_compat` asks for them.

    xp = array_api_compat.array_namespace(x)
    xp.sum(xp.matmul(x, xp.permute_dims(x, (1, 0))), axis=0)

What TinyTorch lacks (complex numbers, `unique_*`, ...) is an AttributeError.

Source: https://data-apis.org/array-api/latest
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tinytorch
from tinytorch import (
    broadcast_to as broadcast_to,
    float32 as float32,
    float64 as float64,
    int32 as int32,
    int64 as int64,
    where as where,
)
from tinytorch.dtypes import as_dtype, promote
from tinytorch.tensor import Tensor

__array_api_version__ = "2024.12"
e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None

_RENAMED = {
    "bitwise_invert": "bitwise_not", "divide": "div", "multiply": "mul", "subtract": "sub",
    "negative": "neg", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge",
}  # fmt: skip


def _reduction(name: str) -> Any:
    function = getattr(tinytorch, name)

    def reduce(x: Tensor, /, *, axis: Any = None, keepdims: Any = False, **options: Any) -> Any:
        if axis is None:
            axis = tuple(range(x.ndim))
        out = function(x, axis, keepdim=keepdims)
        dtype = options.get("dtype")
        return out if dtype is None else out.to(dtype)

    reduce.__name__ = name
    return reduce


sum, mean = _reduction("sum"), _reduction("mean")
any, all = _reduction("any"), _reduction("all")


def max(x: Tensor, /, *, axis: Any = None, keepdims: Any = False) -> Tensor:
    """The greatest element over axes, or of all."""
    return tinytorch.amax(x, _axes(x, axis), keepdim=keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: Any = False) -> Tensor:
    """The least element over axes, or of all."""
    return tinytorch.amin(x, _axes(x, axis), keepdim=keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: Any = 0, keepdims: Any = False) -> Tensor:
    """The variance, which the standard divides by n, not n - 1."""
    return tinytorch.var(x, _axes(x, axis), correction=correction, keepdim=keepdims)


def std(x: Tensor, /, *, axis: Any = None, correction: Any = 0, keepdims: Any = False) -> Tensor:
    """The square root of `var`."""
    return tinytorch.std(x, _axes(x, axis), correction=correction, keepdim=keepdims)


def _axes(x: Tensor, axis: Any) -> Any:
    return tuple(range(x.ndim)) if axis is None else axis


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Tensor:
    """A tensor of anything; a copy if asked for."""
    return tinytorch.tensor(obj, dtype=dtype) if copy else tinytorch.as_tensor(obj, dtype=dtype)


def astype(x: Tensor, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Tensor:
    """The array in another dtype."""
    return x.to(dtype, copy=copy)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """The arrays joined along an axis; flattened for None."""
    if axis is None:
        return tinytorch.cat([a.flatten() for a in arrays], 0)
    return tinytorch.cat(list(arrays), axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Along a new axis."""
    return tinytorch.stack(list(arrays), axis)


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """A new axis of size 1."""
    return tinytorch.unsqueeze(x, axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """The array without axes of size 1."""
    for i in sorted((axis,) if isinstance(axis, int) else axis, reverse=True):
        x = tinytorch.squeeze(x, i)
    return x


def permute_dims(x: Tensor, /, axes: Any) -> Tensor:
    """The axes in another order."""
    return x.permute(*axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


def reshape(x: Tensor, /, shape: Any, *, copy: Any = None) -> Tensor:
    """The same elements in another shape."""
    return x.clone().reshape(shape) if copy else x.reshape(shape)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """The array in reverse order along axes."""
    return tinytorch.flip(x, _axes(x, axis))


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: Any = False) -> Tensor:
    """The position of the greatest element."""
    return tinytorch.argmax(x, axis, keepdim=keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: Any = False) -> Tensor:
    """The position of the least element."""
    return tinytorch.argmin(x, axis, keepdim=keepdims)


def take(x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Tensor:
    """Slices along an axis."""
    return tinytorch.index_select(x, axis, indices)


def result_type(*values: Any) -> Any:
    """The dtype that an operation on these has."""
    metas = [v.meta if isinstance(v, Tensor) else type(v) for v in values]
    return promote(*metas)


def isdtype(dtype: Any, kind: Any) -> Any:
    """The dtype is one of a kind: "bool", "signed integer", "integral", "real floating", ..."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return np.isdtype(
        as_dtype(dtype).dtype, tuple(k if isinstance(k, str) else as_dtype(k).dtype for k in kinds)
    )


def __getattr__(name: str) -> Any:
    return getattr(tinytorch, _RENAMED.get(name, name))
