"""The safetensors format: a length, a header of JSON, and the tensors' bytes one after another.

Source: the format's description, https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinytorch.dispatch import wrap
from tinytorch.dtypes import DTYPES, tensor_meta
from tinytorch.errors import DataError
from tinytorch.tensor import Tensor

CODES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
OTHER_CODES = {"U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "C64"}  # of the format, and not ours
NAMES = {code: name for name, code in CODES.items()}


def bytes_of(t: Tensor) -> bytes:
    """The elements in row-major order, little-endian."""
    array = np.ascontiguousarray(t.detach()._concrete("save"))
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def tensor_of(data: Any, name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor of the dtype called `name`, from little-endian bytes; it has memory of its own.

    Raises:
        DataError: TinyTorch has no such dtype.
    """
    if name not in DTYPES:
        raise DataError(f"has a {name} tensor; TinyTorch has {', '.join(DTYPES)}")
    dtype = DTYPES[name].dtype
    array = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    return wrap(array, tensor_meta(shape, DTYPES[name]))


def dump(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The contents of a file."""
    parts = {name: bytes_of(t) for name, t in tensors.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    position = 0
    for name in sorted(parts, key=lambda n: -tensors[n].dtype.itemsize):  # so that all are aligned
        t, end = tensors[name], position + len(parts[name])
        header[name] = {
            "dtype": CODES[t.dtype.name],
            "shape": list(t.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = [parts[name] for name in header if name != "__metadata__"]
    return b"".join([len(text).to_bytes(8, "little"), text, *body])


def parse(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors by name, and the metadata.

    Raises:
        DataError: the data is not in this format, or damaged.
    """
    try:
        length = int.from_bytes(data[:8], "little")
        if len(data) < 8 or length > len(data) - 8:
            raise ValueError(f"a header of {length} bytes in a file of {len(data)}")
        header = json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        body = memoryview(data)[8 + length :]
        found = {name: _tensor(body, entry) for name, entry in header.items()}
        spans = sorted(tuple(entry["data_offsets"]) for entry in header.values())
        if [start for start, _ in spans] + [len(body)] != [0, *(end for _, end in spans)]:
            raise ValueError(f"tensors at {spans!s:.200} of {len(body)} bytes: gaps, or overlaps")
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"is truncated, or no safetensors file ({error})") from error
    return found, metadata


def _tensor(body: memoryview, entry: Mapping[str, Any]) -> Tensor:
    start, end = entry["data_offsets"]
    code, shape = entry["dtype"], tuple(entry["shape"])
    if code not in NAMES and code not in OTHER_CODES:
        raise ValueError(f"a tensor of type {code!r}")
    name = NAMES.get(code, code)
    size = math.prod(shape) * DTYPES[name].itemsize if name in DTYPES else 0
    if not 0 <= start <= end <= len(body) or min(shape, default=0) < 0:
        raise ValueError(f"a tensor from byte {start} to {end} of {len(body)}")
    if name in DTYPES and end - start != size:
        raise ValueError(f"{end - start} bytes for {name}{list(shape)}")
    return tensor_of(body[start:end], name, shape)
