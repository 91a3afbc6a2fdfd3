"""`device`: the CPU, which is all there is, under the names that PyTorch programs give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinytorch.absent import IGNORED, OLD_REDUCTION
from tinytorch.dtypes import as_dtype
from tinytorch.errors import TinyTorchError
from tinytorch.tensor import Tensor


class DeviceError(TinyTorchError, RuntimeError):
    """A device is asked for that is not the CPU."""


class device:
    """The device of a tensor: on the CPU. `device("cpu")`, `device("cpu", 0)`,
    `device(type="cpu")`.

    Raises:
        DeviceError: it is any other device.

    >>> device("cpu"), str(device("cpu:0")), device("cpu") == device(type="cpu")
    (device(type='cpu'), 'cpu:0', True)
    """

    type: str
    index: int | None

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index
        if not isinstance(type, str):
            raise _no_device(f"cuda:{type}")
        kind, _, number = type.partition(":")
        if kind != "cpu" or (number and number != "0") or index not in (None, 0):
            raise _no_device(type)
        self.type = kind
        self.index = 0 if number else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and other.index == self.index

    def __hash__(self) -> int:
        return hash(("cpu", self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __reduce__(self) -> Any:
        return (device, (self.type, self.index))

    def __enter__(self) -> device:
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing was changed."""


CPU = device("cpu")
_KINDS = ("cpu", "cuda", "mps", "xpu", "xla", "hip", "meta", "hpu", "mtia", "vulkan")


def _no_device(name: Any) -> DeviceError:
    return DeviceError(
        f"there is no device {str(name)!r}: TinyTorch computes on the CPU. Write 'cpu', or "
        f"`device = 'cuda' if torch.cuda.is_available() else 'cpu'`, which is 'cpu' here"
    )


def check_device(value: Any) -> None:
    """Accept None and every spelling of the CPU.

    Raises:
        DeviceError: it is any other device.
    """
    if value is not None and value != "cpu":
        device(value)


def set_default_device(value: Any) -> None:
    """Accept the CPU, where everything is created anyway."""
    check_device(value)


def get_default_device() -> device:
    """The CPU."""
    return CPU


def check_ignored(keywords: Mapping[str, Any]) -> None:
    """Accept PyTorch's keywords that mean nothing on one device with row-major tensors.

    Raises:
        DeviceError: `device=` is not the CPU.
        NotImplementedError: `layout=` asks for a sparse tensor.
    """
    check_device(keywords.get("device"))
    if "sparse" in str(keywords.get("layout")):
        raise NotImplementedError(
            f"layout={keywords['layout']}: there are no sparse tensors; use a dense one"
        )


def translate(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of PyTorch's as TinyTorch's: what means nothing is checked and dropped.

    `size_average` and `reduce` become `reduction`, as `torch.nn._reduction` has it.

    >>> translate({"device": "cpu", "size_average": False})
    {'reduction': 'sum'}
    """
    check_ignored(keywords)
    out = {k: v for k, v in keywords.items() if k not in IGNORED | OLD_REDUCTION}
    averaged, reduced = keywords.get("size_average"), keywords.get("reduce")
    if averaged is not None or reduced is not None:
        none = reduced is False
        out["reduction"] = "none" if none else "sum" if averaged is False else "mean"
    return out


def conversion_target(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Any, bool]:
    """The arguments of PyTorch's `.to(...)` as (dtype or None, whether to copy).

    The forms are `to(dtype)`, `to(device, dtype)` and `to(other)`, each with `non_blocking` and
    `copy`, which follow by position or by name.
    """
    unknown = set(keywords) - {"dtype", "device", "other", "copy", "non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"to() got an unexpected keyword argument {min(unknown)!r}")
    dtype, copy = keywords.get("dtype"), bool(keywords.get("copy", False))
    check_ignored(keywords)
    if (other := keywords.get("other")) is not None:
        dtype = other.dtype
    flags: list[bool] = []
    for value in args:
        if isinstance(value, bool):
            flags.append(value)
        elif isinstance(value, Tensor):
            dtype = value.dtype
        elif value is None or isinstance(value, device):
            pass
        elif isinstance(value, int) or (isinstance(value, str) and _is_device_name(value)):
            check_device(value)
        else:
            dtype = as_dtype(value)
    return dtype if dtype is None else as_dtype(dtype), copy or flags[1:2] == [True]


def _is_device_name(name: str) -> bool:
    return name.partition(":")[0] in _KINDS
