"""`save` and `load`."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tinytorch.errors import DataError
from tinytorch.files import atomic_write
from tinytorch.serialization import safetensors, sharing, torch_zip
from tinytorch.serialization.tree import flatten, unflatten
from tinytorch.tensor import Tensor

FORMAT = "2"  # in the header, under "tinytorch.checkpoint"; "1" had no tuples
_KEYS = {"tinytorch.checkpoint", "tree", "sha256"}
File = str | os.PathLike[str] | BinaryIO


def save(obj: Any, f: File) -> None:
    """Write a nest of data to a file. Until it is all on disk, `f` is what it was before.

    The file is in the safetensors format: other programs find the tensors by dotted names, say
    "model.0.weight". The rest is JSON in its header. Tensors of one dtype that share memory do so
    again when they are loaded, and one that is there twice is one.

    Args:
        obj: dicts, lists, tuples, numbers, strings, None, tensors and NumPy arrays, nested.
        f: a path, whose folders are made, or a binary stream.

    Raises:
        TypeError: there is something else in it; the message says where, and what to save.

    >>> import io, tinytorch
    >>> file = io.BytesIO()
    >>> save({"epoch": 3, "weights": [tinytorch.tensor([1.0, 2.0])]}, file)
    >>> _ = file.seek(0)
    >>> load(file)
    {'epoch': 3, 'weights': [tensor([1., 2.])]}
    """
    tree, tensors = flatten(obj)
    header = {"tinytorch.checkpoint": FORMAT, "tree": json.dumps(tree)}
    if found := sharing.places(tensors):
        header["shared"] = json.dumps(found)
    header["sha256"] = _digest(header, tensors)
    data = safetensors.dump(tensors, header)
    if isinstance(f, (str, os.PathLike)):
        with atomic_write(Path(f)) as stream:
            stream.write(data)
    elif isinstance(f, io.RawIOBase):  # whose `write` may take a part, and says how much
        buffered = io.BufferedWriter(f)
        buffered.write(data)
        buffered.detach()
    else:
        f.write(data)


def load(
    f: File,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
) -> Any:
    """Read and verify what `save` wrote, a safetensors file, or one that `torch.save` wrote.

    No code in a file is ever run, whatever `weights_only` says.

    Args:
        f: a path, or a binary stream.
        map_location, pickle_module, weights_only, mmap: PyTorch's; taken, without effect.

    Returns:
        The nest; of a safetensors file by another program, a dict of its tensors.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is truncated, was changed, is no such file, or holds objects.
    """
    name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else "the file"
    data = Path(f).read_bytes() if isinstance(f, (str, os.PathLike)) else f.read()
    tree, header = read(data, name)
    # one damaged key does not make a checkpoint pass for a file of another program
    if header is not None and len(_KEYS & header.keys()) >= 2:
        return verified(tree, header, name)
    return tree


def read(data: bytes, name: str) -> tuple[Any, Mapping[str, str] | None]:
    """The tensors and the header of a safetensors file, or the nest in one of PyTorch's and None.

    Raises:
        DataError: it is neither, or damaged.
    """
    try:
        if torch_zip.is_zip(data):
            return torch_zip.read(io.BytesIO(data)), None
        if data[:1] == b"\x80" and data[2:3] in (b"\x8a", b"}", b"c"):
            raise DataError(
                "is a bare pickle, as torch.save wrote before 1.6; load it with PyTorch and save "
                "it again"
            )
        return safetensors.parse(data)
    except DataError as error:
        raise DataError(f"{name} {error}; use another file") from error


def verified(tensors: dict[str, Tensor], header: Mapping[str, str], name: str) -> Any:
    """The nest of a file that `save` wrote.

    Raises:
        DataError: it was changed since.
    """
    if header.get("sha256") != _digest(header, tensors):
        raise DataError(
            f"{name} was changed since it was written: its sha256 differs; use another checkpoint"
        )
    sharing.share(tensors, json.loads(header.get("shared", "{}")))
    return unflatten(json.loads(header["tree"]), tensors)


def _digest(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256((header.get("tree", "") + header.get("shared", "")).encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype.name} {t.shape}".encode())
        digest.update(safetensors.bytes_of(t))
    return digest.hexdigest()
