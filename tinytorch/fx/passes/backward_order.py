"""The order of the backward: what frees memory comes before what needs more."""

from __future__ import annotations

import operator
from collections import Counter

import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import is_call, only_user
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.storages import Storages

Unit = list[Node]  # a node, behind the views that only it uses, before what takes its tuple apart


@register_pass
class BackwardOrder(OptimizationPass):
    """Swaps neighbouring ops of the backward where less memory is alive at the most that way.

    Of the two gradients of a product autograd computes that of the input first. That of the weight
    first lets the activation go that only it reads, before the next large gradient comes. Results
    stay the same to the last bit. Functional graphs only; others stay as they are.
    """

    name = "backward-order"

    def analyze(self, graph: torch.fx.Graph) -> list[Unit]:
        """The backward in its new order; nothing if that is the old one."""
        units = self._units(graph)
        if graph.owning_module is None or not units:
            return []
        ordered = _Order(units, self.semantics.storages(graph), graph).units
        return [] if ordered == units else ordered

    def transform(self, graph: torch.fx.Graph, found: list[Unit]) -> bool:
        if found:
            nodes = {node for unit in found for node in unit}
            behind = max(nodes).next
            for unit in found:
                for node in unit:
                    behind.prepend(node)
        return bool(found)

    def _units(self, graph: torch.fx.Graph) -> list[Unit]:
        """The ops of the backward in order; none where they may not change places."""
        calls = [n for n in graph.nodes if n.op.startswith("call_")]
        backward = [n for n in calls if n.meta.get("phase") == "backward"]
        if not backward or not all(map(self.semantics.is_pure, backward)):
            return []
        if any(n.meta.get("phase") != "backward" and backward[0] < n < backward[-1] for n in calls):
            return []
        units: list[Unit] = []
        waiting: dict[Node, Unit] = {}
        for node in backward:
            if is_call(node, operator.getitem) and units and node.args[0] in units[-1]:
                units[-1].append(node)
                continue
            unit = [n for a in node.all_input_nodes for n in waiting.pop(a, [])] + [node]
            user = only_user(node)
            if self.semantics.aliases(node) and user in backward:
                waiting[node] = unit
            else:
                units.append(unit)
        return units


class _Order:
    """Puts units in order one by one, each as far ahead as that lowers the memory of two."""

    def __init__(self, units: list[Unit], found: Storages, graph: torch.fx.Graph) -> None:
        self.sizes = found.sizes
        self.makes = [{s for n in unit for s in found.made(n)} for unit in units]
        self.reads = [
            {s for n in unit for s in (*found.read(n), *found.held[n])} - found.external
            for unit in units
        ]
        returned = graph.output_node().all_input_nodes
        # how many units read each storage that are not yet in order; a result has one more reader
        self.left = Counter(s for n in returned for s in found.held[n])
        self.left.update(s for reads in self.reads for s in reads)
        order: list[int] = []
        for number, unit in enumerate(units):
            inputs = {a for n in unit for a in n.all_input_nodes}
            self.left.subtract(self.reads[number])
            place = self._position(order, number, [not inputs.isdisjoint(units[i]) for i in order])
            order.insert(place, number)
        self.units = [units[i] for i in order]

    def _position(self, order: list[int], number: int, is_input: list[bool]) -> int:
        """Where among those in order a unit belongs."""
        place = len(order)
        behind = Counter(self.reads[number])  # readers that are in order, from `place` on
        while place > 0 and not is_input[place - 1]:
            before = order[place - 1]
            behind.update(self.reads[before])
            if self._peak(number, before, behind) >= self._peak(before, number, behind):
                break
            place -= 1
        return place

    def _peak(self, first: int, second: int, behind: Counter[int]) -> int:
        """Bytes alive at the most in two units, beyond what is alive before them."""
        live = most = 0
        read: Counter[int] = Counter()
        for number in (first, second):
            live += sum(self.sizes[s] for s in self.makes[number])
            most = max(most, live)
            read.update(self.reads[number])
            dead = (s for s in self.reads[number] if self.left[s] + behind[s] == read[s])
            live -= sum(self.sizes[s] for s in dead)
        return most
