"""Other dtypes, and copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.absent import accepts_device, conversion_target
from tinytorch.backends.reference_movement import cast
from tinytorch.dispatch import active_modes, apply, wrap
from tinytorch.dtypes import (
    DType,
    as_dtype,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    is_dtype,
    tensor_meta,
    uint8,
)
from tinytorch.functions.copies import copied
from tinytorch.functions.publish import publish
from tinytorch.replay.fusion import LARGEST
from tinytorch.state import STATE, ops_are_unseen

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def to(x: Tensor, *target: Any, **keywords: Any) -> Tensor:
    """The tensor in another dtype; x itself if it has that already. Floats become integers by
    truncation.

    Args:
        target: a `DType`, its name, a NumPy dtype or a Python number type; or PyTorch's other
            forms: a tensor of that dtype, a device, a device and a dtype.
        keywords: `dtype=`, `device=`, `copy=True`.

    Raises:
        DTypeError: it is not one of TinyTorch's.
        RuntimeError: it is a device other than the CPU.

    >>> from tinytorch import tensor
    >>> to(tensor([1.7, -1.7]), "int32")
    tensor([ 1, -1], dtype=int32)
    """
    if len(target) == 1 and not keywords and type(target[0]) is DType:  # the frequent case
        return _converted(x, target[0])
    if len(target) == 1 and not keywords and is_dtype(target[0]):
        dtype, copied = as_dtype(target[0]), False
    else:
        dtype, copied = conversion_target(target, keywords)
    if copied and (dtype is None or dtype is x.dtype):
        return clone(x)
    return x if dtype is None else _converted(x, dtype)


def converted(x: Tensor, dtype: Any) -> Tensor:
    """x in the dtype that a function was given as `dtype=`, if it was; no device, and no tensor."""
    return x if dtype is None else _converted(x, as_dtype(dtype))


def _converted(x: Tensor, dtype: DType) -> Tensor:
    meta = x.meta
    if dtype is meta.dtype:
        return x
    state = STATE.get()
    if (
        meta.nbytes <= LARGEST
        and float16 not in (dtype, meta.dtype)  # a backend may have a faster kernel
        and not (x._requires_grad and state.grad)
        and ops_are_unseen(state)
        and type(x._data) is np.ndarray
    ):
        return wrap(cast(x._data, dtype=dtype), tensor_meta(meta.shape, dtype))
    return apply(ops.cast, x, dtype=dtype)


@accepts_device
def to_float(x: Tensor) -> Tensor:
    """The tensor as float32."""
    return _converted(x, float32)


@accepts_device
def to_double(x: Tensor) -> Tensor:
    """The tensor as float64."""
    return _converted(x, float64)


@accepts_device
def to_half(x: Tensor) -> Tensor:
    """The tensor as float16, which can be stored and converted, not computed with."""
    return _converted(x, float16)


@accepts_device
def to_bfloat16(x: Tensor) -> Tensor:
    """The tensor as bfloat16, which can be stored and converted, not computed with."""
    return _converted(x, bfloat16)


@accepts_device
def to_byte(x: Tensor) -> Tensor:
    """The tensor as uint8."""
    return _converted(x, uint8)


@accepts_device
def to_char(x: Tensor) -> Tensor:
    """The tensor as int8."""
    return _converted(x, int8)


@accepts_device
def to_short(x: Tensor) -> Tensor:
    """The tensor as int16."""
    return _converted(x, int16)


@accepts_device
def to_int(x: Tensor) -> Tensor:
    """The tensor as int32."""
    return _converted(x, int32)


@accepts_device
def to_long(x: Tensor) -> Tensor:
    """The tensor as int64."""
    return _converted(x, int64)


@accepts_device
def to_bool(x: Tensor) -> Tensor:
    """The tensor as bool: true where it is not zero."""
    return _converted(x, bool_)


def detach(x: Tensor) -> Tensor:
    """The same values, sharing memory, without history: no gradient passes."""
    if ops_are_unseen(STATE.get()):
        return wrap(x._data.view(), x.meta)
    return apply(ops.detach, x)


@accepts_device
def clone(x: Tensor) -> Tensor:
    """A copy with memory of its own, in the same order; the gradient passes through."""
    return copied(x)


@accepts_device
def contiguous(x: Tensor) -> Tensor:
    """x itself, or a copy if its elements are not in memory in order."""
    data = x._data
    if isinstance(data, np.ndarray):
        return x if data.flags.c_contiguous else apply(ops.copy, x)
    for mode in active_modes():  # a tensor without values is a mode's
        found = mode.contiguous(x)
        if found is not None:
            return found
    return apply(ops.copy, x)


publish(
    globals(),
    methods="to to_float to_double to_half to_bfloat16 to_byte to_char to_short to_int to_long "
    "to_bool contiguous",
    hidden="converted "
    "to_float to_double to_half to_bfloat16 to_byte to_char to_short to_int to_long to_bool",
    aliases={
        "float": "to_float", "double": "to_double", "half": "to_half", "bfloat16": "to_bfloat16",
        "byte": "to_byte", "char": "to_char", "short": "to_short", "int": "to_int",
        "long": "to_long", "bool": "to_bool",
    },
)  # fmt: skip
