"""New tensors."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.absent import accepts_device
from tinytorch.dispatch import apply
from tinytorch.dtypes import (
    DEFAULT_FLOAT,
    DEFAULT_INT,
    STORAGE_ONLY,
    Array,
    DType,
    as_dtype,
    bfloat16,
    bool_,
    float32,
    number_of,
)
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.dims import named_or_not, shape_arguments
from tinytorch.functions.publish import METHODS
from tinytorch.replay import replay_all
from tinytorch.tensor import Tensor

BLOCK = 2**14  # numbers: their float64 stays in the caches


@accepts_device
def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of `data`: a number, a nested list, a NumPy array or a tensor.

    Python floats become float32, ints int64, bools bool; a NumPy array keeps its dtype.

    Raises:
        ShapeError: a nested list is ragged.
        DTypeError: the dtype is not one of TinyTorch's.

    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    return Tensor.from_data(data, dtype, requires_grad)


@accepts_device
def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """A tensor of `data`, without copying if it is a tensor or an array of the right dtype.

    Raises:
        ShapeError, DTypeError: as `tensor`.
    """
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    if isinstance(data, np.ndarray) and dtype in (None, data.dtype):
        return from_numpy(data)
    return Tensor.from_data(data, dtype)


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


@accepts_device
def full(size: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor whose elements are all `value`; the dtype is the value's unless given.

    Raises:
        ShapeError: a size is negative.
        DTypeError: a gradient is asked of integers, or the dtype does not have the number.
        TypeError: the value is no number.

    >>> full((2,), 7), full((2,), 7.0)
    (tensor([7, 7]), tensor([7., 7.]))
    """
    is_own = isinstance(fill_value, (Tensor, np.generic))  # NumPy's count as Python's numbers
    value = fill_value.item() if is_own else fill_value
    if dtype is None and isinstance(fill_value, Tensor):
        dtype = fill_value.dtype
    kind = as_dtype(dtype if dtype is not None else type(value))
    value = number_of("full", value, kind)
    sizes = shape_arguments((size,))
    return apply(ops.full, shape=sizes, value=value, dtype=kind).requires_grad_(requires_grad)


@accepts_device
def zeros(*shape: Any, size: Any = None, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros: `zeros(2, 3)` or `zeros((2, 3))`."""
    return _filled(shape, size, 0, dtype, requires_grad)


@accepts_device
def ones(*shape: Any, size: Any = None, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ones: `ones(2, 3)` or `ones((2, 3))`."""
    return _filled(shape, size, 1, dtype, requires_grad)


@accepts_device
def empty(*shape: Any, size: Any = None, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor whose elements are to be written: they are 0, so that forgetting to is seen."""
    return _filled(shape, size, 0, dtype, requires_grad)


def _filled(
    shape: tuple[Any, ...], size: Any, value: float, dtype: Any, requires_grad: bool
) -> Tensor:
    sizes = named_or_not(shape, size)
    kind = DEFAULT_FLOAT if dtype is None else dtype
    return full(sizes, value, dtype=kind, requires_grad=requires_grad)


def _like(x: Tensor, value: Any, dtype: Any, requires_grad: bool) -> Tensor:
    kind = dtype if dtype is not None else x.dtype
    return full(x.shape, value, dtype=kind, requires_grad=requires_grad)


@accepts_device
def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False
) -> Tensor:
    """`full` of the shape and dtype of `input`."""
    return _like(input, fill_value, dtype, requires_grad)


@accepts_device
def zeros_like(input: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """`zeros` of the shape and dtype of `input`."""
    return _like(input, 0, dtype, requires_grad)


@accepts_device
def ones_like(input: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """`ones` of the shape and dtype of `input`."""
    return _like(input, 1, dtype, requires_grad)


@accepts_device
def empty_like(input: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """`empty` of the shape and dtype of `input`."""
    return _like(input, 0, dtype, requires_grad)


@accepts_device
def arange(
    start: float | None = None,
    stop: float | None = None,
    step: float = 1,
    *,
    end: float | None = None,
    dtype: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to but without stop (PyTorch's `end`); `arange(n)` counts from 0.

    The dtype, unless given, is int64 if all three are ints, and float32 otherwise.

    Raises:
        ShapeError: step is 0 or goes the other direction, or an argument is not finite.
        TypeError: there is no end, or it is given twice.

    >>> arange(3), arange(0, 1, 0.25)
    (tensor([0, 1, 2]), tensor([0.  , 0.25, 0.5 , 0.75]))
    """
    if end is not None:
        if stop is not None:
            raise TypeError("arange: stop and end are the same argument")
        start, stop = 0 if start is None else start, end
    if stop is None:
        start, stop = 0, start
    if start is None or stop is None:
        raise TypeError("arange takes where to end: arange(end), or arange(start, end)")
    given = (start, stop, step)
    start, stop, step = (v.item() if isinstance(v, (Tensor, np.generic)) else v for v in given)
    whole = all(isinstance(v, int) for v in (start, stop, step))
    kind: DType = as_dtype(dtype) if dtype is not None else DEFAULT_INT if whole else DEFAULT_FLOAT
    if step and (stop - start) * step < 0:
        raise ShapeError(f"arange: from {start} to {stop} is the other direction than step {step}")
    if kind in STORAGE_ONLY:
        counted = arange(start, stop, step, dtype=DEFAULT_FLOAT)
        return counted.to(kind).requires_grad_(requires_grad)
    if not kind.is_floating_point and not whole:
        if not step or not all(map(math.isfinite, (start, stop, step))):
            raise ShapeError(f"arange: start {start}, stop {stop}, step {step} is not a range")
        # as in PyTorch: as many numbers as of floats, from whole start and step
        count = math.ceil((stop - start) / step)
        return (arange(count) * int(step) + int(start)).to(kind)
    out = apply(ops.arange, start=start, stop=stop, step=step, dtype=kind)
    return out.requires_grad_(requires_grad)


@accepts_device
def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: Any = DEFAULT_FLOAT,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` evenly spaced numbers from start to end, both included.

    Raises:
        ValueError: steps is negative.
        DTypeError: the dtype is bool.

    >>> linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    kind = as_dtype(dtype)
    if kind is bool_:
        raise DTypeError("linspace: evenly spaced numbers are not bool; use a number type")
    start, end = (v.item() if isinstance(v, Tensor) else v for v in (start, end))
    if kind is float32 and steps > BLOCK:
        step = (float(end) - float(start)) / (steps - 1)
        if step != 0 and math.isfinite(step):  # else NumPy divides in another order, or warns
            array = _float32_by_blocks(start, end, step, steps)
            return Tensor.from_numpy(array).requires_grad_(requires_grad)
    return Tensor(np.linspace(start, end, steps), dtype=kind).requires_grad_(requires_grad)


def _float32_by_blocks(start: float, end: float, step: float, steps: int) -> Array:
    """What np.linspace gives, in float32: its float64 is rounded while it is in a cache."""
    counted = np.arange(BLOCK, dtype=np.float64)
    array, exact = np.empty(steps, np.float32), np.empty_like(counted)
    for first in builtins.range(0, steps, BLOCK):
        part = array[first : first + BLOCK]
        part[:] = np.add(np.multiply(counted, step, exact), start, exact)[: len(part)]
        counted += BLOCK
    array[-1] = end
    return array


@accepts_device
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = DEFAULT_FLOAT,
    requires_grad: bool = False,
) -> Tensor:
    """base to the power of `steps` evenly spaced numbers from start to end, both included."""
    powers = base ** np.linspace(start, end, steps)
    return Tensor(powers, dtype=dtype).requires_grad_(requires_grad)


@accepts_device
def range(
    start: float, end: float | None = None, step: float = 1, *, dtype: Any = DEFAULT_FLOAT
) -> Tensor:
    """start, start + step, ... up to and with end, which `arange` leaves out.

    Raises:
        ShapeError: step is 0 or goes the other direction.
    """
    if end is None:
        start, end = 0, start
    if not step or (end - start) * step < 0:
        raise ShapeError(f"range: from {start} to {end} is the other direction than step {step}")
    count = int((end - start) / step) + 1
    return arange(start, start + count * step - step / 2, step, dtype=dtype)


@accepts_device
def eye(
    n: int, m: int | None = None, *, dtype: Any = DEFAULT_FLOAT, requires_grad: bool = False
) -> Tensor:
    """The identity matrix (n, m), m = n unless given: 1 on the diagonal, 0 elsewhere.

    >>> eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    kind = as_dtype(DEFAULT_FLOAT if dtype is None else dtype)
    stored = np.float32 if kind is bfloat16 else kind.dtype
    array: Array = np.eye(n, m, dtype=stored)
    if kind is bfloat16:
        return Tensor(array, dtype=kind).requires_grad_(requires_grad)
    return Tensor.from_numpy(array).requires_grad_(requires_grad)


# -- of the dtype of a tensor that there is --------------------------------------------------------


def _new_full(
    x: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, **options: Any
) -> Tensor:
    """`full` of x's dtype."""
    return full(size, fill_value, dtype=x.dtype if dtype is None else dtype, **options)


def _new(value: float, like: str) -> Any:
    def new(x: Tensor, *shape: Any, dtype: Any = None, size: Any = None, **options: Any) -> Tensor:
        sizes = named_or_not(shape, size)
        return _new_full(x, sizes, value, dtype=dtype, **options)

    new.__name__ = new.__qualname__ = f"new_{like}"
    new.__doc__ = f"`{like}` of x's dtype."
    return new


def _new_tensor(x: Tensor, data: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """`tensor` of x's dtype."""
    return tensor(data, dtype=x.dtype if dtype is None else dtype, **options)


_METHODS = {
    "new_full": _new_full,
    "new_tensor": _new_tensor,
    "new_zeros": _new(0, "zeros"),
    "new_ones": _new(1, "ones"),
    "new_empty": _new(0, "empty"),
}
replay_all(_METHODS, "new_full new_zeros new_ones new_empty", "tinytorch")
METHODS.update(_METHODS)
replay_all(
    globals(),
    "full zeros ones empty full_like zeros_like ones_like empty_like eye arange linspace range",
    __name__,
)
for _name, _method in _METHODS.items():
    setattr(Tensor, _name, _method)
