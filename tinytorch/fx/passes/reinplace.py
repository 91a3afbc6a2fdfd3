"""Updates in place: a functional training step makes copies of all that it updates."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, insert, is_call
from tinytorch.graph.passes.aliasing import readers_of
from tinytorch.graph.passes.base import OptimizationPass, register_pass

IN_PLACE: dict[Any, Any] = {
    aten._fused_adam.tensor_lr: aten._fused_adam_.tensor_lr,
    aten._fused_adamw.tensor_lr: aten._fused_adamw_.tensor_lr,
    aten._fused_sgd.tensor_lr: aten._fused_sgd_.tensor_lr,
}
FUNCTIONAL_NORM = aten._native_batch_norm_legit_functional.default
STATISTICS = (3, 4)  # positions of running mean and variance, among its arguments and results


@dataclass
class Update:
    """A functional update of tensors.

    Attributes:
        node: a fused optimizer, or a batch norm in training.
        results: each result that is used, and the tensor it would be if written in place.
    """

    node: Node
    results: list[tuple[Node, Node]]


@register_pass
class Reinplace(OptimizationPass):
    """Lets fused optimizers write into the parameters and the state they are given, and batch norms
    into their running statistics.

    Running the graph then changes those inputs; its results are the same tensors. Only where all
    that is written is an input of the graph which nothing reads afterwards.
    """

    name = "reinplace"

    def analyze(self, graph: torch.fx.Graph) -> list[Update]:
        """The updates that can be done in place."""
        rank = {node: i for i, node in enumerate(graph.nodes)}
        found = []
        for node in graph.nodes:
            if not is_call(node, FUNCTIONAL_NORM, *IN_PLACE):
                continue
            written = list(_written(node))
            is_free = all(self._may_be_written(n, node, rank) for n in written)
            if is_free and len(set(written)) == len(written):
                found.append(Update(node, list(_results(node))))
        return found

    def transform(self, graph: torch.fx.Graph, found: list[Update]) -> bool:
        for update in found:
            for result, tensor in update.results:
                result.replace_all_uses_with(tensor)
                graph.erase_node(result)
            with graph.inserting_before(update.node):
                if update.node.target is FUNCTIONAL_NORM:
                    _write_statistics(graph, update.node)
                else:
                    _write_parameters(graph, update.node)
            graph.erase_node(update.node)
        return bool(found)

    def _may_be_written(self, tensor: Any, update: Node, rank: dict[Node, int]) -> bool:
        if not isinstance(tensor, Node) or tensor.op != "placeholder":
            return False
        readers = readers_of(tensor, self.semantics)
        return all(rank[reader] <= rank[update] for reader in readers)


def _write_parameters(graph: torch.fx.Graph, node: Node) -> None:
    new = insert(graph, IN_PLACE[node.target], node.args, like=node, **node.kwargs)
    new.meta["val"] = None
    for items in list(node.users):  # the lists, of which nothing is used any more
        graph.erase_node(items)


def _write_statistics(graph: torch.fx.Graph, node: Node) -> None:
    new = insert(graph, aten._native_batch_norm_legit.default, node.args, like=node)
    new.meta["val"] = tuple(new.meta["val"][: STATISTICS[0]])
    node.replace_all_uses_with(new)


def _written(node: Node) -> Iterator[Any]:
    """The tensors that the functional kernel returns new: not the gradients."""
    if node.target is FUNCTIONAL_NORM:
        yield from (node.args[i] for i in STATISTICS)
        return
    for position, tensors in enumerate(_lists(node)):
        if position != 1:
            yield from tensors


def _lists(node: Node) -> list[list[Node]]:
    """The lists of tensors that a fused optimizer returns new, in its order."""
    target: Any = node.target
    return [node.args[i] for i in range(len(target._schema.returns))]  # type: ignore[misc]


def _results(node: Node) -> Iterator[tuple[Node, Any]]:
    """The nodes that take new tensors out of the results, and which tensors those replace."""
    for items in node.users:
        assert items.target is operator.getitem, "results of one that returns several"
        position: Any = items.args[1]
        if node.target is FUNCTIONAL_NORM:
            if position in STATISTICS:
                yield items, node.args[position]
            continue
        for item in items.users:
            assert item.target is operator.getitem, "a list of a fused optimizer"
            index: Any = item.args[1]
            yield item, _lists(node)[position][index]
