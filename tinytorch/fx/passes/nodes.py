"""What passes over ATen graphs have in common: reading arguments, and making nodes."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from tinytorch.graph.passes.algebra import INHERITED

aten = torch.ops.aten


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of an ATen node by the names of its schema, defaults included."""
    target: Any = node.target
    schema = target._schema.arguments
    given = {a.name: a.default_value for a in schema}
    given.update(zip((a.name for a in schema), node.args, strict=False))
    given.update(node.kwargs)
    return given


def value(node: Any) -> Tensor | None:
    """The fake tensor that stands for what a node computes; None if it is no tensor."""
    found = node.meta.get("val") if isinstance(node, Node) else None
    return found if isinstance(found, Tensor) else None


def is_call(node: Any, *targets: Any) -> bool:
    """Whether a node calls one of these functions."""
    return isinstance(node, Node) and node.op == "call_function" and node.target in targets


def only_user(node: Node) -> Node | None:
    """The node that uses this one, if there is exactly one."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def has_static_shape(node: Node) -> bool:
    """Whether all sizes and strides are numbers."""
    found = value(node)
    return found is not None and all(isinstance(n, int) for n in (*found.shape, *found.stride()))


def on_cpu(graph: torch.fx.Graph) -> bool:
    """Whether all values of a graph are on the CPU."""
    return all(
        v.device.type == "cpu"
        for node in graph.nodes
        for v in tree_leaves(node.meta.get("val"))
        if isinstance(v, Tensor)
    )


def insert(
    graph: torch.fx.Graph, target: Any, args: tuple[Any, ...], like: Node, **kwargs: Any
) -> Node:
    """A new node at the place of insertion, whose value looks as that of `like` does."""
    node = graph.call_function(target, args, kwargs)
    kept = ("val", *INHERITED)
    node.meta.update({k: v for k, v in like.meta.items() if k in kept})
    return node


def replace(graph: torch.fx.Graph, nodes: list[Node], new: Node) -> None:
    """Replace a chain of nodes, of which only the last is used outside, by a new node."""
    nodes[-1].replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    for node in reversed(nodes):
        graph.erase_node(node)
