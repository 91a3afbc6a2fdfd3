"""Common-subexpression elimination: compute the same thing once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import AnyGraph, AnyNode


@register_pass
class CommonSubexpressionElimination(OptimizationPass):
    """Merges nodes that compute the same.

    The same are nodes of one op on the same values, in either order if the op is commutative.
    Random nodes, nodes with effects and nodes that touch memory which is written are never merged;
    nor are two results of the graph, which would come out as one tensor.

    Source: J. Cocke, "Global common subexpression elimination", 1970; here by value numbering.
    """

    name = "cse"

    def analyze(self, graph: AnyGraph) -> dict[AnyNode, AnyNode]:
        """The earlier node that each repeated node equals."""
        first: dict[Hashable, AnyNode] = {}
        same: dict[AnyNode, AnyNode] = {}
        memory = Aliasing(graph, self.semantics)
        for node in graph.nodes:
            if memory.touches_written(node) or not self._may_merge(node):
                continue
            number = self._number(node, same)
            earlier = first.setdefault(number, node)
            if earlier is not node and not {node, earlier} <= memory.returned:
                same[node] = earlier
                memory.replaced(node, earlier)
        return same

    def transform(self, graph: AnyGraph, found: dict[AnyNode, AnyNode]) -> bool:
        for node, earlier in found.items():
            node.replace_all_uses_with(earlier)
        for node in reversed(found):
            graph.erase_node(node)
        return bool(found)

    def _may_merge(self, node: AnyNode) -> bool:
        s = self.semantics
        return (
            node.op == "call_function"
            and s.is_pure(node)
            and not s.is_random(node)
            and not s.mutates(node)
        )

    def _number(self, node: AnyNode, same: dict[AnyNode, AnyNode]) -> Hashable:
        """Equal for nodes that compute the same value."""

        def number(value: Any) -> Hashable:
            if isinstance(value, (tuple, list)):
                return (type(value), *map(number, value))
            if isinstance(value, dict):
                return (dict, *((k, number(value[k])) for k in sorted(value)))
            if self.semantics.is_node(value):
                return same.get(value, value)  # type: ignore[no-any-return]
            return self.semantics.key(value)

        operands = [number(a) for a in node.args]
        if self.semantics.is_commutative(node):
            operands[:2] = sorted(operands[:2], key=repr)
        # what is computed again on purpose must not become the first computation again
        again = bool(node.meta.get("recomputed"))
        region = self.semantics.region(node)
        return (node.target, again, region, *operands, number(dict(node.kwargs)))
