"""How modules below `tensor.py`, which cannot import it, make tensors and recognise them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from tinytorch.dtypes import TensorMeta

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Input = Any  # a Tensor or a Python scalar
SCALAR_TYPES = frozenset((float, int, bool))

tensor_class: type[Tensor]

_new: Any = object.__new__


def set_tensor_class(cls: type[Tensor]) -> None:
    """Set the class in which results are wrapped. `tensor.py` calls it once."""
    global tensor_class
    tensor_class = cls


def is_tensor(value: Any) -> TypeGuard[Tensor]:
    """Whether it is a Tensor, or of a subclass, such as `nn.Parameter`."""
    return isinstance(value, tensor_class)


def wrap(data: Any, meta: TensorMeta) -> Tensor:
    """A Tensor without history around `data`, which is not copied or checked against `meta`."""
    out = _new(tensor_class)
    out._data = data
    out.meta = meta
    out._requires_grad = False
    out.grad = None
    out.history = None
    return out  # type: ignore[no-any-return]
