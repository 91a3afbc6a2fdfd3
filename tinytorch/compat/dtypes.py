"""PyTorch's names of dtypes: "torch.float32", "torch.FloatTensor"."""

from __future__ import annotations

from typing import Any

from tinytorch.dtypes import DTYPES, DType, as_dtype
from tinytorch.errors import DTypeError

#: dtype -> the part of its tensor type's name before "Tensor".
PREFIXES = {
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
}
_DTYPE_OF = {prefix: name for name, prefix in PREFIXES.items()}


def type_name(dtype: DType) -> str:
    """ "torch.FloatTensor" for float32, and so on."""
    return f"torch.{PREFIXES[dtype.name]}Tensor"


def dtype_of_type(kind: Any) -> DType:
    """The dtype that `Tensor.type(kind)` means.

    Args:
        kind: a dtype, its name, "torch.FloatTensor", `torch.FloatTensor`, or a Python number type.

    Raises:
        DTypeError: it is none of these; a type of CUDA tensors says what to write.
    """
    own = getattr(kind, "dtype", None)  # of FloatTensor and of a NumPy dtype
    if isinstance(own, DType):
        return own
    if not isinstance(kind, str):
        return as_dtype(kind)
    name = kind.removeprefix("torch.")
    if name.startswith("cuda."):
        raise DTypeError(f"{kind}: there is no CUDA here; write {kind.replace('cuda.', '')!r}")
    if name == "Tensor":
        return as_dtype("float32")
    name = _DTYPE_OF.get(name.removesuffix("Tensor"), name)
    if name not in DTYPES:
        raise DTypeError(f"{kind!r} is no dtype of TinyTorch's, which are {', '.join(DTYPES)}")
    return DTYPES[name]
