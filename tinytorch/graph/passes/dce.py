"""Dead-code elimination: erase what nothing uses."""

from __future__ import annotations

from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import AnyGraph, AnyNode


@register_pass
class DeadCodeElimination(OptimizationPass):
    """Erases pure nodes whose values reach neither the output nor an effect."""

    name = "dce"

    def analyze(self, graph: AnyGraph) -> list[AnyNode]:
        """The dead nodes, users before what they use."""
        dead: dict[AnyNode, None] = {}
        for node in reversed(graph.nodes):
            stays = node.op in ("placeholder", "output") or not self.semantics.is_pure(node)
            if not stays and all(user in dead for user in node.users):
                dead[node] = None
        return list(dead)

    def transform(self, graph: AnyGraph, found: list[AnyNode]) -> bool:
        for node in found:
            graph.erase_node(node)
        return bool(found)
