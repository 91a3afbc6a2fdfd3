"""Nests of tuples, lists and dicts, taken apart into leaves and put together again."""

from __future__ import annotations

from typing import Any, NamedTuple


class TreeSpec(NamedTuple):
    """The form of a nest. Equal forms are equal, so it can be a key.

    Attributes:
        kind: the type of the container; None for a leaf.
        keys: of a dict.
        children: forms of what is inside.
    """

    kind: type | None
    keys: tuple[Any, ...]
    children: tuple[TreeSpec, ...]


LEAF = TreeSpec(None, (), ())


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the form. Whatever is no tuple, list or dict is a leaf.

    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, [3])})
    >>> leaves, tree_unflatten([x * 10 for x in leaves], spec)
    ([1, 2, 3], {'a': 10, 'b': (20, [30])})
    """
    if isinstance(tree, (tuple, list)):
        keys, inside = (), list(tree)
    elif isinstance(tree, dict):
        keys, inside = tuple(tree), list(tree.values())
    else:
        return [tree], LEAF
    leaves: list[Any] = []
    children = []
    for child in inside:
        found, spec = tree_flatten(child)
        leaves += found
        children.append(spec)
    return leaves, TreeSpec(type(tree), keys, tuple(children))


def tree_unflatten(leaves: list[Any], spec: TreeSpec) -> Any:
    """The nest of this form with these leaves."""
    rest = iter(leaves)

    def build(spec: TreeSpec) -> Any:
        if spec.kind is None:
            return next(rest)
        inside = [build(child) for child in spec.children]
        if issubclass(spec.kind, dict):
            return dict(zip(spec.keys, inside, strict=True))
        # a named tuple takes its fields one by one
        kind: Any = spec.kind
        return kind(*inside) if hasattr(kind, "_fields") else kind(inside)

    return build(spec)
