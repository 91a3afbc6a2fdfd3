"""The optimizer's update in place: a functional step makes copies of all that it updates."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, insert, is_call
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import Semantics

IN_PLACE: dict[Any, Any] = {
    aten._fused_adam.default: aten._fused_adam_.default,
    aten._fused_adamw.default: aten._fused_adamw_.default,
    aten._fused_sgd.default: aten._fused_sgd_.default,
}


@dataclass
class Update:
    """A functional update of many tensors.

    Attributes:
        node: of the fused optimizer.
        results: each result that is used, and the tensor it would be if written in place.
    """

    node: Node
    results: list[tuple[Node, Node]]


@register_pass
class Reinplace(OptimizationPass):
    """Lets the fused optimizers write into the parameters and the state they are given.

    Running the graph then changes those inputs; its results are the same tensors. Only where all
    that is written is an input of the graph which nothing reads afterwards.
    """

    name = "reinplace"

    def analyze(self, graph: torch.fx.Graph) -> list[Update]:
        """The updates that can be done in place."""
        rank = {node: i for i, node in enumerate(graph.nodes)}
        found = []
        for node in graph.nodes:
            if is_call(node, *IN_PLACE):
                written = list(_written(node))
                is_free = all(self._may_be_written(n, node, rank) for n in written)
                if is_free and len(set(written)) == len(written):
                    found.append(Update(node, list(_results(node))))
        return found

    def transform(self, graph: torch.fx.Graph, found: list[Update]) -> bool:
        for update in found:
            node = update.node
            with graph.inserting_before(node):
                new = insert(graph, IN_PLACE[node.target], node.args, like=node, **node.kwargs)
            new.meta["val"] = None
            for result, tensor in update.results:
                result.replace_all_uses_with(tensor)
            for items in list(node.users):
                for item in list(items.users):
                    graph.erase_node(item)
                graph.erase_node(items)
            graph.erase_node(node)
        return bool(found)

    def _may_be_written(self, tensor: Node, update: Node, rank: dict[Node, int]) -> bool:
        if tensor.op != "placeholder":
            return False
        readers = readers_of(tensor, self.semantics)
        return all(rank[reader] <= rank[update] for reader in readers)


def readers_of(tensor: Node, semantics: Semantics) -> set[Node]:
    """The nodes that read a tensor, also through views of it."""
    readers: set[Node] = set()
    pending = [tensor]
    while pending:
        node = pending.pop()
        for user in node.users:
            if user not in readers:
                readers.add(user)
                if node in semantics.aliases(user):
                    pending.append(user)
    return readers


def _written(node: Node) -> Iterator[Node]:
    """The tensors that the functional kernel returns new: not the gradients."""
    for position, tensors in enumerate(_lists(node)):
        if position != 1:
            yield from tensors


def _lists(node: Node) -> list[list[Node]]:
    """The lists of tensors that a fused optimizer returns new, in its order."""
    target: Any = node.target
    return [node.args[i] for i in range(len(target._schema.returns))]  # type: ignore[misc]


def _results(node: Node) -> Iterator[tuple[Node, Node]]:
    lists = _lists(node)
    for items in node.users:
        for item in items.users:
            assert items.target is item.target is operator.getitem, "results of a fused optimizer"
            yield item, lists[items.args[1]][item.args[1]]  # type: ignore[call-overload,index]
