"""A nest of dicts, lists and tuples as JSON, with the tensors in it beside it.

{"$tensor": name, "requires_grad": true}    a tensor (the second entry only where it is so)
{"$tensor": name, "parameter": true}        a Parameter, with or without the entry above
{"$array": name}                            a NumPy array
{"$tuple": [...]}                           a tuple
{"$dict": [[key, value], ...]}              a dict whose keys are not all strings
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.dtypes import DTYPES
from tinytorch.errors import DataError
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor

_TENSOR, _ARRAY, _TUPLE, _DICT = "$tensor", "$array", "$tuple", "$dict"
#: What to save in place of an object, by the name of one of its classes.
_INSTEAD = {
    "Module": "save its state_dict(), and load with model.load_state_dict(load(path))",
    "Optimizer": "save its state_dict()",
    "LRScheduler": "save its state_dict()",
    "Namespace": "save vars(args)",
    "DType": "save str(dtype)",
    "set": "save it as a list",
    "Generator": "save its get_state()",
}


def flatten(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """The part of a tree that JSON can hold, and its tensors by dotted names.

    Raises:
        TypeError: there is something else in the tree; the message says where and what to write.
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(tree, "", tensors), tensors


def _flatten(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    dot = f"{path}." if path else ""
    if isinstance(tree, Tensor):
        entry: dict[str, Any] = {_TENSOR: _store(tree, path, tensors)}
        if tree.requires_grad:
            entry["requires_grad"] = True
        return {**entry, "parameter": True} if isinstance(tree, Parameter) else entry
    if isinstance(tree, np.ndarray) and tree.dtype.name in DTYPES:
        return {_ARRAY: _store(from_numpy(tree), path, tensors)}
    if isinstance(tree, Mapping):
        if all(isinstance(key, str) and key[:1] != "$" for key in tree):
            return {str(key): _flatten(v, f"{dot}{key}", tensors) for key, v in tree.items()}
        return {
            _DICT: [
                [_flatten(key, f"{dot}key", tensors), _flatten(v, f"{dot}{key}", tensors)]
                for key, v in tree.items()
            ]
        }
    if isinstance(tree, (list, tuple)):
        items = [_flatten(v, f"{dot}{i}", tensors) for i, v in enumerate(tree)]
        return {_TUPLE: items} if isinstance(tree, tuple) else items
    if isinstance(tree, np.generic) and tree.dtype.kind in "biuf":
        return tree.item()
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    what = type(tree).__name__ + (f" of {tree.dtype}" if isinstance(tree, np.ndarray) else "")
    kinds = [cls.__name__ for cls in type(tree).__mro__]
    instead = next((_INSTEAD[kind] for kind in kinds if kind in _INSTEAD), None)
    raise TypeError(
        f"a checkpoint cannot hold a {what} ({path or 'the whole of it'}): it has "
        f"dicts, lists, tuples, numbers, strings, None and tensors"
        + (f"; {instead}" if instead else "")
    )


def _store(t: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    """Keep a tensor under its path, or, if that is taken, under one like it."""
    name, number = path or "tensor", 1
    while name in tensors or name == "__metadata__":
        number += 1
        name = f"{path}#{number}"
    tensors[name] = t
    return name


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The tree that `flatten` took apart.

    Raises:
        DataError: it is none.
    """
    return _unflatten(tree, tensors, {})


def _unflatten(tree: Any, tensors: Mapping[str, Tensor], made: dict[int, Parameter]) -> Any:
    """`unflatten`; `made` has the parameter for the id of a tensor, which may be there twice."""
    if isinstance(tree, list):
        return [_unflatten(value, tensors, made) for value in tree]
    if not isinstance(tree, dict):
        return tree
    try:
        if _TENSOR in tree:
            tensor = tensors[tree[_TENSOR]]
            if tree.get("parameter"):
                tensor = made.setdefault(id(tensor), Parameter(tensor, False))
            return tensor.requires_grad_(tree.get("requires_grad", False))
        if _ARRAY in tree:
            return tensors[tree[_ARRAY]].numpy()
        if _TUPLE in tree:
            return tuple(_unflatten(value, tensors, made) for value in tree[_TUPLE])
        if _DICT in tree:
            return {
                _unflatten(k, tensors, made): _unflatten(v, tensors, made) for k, v in tree[_DICT]
            }
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"has a damaged header ({error!r})") from error
    return {key: _unflatten(value, tensors, made) for key, value in tree.items()}
