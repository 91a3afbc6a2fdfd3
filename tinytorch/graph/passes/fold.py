"""Constant folding: compute once, now, what does not depend on the inputs."""

from __future__ import annotations

import math

from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, AnyNode, Semantics


@register_pass
class ConstantFolding(OptimizationPass):
    """Replaces what is computed from constants alone by a constant.

    Constants are get_attr nodes that nothing writes and what ops make without inputs (`full`,
    `arange`). Those ops themselves stay: they are smaller than what they make.

    Args:
        limit: no constant of more elements is made; memory is not traded for a cheap op.
    """

    name = "fold"

    def __init__(self, semantics: Semantics = TINYTORCH, limit: int = 65_536) -> None:
        super().__init__(semantics)
        self.limit = limit

    def analyze(self, graph: AnyGraph) -> list[AnyNode]:
        """The nodes to replace: constant, computed from something, and used by what is not."""
        constant: set[AnyNode] = set()
        memory = Aliasing(graph, self.semantics)
        for node in graph.nodes:
            if node not in memory.written and self._is_constant(node, constant):
                constant.add(node)
        return [
            node
            for node in graph.nodes
            if node in constant
            and node.all_input_nodes
            and any(user not in constant for user in node.users)
            and self._size(node) <= self.limit
        ]

    def transform(self, graph: AnyGraph, found: list[AnyNode]) -> bool:
        values: dict[AnyNode, object] = {}
        for node in found:
            with graph.inserting_before(node):
                new = self.semantics.constant(graph, self._evaluate(node, values))
            node.replace_all_uses_with(new)
            self._erase_unused(graph, node)
        return bool(found)

    def _is_constant(self, node: AnyNode, constant: set[AnyNode]) -> bool:
        s = self.semantics
        if node.op == "get_attr":
            return s.constant_value(node) is not None
        return (
            node.op == "call_function"
            and s.is_pure(node)
            and not s.is_random(node)
            and all(a in constant for a in node.all_input_nodes)
        )

    def _size(self, node: AnyNode) -> float:
        meta = self.semantics.meta(node)
        return math.inf if meta is None else math.prod(meta.shape)

    def _evaluate(self, node: AnyNode, values: dict[AnyNode, object]) -> object:
        """The value of a constant node; what it is computed from is kept for others."""
        s, pending = self.semantics, [node]
        while pending:
            current = pending[-1]
            missing = [a for a in current.all_input_nodes if a not in values]
            if missing:
                pending += missing
                continue
            pending.pop()
            if current.op == "get_attr":
                values[current] = s.constant_value(current)
            else:
                args = s.map_arg(tuple(current.args), values.__getitem__)
                kwargs = s.map_arg(dict(current.kwargs), values.__getitem__)
                values[current] = s.evaluate(current, args, kwargs)
        return values[node]

    def _erase_unused(self, graph: AnyGraph, node: AnyNode) -> None:
        """Erase a node and then what only it used."""
        unused = [node]
        while unused:
            current = unused.pop()
            inputs = current.all_input_nodes
            graph.erase_node(current)
            unused += [n for n in inputs if not n.users]
