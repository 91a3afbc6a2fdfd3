"""Checkpoints of a training run: the nest of its state, as one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinytorch.errors import DataError
from tinytorch.serialization.files import FORMAT, read, save, verified
from tinytorch.tensor import Tensor


def save_checkpoint(path: str | Path, tree: Mapping[str, Any]) -> None:
    """`tinytorch.save`, with the path first.

    >>> import tempfile, tinytorch
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save_checkpoint(path, {"epoch": 3, "weights": [tinytorch.tensor([1.0, 2.0])]})
    >>> load_checkpoint(path)
    {'epoch': 3, 'weights': [tensor([1., 2.])]}
    """
    save(tree, path)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read and verify a nest that `save_checkpoint` wrote, and no other file.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is truncated, was changed, or is no checkpoint.
    """
    tensors, header = read(Path(path).read_bytes(), str(path))
    if header is None or header.get("tinytorch.checkpoint") not in ("1", FORMAT):
        raise DataError(
            f"{path} is a file of tensors, but no checkpoint of a TinyTorch trainer (its header "
            f"has {', '.join(sorted(header or ())) or 'no entries'})"
        )
    tree: dict[str, Any] = verified(tensors, header, str(path))
    return tree


def copy_tree(tree: Any) -> Any:
    """The same tree with copies of the tensors, that later steps do not change.

    Mappings become dicts, lists and tuples become lists, a Tensor a detached clone; anything else
    is given as it is.

    >>> import tinytorch
    >>> p = tinytorch.ones(2)
    >>> kept = copy_tree({"p": (p, 3)})
    >>> _ = p.mul_(5)
    >>> kept
    {'p': [tensor([1., 1.]), 3]}
    """
    if isinstance(tree, Mapping):
        return {key: copy_tree(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copy_tree(value) for value in tree]
    return tree.detach().clone() if isinstance(tree, Tensor) else tree
