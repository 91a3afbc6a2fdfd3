"""From Python's numbers and lists to arrays: what a tensor is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.dispatch import is_tensor
from tinytorch.dtypes import (
    Array,
    DType,
    TensorMeta,
    as_dtype,
    bfloat16,
    bits_of_bfloat16,
    bool_,
    float32,
    int64,
    meta_of_array,
    promote,
    tensor_meta,
)
from tinytorch.errors import DTypeError, ShapeError

_OF_KIND = {"f": float32, "i": int64, "u": int64, "b": bool_}
_OF_TYPE = {float: float32, int: int64, bool: bool_}
_LISTS = frozenset((list, tuple))


def array_of(data: Any, dtype: DType | None) -> tuple[Array, TensorMeta]:
    """A new array with the values of anything that can be made a tensor, and its meta."""
    plain = _OF_TYPE.get(_only_type(data)) if dtype is None else None
    if plain is not None:
        try:
            array = np.array(data, plain.dtype)
            return array, tensor_meta(array.shape, plain)
        except (OverflowError, ValueError):  # what follows says better what is wrong
            pass
    if is_tensor(data):
        if bfloat16 in (data.dtype, dtype):
            data = data.detach().to(dtype or bfloat16).clone()
            return data._concrete("tensor"), data.meta
        data = data._concrete("tensor")
    original = data
    given = isinstance(data, (np.ndarray, np.generic))
    if isinstance(data, (list, tuple)):
        data = _without_tensors(data)
    try:
        array = np.array(data, copy=True)
    except ValueError as error:
        raise ShapeError(f"a tensor's rows must be equally long: {error}") from None
    if array.dtype.kind not in "fiub":
        raise DTypeError(f"a tensor holds numbers, not {array.dtype} ({data!r:.60})")
    if dtype is None and not given:
        dtype = _OF_KIND[array.dtype.kind]
        if _has_tensor(original):  # NumPy would give float64 for a float32 beside an int
            dtype = promote(*[TensorMeta((1,), d) for d in _dtypes_in(original)])
    if dtype is bfloat16:
        return bits_of_bfloat16(array), tensor_meta(array.shape, bfloat16)
    target = as_dtype(array.dtype if dtype is None else dtype).dtype
    with np.errstate(invalid="ignore"):  # of a number that does not fit
        converted = np.ascontiguousarray(array, dtype=target).reshape(array.shape)
    if not given and target.kind in "iu":
        whole = np.trunc(array) if array.dtype.kind == "f" else array
        lost = array[(converted != whole) & ~_is_wrapped(array, target)]
        if lost.size:
            raise OverflowError(f"{lost.flat[0]} does not fit into {target}")
    return converted, meta_of_array(converted)


def _only_type(data: Any) -> Any:
    """The type of a number, or of all numbers in nested lists; None where they have several."""
    if type(data) not in _LISTS:
        return type(data)
    types = set(map(type, data))
    if not types.isdisjoint(_LISTS):
        types = set(map(_only_type, data))
    return types.pop() if len(types) == 1 else None


def _is_wrapped(array: Array, target: np.dtype[Any]) -> Any:
    """Where whole numbers below 0 count from 256, as those of `dtypes.number_of` do."""
    return (array < 0) & (array > -256) & (array.dtype.kind != "f" and target.kind == "u")


def _has_tensor(data: Any) -> bool:
    """A tensor or an array is among these: their dtypes say more than Python's numbers do."""
    if isinstance(data, (list, tuple)):
        return any(map(_has_tensor, data))
    return is_tensor(data) or isinstance(data, (np.ndarray, np.generic))


def _dtypes_in(data: Any) -> set[DType]:
    """Those of tensors and NumPy values; Python's numbers have the default one of their kind."""
    if isinstance(data, (list, tuple)):
        return set().union(*map(_dtypes_in, data))
    own = is_tensor(data) or isinstance(data, (np.ndarray, np.generic))
    return {as_dtype(data.dtype if own else type(data))}


def _without_tensors(data: Any) -> Any:
    """Nested lists with the values of the tensors in them; a tensor of one element is a number."""
    if is_tensor(data):
        array = data._values("tensor")
        return array.reshape(()) if array.size == 1 else array
    if isinstance(data, (list, tuple)):
        return [_without_tensors(d) for d in data]
    return data
