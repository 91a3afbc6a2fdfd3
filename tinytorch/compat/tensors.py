"""Methods and properties of tensors that PyTorch programs use and one device makes trivial."""

from __future__ import annotations

from typing import Any

from tinytorch.compat.devices import CPU, DeviceError, check_ignored, device
from tinytorch.compat.dtypes import dtype_of_type, type_name
from tinytorch.errors import AutogradError
from tinytorch.tensor import Tensor

_NO_GPU = "there is no GPU: leave .{0}() out, or guard it by `if torch.cuda.is_available():`"


class TensorNames:
    """PyTorch's attributes of tensors that `Tensor` does not define; `self` is a tensor, not one of
    these."""

    is_cuda = is_sparse = is_quantized = is_meta = is_mps = is_xpu = False
    is_nested = is_mkldnn = False

    @property
    def device(self: Any) -> device:
        """The CPU."""
        return CPU

    def get_device(self: Any) -> int:
        """-1: the CPU has no number."""
        return -1

    def cpu(self: Any, memory_format: Any = None) -> Any:
        """The tensor itself: it is on the CPU."""
        return self

    def pin_memory(self: Any, device: Any = None) -> Any:
        """The tensor itself: memory is pinned for copies to a GPU, and there is none."""
        return self

    def is_pinned(self: Any, device: Any = None) -> bool:
        """False."""
        return False

    def cuda(self: Any, device: Any = None, **options: Any) -> Any:
        """Refuse."""
        raise DeviceError(_NO_GPU.format("cuda"))

    def mps(self: Any) -> Any:
        """Refuse."""
        raise DeviceError(_NO_GPU.format("mps"))

    def type(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The tensor in another dtype, which may be "torch.FloatTensor"; without one, the name of
        its own.

        >>> Tensor([1.5]).type("torch.LongTensor"), Tensor([1.5]).type()
        (tensor([1]), 'torch.FloatTensor')
        """
        return type_name(self.dtype) if dtype is None else self.to(dtype_of_type(dtype))

    def type_as(self: Any, other: Tensor) -> Any:
        """The tensor in the dtype of another one."""
        return self.to(other.dtype)

    @property
    def layout(self: Any) -> Layout:
        """`strided`: there are no sparse tensors."""
        return strided

    def new(self: Any, *args: Any, device: Any = None) -> Any:
        """A tensor of this dtype: of sizes, or of data."""
        from tinytorch.compat.constructors import legacy_tensor

        check_ignored({"device": device})
        return legacy_tensor(self.dtype, args)

    def __array_namespace__(self: Any, *, api_version: Any = None) -> Any:
        """The module of the array API standard."""
        from tinytorch.compat import array_api

        return array_api

    @property
    def grad_fn(self: Any) -> Any:
        """The record of the op that made this tensor, or None for a leaf."""
        return self.history

    def detach_(self: Any) -> Any:
        """The tensor itself, without its history.

        Raises:
            AutogradError: it is a leaf that asks for a gradient: use requires_grad_(False).
        """
        if self.history is None and self.requires_grad:
            raise AutogradError("detach_: this is a leaf; use requires_grad_(False)")
        self.history = None
        self.requires_grad = False
        return self

    is_cpu = True

    def ndimension(self: Any) -> int:
        """Number of dimensions."""
        return self.ndim  # type: ignore[no-any-return]

    def prelu(self: Any, weight: Tensor) -> Any:
        """`nn.functional.prelu`."""
        from tinytorch.nn import functional

        return functional.prelu(self, weight)

    def reshape_as(self: Any, other: Tensor) -> Any:
        """The tensor in the shape of another one."""
        return self.reshape(other.shape)

    def is_complex(self: Any) -> bool:
        """False."""
        return False

    def is_shared(self: Any) -> bool:
        """False: processes exchange tensors by copies."""
        return False

    def share_memory_(self: Any) -> Any:
        """Refuse, as a copy in another process would not see a write."""
        raise NotImplementedError(
            "share_memory_: tensors are not shared between processes; use threads, or "
            "multiprocessing.shared_memory and torch.from_numpy"
        )


class Layout:
    """The layout of a tensor's elements; the only one is `strided`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class MemoryFormat(Layout):
    """The order of dimensions in memory; a hint that changes no value and is not followed."""


strided = Layout("strided")
contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last")
channels_last_3d = MemoryFormat("channels_last_3d")


class _VariableType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor)


class Variable(metaclass=_VariableType):
    """The tensor that is given: since PyTorch 0.4 a tensor is its own Variable.

    Args:
        requires_grad: ask for its gradient.
        volatile: refused when true; it was replaced by `no_grad`.
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Any:
        if volatile:
            raise TypeError(
                "Variable(volatile=True) is gone: compute under `with torch.no_grad():`"
            )
        return data.detach().requires_grad_(requires_grad)


class ModuleNames:
    """PyTorch's methods of modules that `nn.Module` does not define; `self` is a module."""

    def _get_name(self: Any) -> str:
        """The name of its class, for a `__repr__`."""
        return type(self).__name__

    def cpu(self: Any) -> Any:
        """The module itself: it is on the CPU."""
        return self

    def cuda(self: Any, device: Any = None) -> Any:
        """Refuse."""
        raise DeviceError(_NO_GPU.format("cuda"))

    def type(self: Any, dst_type: Any) -> Any:
        """Parameters and buffers in another dtype."""
        return self.to(dtype_of_type(dst_type))

    def share_memory(self: Any) -> Any:
        """Refuse, as a copy in another process would not see a write."""
        return TensorNames.share_memory_(self)


def is_tensor(value: Any) -> bool:
    """Whether it is a Tensor."""
    return isinstance(value, Tensor)


def is_storage(value: Any) -> bool:
    """False: there are no storages."""
    return False


def is_complex(value: Tensor) -> bool:
    """False: there are no complex tensors."""
    return False


def is_floating_point(value: Tensor) -> bool:
    """Whether its dtype is a float."""
    return value.dtype.is_floating_point


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()
