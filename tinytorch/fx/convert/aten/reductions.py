"""ATen's reductions, scans and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinytorch import creation
from tinytorch.dtypes import as_dtype, int64
from tinytorch.functions import elementwise as e, ordering, reductions as r, scans, scattering
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.tensor import Tensor

Dims = int | Sequence[int] | None


def _dims(dim: Dims) -> Any:
    return None if dim is None or (not isinstance(dim, int) and len(dim) == 0) else dim


@aten("sum.dim_IntList", "sum")
def sum_(a: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    a = a if dtype is None else a.to(as_dtype(dtype))
    return r.sum(a, _dims(dim), keepdim)


@aten("mean.dim", "mean")
def mean(a: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    a = a if dtype is None else a.to(as_dtype(dtype))
    return r.mean(a, _dims(dim), keepdim)


@aten("max")
def max_(a: Tensor) -> Tensor:
    return r.amax(a)


@aten("min")
def min_(a: Tensor) -> Tensor:
    return r.amin(a)


@aten("amax")
def amax(a: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return r.amax(a, _dims(dim), keepdim)


@aten("amin")
def amin(a: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return r.amin(a, _dims(dim), keepdim)


@aten("max.dim")
def max_dim(a: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = r.max(a, dim, keepdim)
    return values, indices


@aten("min.dim")
def min_dim(a: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, indices = r.min(a, dim, keepdim)
    return values, indices


@aten("prod", "prod.dim_int")
def prod(a: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return r.prod(a, dim, keepdim, dtype=None if dtype is None else as_dtype(dtype))


@aten("linalg_vector_norm")
def linalg_vector_norm(
    a: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    return r.norm(a, ord, _dims(dim), keepdim, dtype=None if dtype is None else as_dtype(dtype))


@aten("histc")
def histc(a: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of `bins` equal intervals; those outside do not count."""
    if min >= max:
        raise NotImplementedError("histc between the smallest and the largest element")
    flat = a.reshape(-1)
    place = ((flat - min) * (bins / (max - min))).to(int64)
    inside = e.logical_and(e.ge(flat, min), e.le(flat, max)).to(a.dtype)
    zeros = creation.zeros((bins,), dtype=a.dtype)
    return scattering.scatter_add(zeros, 0, e.clip(place, 0, bins - 1), inside)


@aten("any", "any.dim", "any.dims")
def any_(a: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return r.any(a, _dims(dim), keepdim)


@aten("all", "all.dim")
def all_(a: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return r.all(a, _dims(dim), keepdim)


@aten("argmax")
def argmax(a: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return r.argmax(a, dim, keepdim)


@aten("argmin")
def argmin(a: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return r.argmin(a, dim, keepdim)


def _moments(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        a: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Any:
        return function(a, _dims(dim), correction=correction, keepdim=keepdim)

    return call


for _function in (r.var, r.std, r.var_mean, r.std_mean):
    aten(f"{_function.__name__}.correction")(_moments(_function))


@aten("var.dim")
def var_dim(a: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return r.var(a, _dims(dim), unbiased, keepdim)


@aten("cumsum")
def cumsum(a: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    if dtype is None:
        return scans.cumsum(a, dim)
    kind = as_dtype(dtype)
    return scans.cumsum(a.to(kind), dim).to(kind)  # ours of integers are int64


@aten("cumprod")
def cumprod(a: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    return scans.cumprod(a, dim, dtype=None if dtype is None else as_dtype(dtype))


aten("cummax")(scans.cummax)
aten("cummin")(scans.cummin)
aten("logcumsumexp")(scans.logcumsumexp)
aten("median", "median.dim")(ordering.median)
aten("kthvalue")(ordering.kthvalue)


@aten("_softmax")
def softmax(a: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return r.softmax(a, dim)


@aten("_log_softmax")
def log_softmax(a: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return r.log_softmax(a, dim)


@aten("_softmax_backward_data")
def softmax_backward(grad: Tensor, y: Tensor, dim: int, input_dtype: Any) -> Tensor:
    return y * (grad - r.sum(grad * y, dim, True))


@aten("_log_softmax_backward_data")
def log_softmax_backward(grad: Tensor, y: Tensor, dim: int, input_dtype: Any) -> Tensor:
    return grad - y.exp() * r.sum(grad, dim, True)
