"""Broadcast clean-up: do not spell out what an elementwise op does by itself."""

from __future__ import annotations

from typing import Any

from tinytorch.graph.passes.algebra import INHERITED
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import AnyGraph, AnyNode

SPREADS = ("expand", "copy")


@register_pass
class BroadcastCleanup(OptimizationPass):
    """Makes elementwise ops read the operand of an `expand` or `copy` where nothing changes.

    An elementwise op broadcasts its operands itself, and reads them in whatever order they lie; so
    an operand need be neither expanded nor copied. Only one that decides the shape, or (as a 0-d
    tensor) the dtype of the result, stays.
    """

    name = "layout"

    def analyze(self, graph: AnyGraph) -> list[AnyNode]:
        """Elementwise nodes with an operand that is only spread or copied."""
        return [
            node
            for node in graph.nodes
            if node.op == "call_function"
            and self.semantics.kind(node) == "elementwise"
            and self.semantics.op_name(node) is not None
            and any(self._source(a) is not None for a in node.args)
        ]

    def transform(self, graph: AnyGraph, found: list[AnyNode]) -> bool:
        changed = False
        for node in found:
            i = 0
            while i < len(node.args):
                shorter = self._without(graph, node, i)
                if shorter is None:
                    i += 1
                else:
                    node, changed = shorter, True
        return changed

    def _source(self, node: Any) -> AnyNode | None:
        """What an expand or copy reads."""
        if self.semantics.is_node(node) and self.semantics.op_name(node) in SPREADS:
            return node.args[0]
        return None

    def _without(self, graph: AnyGraph, node: AnyNode, i: int) -> AnyNode | None:
        """The node that reads operand i at its source; None if that is not the same."""
        source = self._source(node.args[i])
        if source is None:
            return None
        args = [*node.args[:i], source, *node.args[i + 1 :]]
        with graph.inserting_before(node):
            new = self.semantics.call(graph, self.semantics.op_name(node) or "", args, node.kwargs)
        if not self.semantics.interchangeable(node, new):
            graph.erase_node(new)
            return None
        new.meta.update({k: v for k, v in node.meta.items() if k in INHERITED})
        spread = node.args[i]
        node.replace_all_uses_with(new)
        graph.erase_node(node)
        if not spread.users:
            graph.erase_node(spread)
        return new
