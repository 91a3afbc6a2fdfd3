"""`Parameter`: a tensor that a module trains."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.dtypes import DEFAULT_FLOAT, Array
from tinytorch.tensor import Tensor


class Parameter(Tensor):
    """A tensor that a `Module` trains: assigned to an attribute, it is found by `parameters()`.

    Args:
        data: a tensor, whose memory it shares: a write into one is a write into the other; or a
            number, a nested list or a NumPy array, which are copied.
        requires_grad: False for a parameter that is kept but not trained.

    Raises:
        DTypeError: a gradient is asked of an integer tensor.

    >>> Parameter([1.0, 2.0])
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    __slots__ = ()

    def __init__(self, data: Any = (), requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor):
            data = Tensor(data, dtype=DEFAULT_FLOAT if type(data) is tuple and not data else None)
        super().__init__(())
        self._data, self.meta = data._data, data.meta
        if requires_grad:
            self.requires_grad_()

    @classmethod
    def from_numpy(cls, array: Array) -> Parameter:
        """A parameter that shares memory with the array; what may raise is as for tensors."""
        return cls(Tensor.from_numpy(array))

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __deepcopy__(self, memo: Any) -> Parameter:
        """A parameter of its own, without the gradient: a copied model begins with none."""
        copy = Tensor.__deepcopy__(self, memo)
        copy.grad = None
        return copy  # type: ignore[return-value]

    def __reduce__(self) -> Any:
        return (type(self), (np.array(self._concrete("pickle")), self.requires_grad))
