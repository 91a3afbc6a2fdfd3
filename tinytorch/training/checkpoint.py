"""Checkpoints: nested state with tensors in it, as one safetensors file.

The tensors stand in the file under dotted names, say `model.0.weight`, so that any reader of the
format can have them. The rest is JSON in the header, in which `{"$tensor": name}` stands for a
tensor. A checksum over both is in the header too: safetensors alone notices a truncated file, but
not a changed one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.dtypes import Array
from tinytorch.errors import DataError, missing_extra
from tinytorch.files import atomic_write
from tinytorch.tensor import Tensor

FORMAT = "1"  # in the header, under "tinytorch.checkpoint"
_TENSOR = "$tensor"


def save_checkpoint(path: str | Path, tree: Mapping[str, Any]) -> None:
    """Write a tree to a file. Until it is all on disk, `path` is what it was before.

    Args:
        path: the file; folders are made.
        tree: dicts with string keys, lists, numbers, strings, None, and tensors.

    Raises:
        TypeError: there is something else in the tree; the message says where.
        MissingExtraError: safetensors is not installed.

    >>> import tempfile, tinytorch
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save_checkpoint(path, {"epoch": 3, "weights": [tinytorch.tensor([1.0, 2.0])]})
    >>> load_checkpoint(path)
    {'epoch': 3, 'weights': [tensor([1., 2.])]}
    """
    _require_safetensors()
    from safetensors.numpy import save

    arrays: dict[str, Array] = {}
    text = json.dumps(_without_tensors(tree, "", arrays))
    header = {
        "tinytorch.checkpoint": FORMAT,
        "tree": text,
        "sha256": _digest(text, arrays),
    }
    data = save(arrays, metadata=header)
    with atomic_write(Path(path)) as stream:
        stream.write(data)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read and verify a tree that `save_checkpoint` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is truncated, was changed, or is no checkpoint.
        MissingExtraError: safetensors is not installed.
    """
    _require_safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DataError(
            f"{path} is truncated, or no safetensors file ({error}); use another checkpoint"
        ) from error
    if header.get("tinytorch.checkpoint") != FORMAT:
        raise DataError(
            f"{path} is a safetensors file, but no checkpoint of a TinyTorch trainer (its header "
            f"has {', '.join(sorted(header)) or 'no entries'})"
        )
    if header.get("sha256") != _digest(header.get("tree", ""), arrays):
        raise DataError(
            f"{path} was changed since it was written: its sha256 differs; use another checkpoint"
        )
    tree: dict[str, Any] = _with_tensors(json.loads(header["tree"]), arrays)
    return tree


def copy_tree(tree: Any) -> Any:
    """The same tree with copies of the tensors."""
    if isinstance(tree, Mapping):
        return {key: copy_tree(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copy_tree(value) for value in tree]
    return tree.detach().clone() if isinstance(tree, Tensor) else tree


def _without_tensors(tree: Any, path: str, arrays: dict[str, Array]) -> Any:
    """What JSON can hold; the tensors go to `arrays`."""
    dot = f"{path}." if path else ""
    if isinstance(tree, Tensor):
        if path in arrays:
            raise ValueError(f"two tensors would have the name {path!r} in the file")
        # safetensors takes the bytes as they lie in memory
        arrays[path] = np.array(tree.detach().numpy(), order="C", copy=None)
        return {_TENSOR: path}
    if isinstance(tree, Mapping):
        for key in tree:
            if not isinstance(key, str) or key == _TENSOR:
                raise TypeError(f"a checkpoint cannot hold the key {key!r} (in {path or 'it'})")
        return {key: _without_tensors(v, dot + key, arrays) for key, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_without_tensors(v, f"{dot}{i}", arrays) for i, v in enumerate(tree)]
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"a checkpoint cannot hold a {type(tree).__name__} ({path})")


def _with_tensors(tree: Any, arrays: Mapping[str, Array]) -> Any:
    if isinstance(tree, dict):
        if _TENSOR in tree:
            return from_numpy(arrays[tree[_TENSOR]])
        return {key: _with_tensors(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with_tensors(value, arrays) for value in tree]
    return tree


def _digest(text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _require_safetensors() -> None:
    if find_spec("safetensors") is None:
        raise missing_extra("safetensors", "train", "a checkpoint")
