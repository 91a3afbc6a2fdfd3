"""ATen's operators that make tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch import creation
from tinytorch.dtypes import as_dtype, int64
from tinytorch.functions import diagonals
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.tensor import Tensor


@aten("full")
def full(size: Sequence[int], fill_value: Any, *, dtype: Any = None, **where: Any) -> Tensor:
    kind = None if dtype is None else as_dtype(dtype)
    return creation.full(tuple(size), fill_value, dtype=kind)


@aten("empty.memory_format", "empty_strided", "empty_permuted")
def empty(size: Sequence[int], *layout: Any, dtype: Any = None, **where: Any) -> Tensor:
    """What is in it, PyTorch leaves open; here zeros."""
    return zeros(size, dtype=dtype)


@aten("full_like")
def full_like(a: Tensor, fill_value: Any, *, dtype: Any = None, **where: Any) -> Tensor:
    kind = a.dtype if dtype is None else as_dtype(dtype)
    return creation.full(a.shape, fill_value, dtype=kind)


@aten("fill.Scalar")
def fill(a: Tensor, value: Any) -> Tensor:
    return full_like(a, value)


@aten("zeros")
def zeros(size: Sequence[int], *, dtype: Any = None, **where: Any) -> Tensor:
    return full(size, 0.0, dtype="float32" if dtype is None else dtype)


@aten("ones")
def ones(size: Sequence[int], *, dtype: Any = None, **where: Any) -> Tensor:
    return full(size, 1.0, dtype="float32" if dtype is None else dtype)


@aten("zeros_like")
def zeros_like(a: Tensor, *, dtype: Any = None, **where: Any) -> Tensor:
    return full_like(a, 0, dtype=dtype)


@aten("ones_like")
def ones_like(a: Tensor, *, dtype: Any = None, **where: Any) -> Tensor:
    return full_like(a, 1, dtype=dtype)


@aten("new_zeros")
def new_zeros(a: Tensor, size: Sequence[int], *, dtype: Any = None, **where: Any) -> Tensor:
    return creation.full(tuple(size), 0, dtype=a.dtype if dtype is None else as_dtype(dtype))


@aten("new_ones")
def new_ones(a: Tensor, size: Sequence[int], *, dtype: Any = None, **where: Any) -> Tensor:
    return creation.full(tuple(size), 1, dtype=a.dtype if dtype is None else as_dtype(dtype))


@aten("scalar_tensor")
def scalar_tensor(value: Any, *, dtype: Any = None, **where: Any) -> Tensor:
    return full((), value, dtype="float32" if dtype is None else dtype)


@aten("arange")
def arange(end: float, *, dtype: Any = None, **where: Any) -> Tensor:
    return arange_step(0, end, dtype=dtype)


@aten("arange.start")
def arange_start(start: float, end: float, *, dtype: Any = None, **where: Any) -> Tensor:
    return arange_step(start, end, dtype=dtype)


@aten("arange.start_step")
def arange_step(
    start: float, end: float, step: float = 1, *, dtype: Any = None, **where: Any
) -> Tensor:
    return creation.arange(start, end, step, dtype=None if dtype is None else as_dtype(dtype))


@aten("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64, **_: Any) -> Tensor:
    return diagonals.tril_indices(row, col, offset, dtype=as_dtype(dtype))


@aten("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64, **_: Any) -> Tensor:
    return diagonals.triu_indices(row, col, offset, dtype=as_dtype(dtype))
