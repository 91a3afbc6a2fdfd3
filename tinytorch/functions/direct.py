"""Writing into a tensor by NumPy alone, where nobody would see the ops: no mode, no history that is
recorded, no backend with kernels of its user.

`inplace` asks here first. Each function says whether it did it; where it did not, the ops do, and
say what is wrong.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinytorch.backends.reference_elementwise import silence
from tinytorch.backends.reference_movement import fill_array
from tinytorch.dispatch import check_not_read_only, is_tensor
from tinytorch.dtypes import Array, DType, float32, float64, int64, is_beyond
from tinytorch.functions.subscripts import BASIC, steps_back
from tinytorch.history import write_clock
from tinytorch.state import STATE, current_backend, ops_are_unseen

Tensor = Any

_FLOATS = (float32, float64)
_NUMBERS = frozenset((float, int))  # exactly these: a bool is another dtype
_MANY = 4096  # numbers, which may be many rows
_BLOCK = 2**16  # numbers: products of so many are still in the cache when they are added


def is_unseen(x: Tensor, other: Tensor | None = None) -> bool:
    """Whether x may be written so, with what is in `other`.

    Raises:
        AutogradError: x is a read-only view.
    """
    state, array = STATE.get(), x._data
    if type(array) is not np.ndarray or not ops_are_unseen(state):
        return False
    if state.grad and (x._requires_grad or (other is not None and other._requires_grad)):
        return False
    if not array.flags.writeable:
        check_not_read_only(array)
    return True


def _has_number(dtype: DType, value: Any) -> bool:
    """Whether it is a number that a float dtype has."""
    return dtype in _FLOATS and type(value) in _NUMBERS and not is_beyond(value, dtype)


def arithmetic(x: Tensor, other: Any, ufunc: Any, alpha: Any) -> bool:
    """x = ufunc(x, alpha * other), for floats; and for int64, of whole numbers."""
    if x.meta.dtype is int64:
        numbers: Any = (int,)
        if ufunc is np.divide:
            return False
    elif x.meta.dtype in _FLOATS:
        numbers = _NUMBERS
    else:
        return False
    if type(alpha) not in numbers or (alpha != 1 and is_beyond(alpha, x.meta.dtype)):
        return False
    if type(other) in numbers:
        if alpha != 1 or not is_unseen(x):
            return False
        operand = other
    elif is_tensor(other) and other.meta is x.meta and is_unseen(x, other):
        operand = other._data
    else:
        return False
    try:
        if alpha == 1:
            silence.run(ufunc, x._data, operand, x._data)
        else:
            silence.run(_scaled, ufunc, x._data, operand, alpha)
    except OverflowError:  # a number is not within the dtype
        return False
    write_clock.write(x._data)
    return True


def _scaled(ufunc: Any, x: Array, other: Array, alpha: float) -> None:
    in_rows = x.flags.c_contiguous and other.flags.c_contiguous
    if x.size <= _BLOCK or not in_rows or np.may_share_memory(x, other):
        ufunc(x, other * alpha, x)
        return
    rows, others, part = x.reshape(-1), other.reshape(-1), np.empty(_BLOCK, x.dtype)
    for i in range(0, rows.size, _BLOCK):
        block, scaled = rows[i : i + _BLOCK], others[i : i + _BLOCK]
        ufunc(block, np.multiply(scaled, alpha, part[: block.size]), block)


def copy(x: Tensor, source: Any) -> bool:
    """The values of a tensor of x's shape and dtype."""
    if not is_tensor(source) or source.meta is not x.meta or not is_unseen(x, source):
        return False
    _write(x._data, ..., source._data)
    write_clock.write(x._data)
    return True


def _write(array: Array, index: Any, values: Any) -> None:
    """array[index] = values, of its dtype; many of just that shape by a kernel of the backend.

    Raises:
        IndexError: there is no such index.
        ValueError: the values do not broadcast to the shape there.
    """
    if type(values) is np.ndarray and values.size >= _MANY:
        part = array[index]
        if part.shape == values.shape:
            current_backend().replacement_of(np.copyto)(part, values)
            return
    array[index] = values


def unary(x: Tensor, ufunc: Any) -> bool:
    """x = ufunc(x), for floats and a ufunc of which every backend has the same bits."""
    if x.meta.dtype not in _FLOATS or not is_unseen(x):
        return False
    silence.run(ufunc, x._data, x._data)
    write_clock.write(x._data)
    return True


def clip(x: Tensor, low: Any, high: Any) -> bool:
    """x limited to [low, high], for floats and bounds that are numbers; None: no bound."""
    bounds = [bound for bound in (low, high) if bound is not None]
    # of two zeros NumPy's clip takes another than the ops, which ask for the larger
    dtype = x.meta.dtype
    if 0 in bounds or not bounds or not all([_has_number(dtype, bound) for bound in bounds]):
        return False
    if not is_unseen(x):
        return False
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    silence.run(x._data.clip, low, high, x._data)
    write_clock.write(x._data)
    return True


def fill(x: Tensor, value: Any) -> bool:
    """The same number everywhere, for floats."""
    if not _has_number(x.meta.dtype, value) or not is_unseen(x):
        return False
    fill_array(x._data, value)
    write_clock.write(x._data)
    return True


def set_view(x: Tensor, index: Any, value: Any) -> bool:
    """x[index] = value, for an index of ints, slices, None and Ellipsis."""
    entries = index if type(index) is tuple else (index,)
    if not BASIC.issuperset(map(type, entries)):
        return False
    if slice in map(type, entries) and any(map(steps_back, entries)):
        return False
    if type(value) in _NUMBERS:
        if not _has_number(x.meta.dtype, value) or not is_unseen(x):
            return False
        values = value
    elif is_tensor(value) and value.meta.dtype is x.meta.dtype and is_unseen(x, value):
        values = value._data
    else:
        return False
    try:
        _write(x._data, index, values)
    except (IndexError, ValueError):
        return False
    write_clock.write(x._data)
    return True
