"""`FloatTensor`, `LongTensor`, ...: a constructor and a type to ask for, one for each dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.compat.dtypes import PREFIXES
from tinytorch.dtypes import DTYPES, DType
from tinytorch.tensor import Tensor


class _TensorType(type):
    """`isinstance(x, FloatTensor)` asks for x's dtype."""

    dtype: DType

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype


def legacy_tensor(dtype: DType, args: tuple[Any, ...]) -> Tensor:
    """A tensor of `dtype` as PyTorch's oldest constructors make it.

    Integers are sizes, `legacy_tensor(float32, (2, 3))`, and the elements are then zeros where
    PyTorch leaves them uninitialized. Anything else is data.
    """
    if not args or (isinstance(args[0], int) and not isinstance(args[0], bool)):
        sizes = args or (0,)
        return Tensor(np.zeros(sizes, dtype.dtype))
    return (
        Tensor(args[0]).to(dtype) if isinstance(args[0], Tensor) else Tensor(args[0], dtype=dtype)
    )


def _make(name: str, dtype: DType) -> _TensorType:
    def new(cls: Any, *args: Any, device: Any = None) -> Tensor:
        return legacy_tensor(dtype, args)

    text = f"A tensor of {dtype.name}: `{name}(2, 3)` of that shape, `{name}([1, 2])` of this data."
    return _TensorType(name, (), {"__new__": new, "dtype": dtype, "__doc__": text})


TYPES = {
    f"{prefix}Tensor": _make(f"{prefix}Tensor", DTYPES[name])
    for name, prefix in PREFIXES.items()
    if name in DTYPES
}


def __getattr__(name: str) -> Any:
    if name in TYPES:
        return TYPES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
