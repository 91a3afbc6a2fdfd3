"""Values taken apart by their exact types, without calling anything that a student wrote.

`type(x) is list` and the C methods of the builtin types cannot be overridden, `==`, `isinstance`
and `__class__` can. So what is read here is what is there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

ATOMS = (int, float, complex, bool, str, bytes, type(None), range, type(Ellipsis))
SAME_OBJECT = (type, FunctionType, BuiltinFunctionType, ModuleType)  # equal if identical
LONGEST = 300


@dataclass(frozen=True)
class Unknown:
    """Something that is no value: an object of a class that nobody here knows."""

    text: str


@dataclass(frozen=True)
class Same:
    """Something that is equal to itself only."""

    identity: int


@dataclass(frozen=True)
class Numbers:
    """The numbers in an array, a tensor, a nested list or a single number.

    Attributes:
        kind: of the dtype: "f", "i", "u" or "b".
        values: in row-major order.
        container: what they came in.
    """

    shape: tuple[int, ...]
    dtype: str
    kind: str
    values: list[Any]
    container: str

    @classmethod
    def of(cls, value: Any) -> Numbers | None:
        """The numbers in a value; None if it is something else."""
        array = array_of(value)
        container = "tensor" if array is not None else "array"
        if array is None and type(value) in (bool, int, float, list, tuple, *NUMPY_SCALARS):
            if type(value) in (list, tuple) and not _all_numbers(value):
                return None
            try:
                array, container = np.array(_with_arrays(value)), "number"
            except (ValueError, OverflowError):
                return None
        elif type(value) is np.ndarray:
            array = value
        if array is None or array.dtype.kind not in "fiub":
            return None
        values = np.ndarray.tolist(np.ndarray.reshape(array, -1))
        return cls(tuple(array.shape), str(array.dtype), array.dtype.kind, values, container)


def _numpy_scalars(base: type) -> tuple[type, ...]:
    below: list[type] = base.__subclasses__()
    return (base, *[t for each in below for t in _numpy_scalars(each)])


NUMPY_SCALARS = _numpy_scalars(np.generic)


def _all_numbers(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(_all_numbers(v) for v in value)
    is_array = type(value) is np.ndarray or array_of(value) is not None
    return is_array or type(value) in (bool, int, float, *NUMPY_SCALARS)


def _with_arrays(value: Any) -> Any:
    """Nested lists with the arrays of the tensors in them."""
    if type(value) in (list, tuple):
        return [_with_arrays(v) for v in value]
    array = array_of(value)
    return value if array is None else array


def array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """The array inside a tensor (of TinyTorch's class or one derived from it), read from its slot;
    None if it is no tensor."""
    module = sys.modules.get("tinytorch.tensor")
    if module is None or module.Tensor not in type.mro(type(value)):
        return None
    found = module.Tensor.__dict__["_data"].__get__(value)
    return found if type(found) is np.ndarray else None


def plain(value: Any) -> Any:
    """The value as exact builtin types, `Numbers`, `Same` or `Unknown`."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is np.float64:
        return np.float64.item(value)  # a float by its class, and what NumPy makes of floats
    if kind in (list, tuple, set, frozenset):
        parts = [plain(v) for v in value]
        if any(isinstance(p, Unknown) for p in parts):
            return next(p for p in parts if isinstance(p, Unknown))
        return parts if kind is list else tuple(parts) if kind is tuple else kind(value)
    if kind is dict:
        return {k: plain(v) for k, v in value.items()}
    if kind is slice:
        return ("slice", plain(value.start), plain(value.stop), plain(value.step))
    if kind in NUMPY_SCALARS:
        array = np.asarray(value)
        return Numbers((), str(array.dtype), array.dtype.kind, [value.item()], "NumPy number")
    if kind is np.ndarray or array_of(value) is not None:
        found = Numbers.of(value)
        return Unknown(f"an array of {value.dtype}") if found is None else _contained(found, value)
    if kind in SAME_OBJECT or kind.__module__.partition(".")[0] == "tinytorch":
        return Same(id(value))
    return Unknown(f"an object of type {kind.__name__}")


def _contained(numbers: Numbers, value: Any) -> Numbers:
    container = "NumPy array" if type(value) is np.ndarray else "tensor"
    return Numbers(numbers.shape, numbers.dtype, numbers.kind, numbers.values, container)


def show(value: Any) -> str:
    """A value as text, short; of an unknown object only its type."""
    found = plain(value)
    if isinstance(found, Unknown):
        return found.text
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
