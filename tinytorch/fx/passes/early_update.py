"""Each parameter is updated as soon as its gradient is there, so that gradients never pile up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import insert, is_call
from tinytorch.fx.passes.reinplace import IN_PLACE
from tinytorch.graph.passes.aliasing import readers_of
from tinytorch.graph.passes.base import OptimizationPass, register_pass

GRADIENTS = 1  # the position of their list among the arguments


@dataclass
class Move:
    """The update of one parameter, and the node after which it may run.

    Attributes:
        update: the node that updates many parameters.
        index: of this one in its lists.
        behind: the last node that must come before.
    """

    update: Node
    index: int
    behind: Node


@register_pass
class EarlyUpdate(OptimizationPass):
    """Splits in-place updates by parameter, and moves each right behind its gradient.

    A gradient is then dead at once; without, all live until the end of the backward. An update
    waits for the last node that reads the parameter's old value, directly or through a view. Works
    on what `Reinplace` has left; results are the same to the last bit.

    Source: K. Lv et al., "Full parameter fine-tuning for large language models with limited
    resources" (LOMO), 2023, section 3.
    """

    name = "early-update"

    def analyze(self, graph: torch.fx.Graph) -> list[Move]:
        """The updates of single parameters that may come earlier."""
        rank = {node: i for i, node in enumerate(graph.nodes)}
        updates = [n for n in graph.nodes if is_call(n, *IN_PLACE.values())]
        moves = []
        for node in updates:
            early = set(self._computed_from_inputs(node))
            shared = {a for a in node.kwargs.values() if isinstance(a, Node)}  # rate, found_inf
            lists: list[Any] = [a for a in node.args if isinstance(a, (list, tuple)) and a]
            for i in range(len(lists[GRADIENTS])):
                tensors = [each[i] for each in lists]
                before = shared.union(tensors)
                for tensor in tensors:
                    if tensor.op == "placeholder":
                        before |= readers_of(tensor, self.semantics)
                before = {n for n in before - early - {node} if n.op != "output"}
                behind = max(before, key=rank.__getitem__)
                if rank[behind] < rank[node]:
                    moves.append(Move(node, i, behind))
        # each parameter behind a place of its own: else they have been moved already
        return moves if len({m.behind for m in moves}) > len(updates) else []

    def transform(self, graph: torch.fx.Graph, found: list[Move]) -> bool:
        for update in dict.fromkeys(move.update for move in found):
            self._hoist(graph, self._computed_from_inputs(update))
        for move in found:
            update = move.update
            args = tuple(_chosen(a, [move.index]) for a in update.args)
            behind = move.behind
            if behind.op == "placeholder":
                behind = graph.find_nodes(op="placeholder")[-1]
            with graph.inserting_after(behind):
                insert(graph, update.target, args, like=update, **update.kwargs)
        for update in dict.fromkeys(move.update for move in found):
            kept = set(range(len(update.args[0])))  # type: ignore[arg-type]
            kept -= {move.index for move in found if move.update is update}
            self._keep(graph, update, sorted(kept))
        return bool(found)

    @staticmethod
    def _keep(graph: torch.fx.Graph, update: Node, kept: list[int]) -> None:
        """Leave an update only these of its parameters."""
        if not kept:
            graph.erase_node(update)
            return
        update.args = tuple(_chosen(a, kept) for a in update.args)

    def _computed_from_inputs(self, update: Node) -> list[Node]:
        """Operands that are computed from inputs alone, as the step counter is, and what for."""
        found: dict[Node, None] = {}
        for node in update.all_input_nodes:
            if node.op != "call_function" or not self.semantics.is_pure(node):
                continue
            if all(n.op in ("placeholder", "get_attr") for n in node.all_input_nodes):
                found[node] = None
        return list(found)

    @staticmethod
    def _hoist(graph: torch.fx.Graph, nodes: list[Node]) -> None:
        """Move nodes to the beginning."""
        last = graph.find_nodes(op="placeholder")[-1]
        for node in reversed(nodes):
            last.append(node)


def _chosen(argument: Any, indices: list[int]) -> Any:
    """These of a list, if it is one that is not empty."""
    if isinstance(argument, (list, tuple)) and argument:
        return [argument[i] for i in indices]
    return argument
