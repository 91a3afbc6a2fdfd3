"""The onnx package, imported when it is first needed, and its number types in our terms."""

from __future__ import annotations

from types import ModuleType

from tinytorch.dtypes import DTYPES, DType
from tinytorch.errors import missing_extra
from tinytorch.onnx.errors import UnsupportedOnnxError


def onnx_package() -> ModuleType:
    """The module `onnx`.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise missing_extra("onnx", "onnx", "reading and writing ONNX models") from None
    return onnx


def _codes() -> dict[str, int]:
    proto = onnx_package().TensorProto
    ours = [name for name in DTYPES if name != "bfloat16"]  # NumPy has none
    codes = {name: getattr(proto, name.upper()) for name in ours if hasattr(proto, name.upper())}
    return codes | {"float32": proto.FLOAT, "float64": proto.DOUBLE}


def code_of(dtype: DType) -> int:
    """ONNX's number for a dtype.

    >>> from tinytorch.dtypes import float32
    >>> code_of(float32)
    1
    """
    return _codes()[dtype.name]


def dtype_of(code: int, where: str) -> DType:
    """The dtype that ONNX means by a number.

    Args:
        where: what has this type, for the error.

    Raises:
        UnsupportedOnnxError: TinyTorch has no such type.
    """
    for name, known in _codes().items():
        if known == code:
            return DTYPES[name]
    name = onnx_package().TensorProto.DataType.Name(code).lower()
    raise UnsupportedOnnxError(f"{where} is of type {name}; TinyTorch has {', '.join(_codes())}")
