"""`Parameter`: a tensor that a module trains."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.tensor import Tensor


class Parameter(Tensor):
    """A tensor that a `Module` trains: assigned to an attribute, it is found by `parameters()`.

    Args:
        data: a number, a nested list, a NumPy array or a tensor; it is copied.
        requires_grad: False for a parameter that is kept but not trained.

    Raises:
        DTypeError: a gradient is asked of an integer tensor.

    >>> Parameter([1.0, 2.0])
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        super().__init__(data, requires_grad=requires_grad)

    @classmethod
    def from_numpy(cls, array: Array) -> Parameter:
        """A parameter that shares memory with the array; what may raise is as for tensors."""
        shared = Tensor.from_numpy(array)
        parameter = cls(np.empty(0, array.dtype))
        parameter._data, parameter.meta = shared._data, shared.meta
        return parameter

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __reduce__(self) -> Any:
        return (type(self), (np.array(self._concrete("pickle")), self.requires_grad))
