"""New tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.dtypes import DEFAULT_FLOAT, DEFAULT_INT, Array, DType, as_dtype
from tinytorch.functions.dims import shape_arguments
from tinytorch.tensor import Tensor


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of `data`: a number, a nested list, a NumPy array or a tensor.

    Python floats become float32, ints int64, bools bool; a NumPy array keeps its dtype.

    Raises:
        ShapeError: a nested list is ragged.
        DTypeError: the dtype is not one of TinyTorch's.

    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    return Tensor(data, dtype=dtype, requires_grad=requires_grad)


def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """A tensor of `data`, without copying if it is a tensor or an array of the right dtype.

    Raises:
        ShapeError, DTypeError: as `tensor`.
    """
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    if isinstance(data, np.ndarray) and dtype in (None, data.dtype):
        return from_numpy(data)
    return Tensor(data, dtype=dtype)


def from_numpy(array: Array) -> Tensor:
    """A tensor that shares memory with the array.

    Raises:
        TypeError: it is no NumPy array.
        DTypeError: its dtype is not one of TinyTorch's, or not in this machine's byte order.

    >>> array = np.zeros(2)
    >>> x = from_numpy(array)
    >>> array[0] = 1.0; x
    tensor([1., 0.], dtype=float64)
    """
    return Tensor.from_numpy(array)


def from_dlpack(source: Any) -> Tensor:
    """A tensor that shares memory with any CPU array that speaks DLPack, such as PyTorch's."""
    return Tensor.from_numpy(np.from_dlpack(source))


def full(shape: Any, value: float, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Every element is `value`; the dtype is the value's unless given.

    Raises:
        ShapeError: a size is negative.
        DTypeError: a gradient is asked of integers.

    >>> full((2,), 7), full((2,), 7.0)
    (tensor([7, 7]), tensor([7., 7.]))
    """
    kind = as_dtype(dtype if dtype is not None else type(value))
    sizes = shape_arguments((shape,))
    return apply(ops.full, shape=sizes, value=value, dtype=kind).requires_grad_(requires_grad)


def zeros(*shape: Any, dtype: Any = DEFAULT_FLOAT, requires_grad: bool = False) -> Tensor:
    """Every element is 0: `zeros(2, 3)` or `zeros((2, 3))`."""
    return full(shape_arguments(shape), 0, dtype=dtype, requires_grad=requires_grad)


def ones(*shape: Any, dtype: Any = DEFAULT_FLOAT, requires_grad: bool = False) -> Tensor:
    """Every element is 1: `ones(2, 3)` or `ones((2, 3))`."""
    return full(shape_arguments(shape), 1, dtype=dtype, requires_grad=requires_grad)


def _like(x: Tensor, value: float, dtype: Any) -> Tensor:
    return full(x.shape, value, dtype=dtype if dtype is not None else x.dtype)


def full_like(x: Tensor, value: float, *, dtype: Any = None) -> Tensor:
    """`full` of the shape and dtype of x."""
    return _like(x, value, dtype)


def zeros_like(x: Tensor, *, dtype: Any = None) -> Tensor:
    """`zeros` of the shape and dtype of x."""
    return _like(x, 0, dtype)


def ones_like(x: Tensor, *, dtype: Any = None) -> Tensor:
    """`ones` of the shape and dtype of x."""
    return _like(x, 1, dtype)


def arange(
    start: float, stop: float | None = None, step: float = 1, *, dtype: Any = None
) -> Tensor:
    """start, start + step, ... up to but without stop; `arange(n)` counts from 0.

    The dtype, unless given, is int64 if all three are ints, and float32 otherwise.

    Raises:
        ShapeError: step is 0, or an argument is not finite.

    >>> arange(3), arange(0, 1, 0.25)
    (tensor([0, 1, 2]), tensor([0.  , 0.25, 0.5 , 0.75]))
    """
    if stop is None:
        start, stop = 0, start
    whole = all(isinstance(v, int) for v in (start, stop, step))
    kind: DType = as_dtype(dtype) if dtype is not None else DEFAULT_INT if whole else DEFAULT_FLOAT
    return apply(ops.arange, start=start, stop=stop, step=step, dtype=kind)


def linspace(start: float, stop: float, steps: int, *, dtype: Any = DEFAULT_FLOAT) -> Tensor:
    """`steps` evenly spaced numbers from start to stop, both included.

    Raises:
        ValueError: steps is negative.

    >>> linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    return Tensor(np.linspace(start, stop, steps), dtype=dtype)


def eye(n: int, m: int | None = None, *, dtype: Any = DEFAULT_FLOAT) -> Tensor:
    """The identity matrix (n, m), m = n unless given: 1 on the diagonal, 0 elsewhere.

    >>> eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    return Tensor(np.eye(n, m, dtype=as_dtype(dtype).dtype))
