"""Parameters and buffers that have a dtype and no shape yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.dtypes import Shape, as_dtype, meta_of_array
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class UninitializedParameter(Parameter):
    """A parameter whose shape is not known yet; it becomes a `Parameter`, the same object.

    >>> weight = UninitializedParameter()
    >>> weight.materialize((2, 3))
    >>> type(weight).__name__, weight.shape
    ('Parameter', (2, 3))
    """

    __slots__ = ()

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        kind = parameter_dtype(device, dtype)
        super().__init__(np.empty(0, kind.dtype), requires_grad)

    def materialize(self, shape: Shape) -> None:
        """Turn into a parameter of zeros of this shape."""
        _materialize(self, shape)
        self.__class__ = Parameter  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "UninitializedParameter()"

    def __deepcopy__(self, memo: Any) -> UninitializedParameter:
        memo[id(self)] = copy = UninitializedParameter(self.requires_grad, dtype=self.dtype)
        return copy

    def __reduce__(self) -> Any:
        return (UninitializedParameter, (self.requires_grad, None, self.dtype))


class UninitializedBuffer(Tensor):
    """A buffer whose shape is not known yet; it becomes a `Tensor`, the same object."""

    __slots__ = ()

    def __init__(self, device: Any = None, dtype: Any = "float32") -> None:
        parameter_dtype(device, None)
        super().__init__(np.empty(0, as_dtype(dtype).dtype))

    def materialize(self, shape: Shape) -> None:
        """Turn into a tensor of zeros of this shape."""
        _materialize(self, shape)
        self.__class__ = Tensor  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "UninitializedBuffer()"

    def __deepcopy__(self, memo: Any) -> UninitializedBuffer:
        memo[id(self)] = copy = UninitializedBuffer(dtype=self.dtype)
        return copy

    def __reduce__(self) -> Any:
        return (UninitializedBuffer, (None, self.dtype))


def _materialize(tensor: Tensor, shape: Shape) -> None:
    array = np.zeros(tuple(shape), tensor.dtype.dtype)
    tensor._data, tensor.meta = array, meta_of_array(array)
