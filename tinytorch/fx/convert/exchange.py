"""Tensors between PyTorch and TinyTorch: on the CPU they share memory."""

from __future__ import annotations

from typing import Any

import torch

from tinytorch.dispatch import wrap
from tinytorch.dtypes import DTYPES, DType, TensorMeta, bfloat16, tensor_meta
from tinytorch.errors import DTypeError
from tinytorch.tensor import Tensor

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}
FROM_TORCH: dict[torch.dtype, DType] = {TORCH_DTYPES[name]: ours for name, ours in DTYPES.items()}


def dtype_from_torch(dtype: torch.dtype) -> DType:
    """PyTorch's dtype as ours.

    Raises:
        DTypeError: TinyTorch has no such type.

    >>> dtype_from_torch(torch.float32)
    tinytorch.float32
    """
    if dtype not in FROM_TORCH:
        raise DTypeError(f"{dtype} is not a TinyTorch dtype; there are {', '.join(DTYPES)}")
    return FROM_TORCH[dtype]


def meta_from_torch(tensor: torch.Tensor) -> TensorMeta:
    """Shape and dtype, as of a fake tensor too.

    Raises:
        DTypeError: TinyTorch has no such dtype.
    """
    return tensor_meta(tuple(int(n) for n in tensor.shape), dtype_from_torch(tensor.dtype))


def tensor_from_torch(tensor: torch.Tensor) -> Tensor:
    """The same memory as a TinyTorch tensor, which knows nothing of PyTorch's gradients.

    Raises:
        DTypeError: TinyTorch has no such dtype.
        TypeError: the tensor is not on the CPU.
    """
    dtype, array = dtype_from_torch(tensor.dtype), array_from_torch(tensor)
    return wrap(array, tensor_meta(array.shape, dtype))


def array_from_torch(tensor: torch.Tensor) -> Any:
    """The same memory as a NumPy array; NumPy has no bfloat16, it sees the bits."""
    given = tensor.detach()
    return (given.view(torch.uint16) if given.dtype is torch.bfloat16 else given).numpy()


def tensor_to_torch(tensor: Tensor) -> torch.Tensor:
    """The same memory as a PyTorch tensor; a copy where PyTorch cannot describe it."""
    return array_to_torch(tensor._data, tensor.dtype is bfloat16)


def array_to_torch(array: Any, is_bfloat16: bool = False) -> torch.Tensor:
    """The PyTorch tensor of a NumPy array, as `tensor_to_torch` makes it."""
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    values = torch.from_numpy(array)
    return values.view(torch.bfloat16) if is_bfloat16 else values
