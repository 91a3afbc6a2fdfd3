"""Values as JSON, to and from a process that is not trusted.

A value is a list: a tag, then what the tag needs. Only plain data is rebuilt, and exactly: 1, 1.0
and True stay apart, an array keeps its dtype. What is not plain data becomes `Opaque`, which
equals nothing that a student could make.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

DEEPEST = 30
MOST_ITEMS = 100_000
MOST_BYTES = 16 << 20
TEXT = 200
PLAIN_KINDS = "?bhilqBHILQefdFDS"  # characters of dtypes without objects or pointers in them


class ValueFormatError(ValueError):
    """What came from the other process is no value of this format."""


@dataclass(frozen=True)
class Opaque:
    """Something that is not plain data: the name of its class, and how it shows itself."""

    type_name: str
    text: str

    def __repr__(self) -> str:
        return f"<{self.type_name}>: {self.text}"


@dataclass(frozen=True)
class ClassName:
    """A class, by name."""

    name: str

    def __repr__(self) -> str:
        return f"<class {self.name!r}>"


def encode(value: Any, depth: int = DEEPEST) -> list[Any]:
    """A value as JSON can hold it.

    >>> encode((1, 2.5))
    ['tuple', [['int', '1'], ['float', '0x1.4000000000000p+1']]]
    """
    kind = type(value)
    if value is None:
        return ["none"]
    if kind is bool:
        return ["bool", value]
    if kind is int:
        return ["int", hex(value) if abs(value) >= 1 << 64 else str(value)]
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind is str and len(value) <= MOST_BYTES:
        return ["str", value]
    if kind is bytes and len(value) <= MOST_BYTES:
        return ["bytes", base64.b64encode(value).decode()]
    if kind in (tuple, list, set, frozenset, dict) and depth and len(value) <= MOST_ITEMS:
        items = value.items() if kind is dict else value
        return [kind.__name__, [encode(item, depth - 1) for item in items]]
    if isinstance(value, type):
        return ["class", f"{value.__module__}.{value.__qualname__}"]
    return _encode_array(value) or ["opaque", _type_name(kind), _shown(value)]


def _encode_array(value: Any) -> list[Any] | None:
    """Arrays, scalars and dtypes of NumPy, tensors and theirs; None for anything else."""
    import numpy as np

    kind = type(value)
    if isinstance(value, np.dtype):
        return ["dtype", value.str]
    if kind is np.ndarray or (isinstance(value, np.generic) and kind.__module__ == "numpy"):
        if value.dtype.char not in PLAIN_KINDS or value.nbytes > MOST_BYTES:
            return None
        data = base64.b64encode(value.tobytes()).decode()
        if kind is np.ndarray:
            return ["array", value.dtype.str, list(value.shape), data]
        return ["scalar", value.dtype.str, data]
    from tinytorch.dtypes import DType
    from tinytorch.tensor import Tensor

    if kind is DType:
        return ["tinytorch dtype", value.name]
    if isinstance(value, Tensor):
        inner = _encode_array(np.array(value.detach().numpy()))
        return inner and ["tensor", *inner[1:]]
    return None


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: Any) -> str:
    try:
        return repr(value)[:TEXT]
    except BaseException as error:
        return f"its repr raises {type(error).__name__}"


def decode(data: Any, depth: int = DEEPEST) -> Any:
    """The value that `encode` was given, or something made of Opaque in its place.

    Raises:
        ValueFormatError: it is not of this format; nothing that it says is run or looked up.
    """
    try:
        return _decode(data, depth)
    except ValueFormatError:
        raise
    except Exception as error:  # whatever constructors find wrong with the parts
        raise ValueFormatError(f"not a value: {error}") from None


def _decode(data: Any, depth: int) -> Any:
    if not isinstance(data, list) or not data or not isinstance(data[0], str) or depth < 0:
        raise ValueFormatError("not a value")
    tag, *rest = data
    if tag in SEQUENCES:
        (items,) = rest
        return SEQUENCES[tag](_decode(item, depth - 1) for item in items)
    if tag == "dict":
        pairs = [_decode(item, depth - 1) for item in rest[0]]
        return {key: value for key, value in pairs}
    return SCALARS[tag](*rest)


def _array(dtype: str, shape: list[int], data: str) -> Any:
    import numpy as np

    kind = np.dtype(dtype)
    if kind.char not in PLAIN_KINDS or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueFormatError(f"not an array: {dtype!r:.50}, {shape!r:.50}")
    raw = base64.b64decode(data)
    if len(raw) != kind.itemsize * math.prod(shape):
        raise ValueFormatError(f"{len(raw)} bytes do not fill an array of shape {shape!r:.50}")
    return np.frombuffer(raw, kind).reshape(shape).copy()


def _scalar(dtype: str, data: str) -> Any:
    return _array(dtype, [], data)[()]


def _tensor(dtype: str, shape: list[int], data: str) -> Any:
    import tinytorch

    return tinytorch.from_numpy(_array(dtype, shape, data))


def _dtype(name: str) -> Any:
    import numpy as np

    return np.dtype(name)


def _tinytorch_dtype(name: str) -> Any:
    from tinytorch.dtypes import DTYPES

    return DTYPES[name]


def _typed(kind: type) -> Any:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueFormatError(f"{value!r:.50} is no {kind.__name__}")
        return value

    return check


SEQUENCES: dict[str, Any] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
SCALARS: dict[str, Any] = {
    "none": lambda: None,
    "bool": _typed(bool),
    "int": lambda text: int(text, 0),
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "str": _typed(str),
    "bytes": base64.b64decode,
    "class": lambda name: ClassName(str(name)),
    "opaque": lambda name, text: Opaque(str(name)[:TEXT], str(text)[:TEXT]),
    "array": _array,
    "scalar": _scalar,
    "tensor": _tensor,
    "dtype": _dtype,
    "tinytorch dtype": _tinytorch_dtype,
}
