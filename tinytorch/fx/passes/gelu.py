"""GELU written out in elementwise ops, as the one op that it is."""

from __future__ import annotations

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, insert
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.passes.rules import Rule

INNER = "(x + (x ** 3.0) * 0.044715) * 0.7978845608028654"  # sqrt(2 / pi)
TANH = [
    Rule(f"(x * 0.5) * (tanh({INNER}) + 1.0) -> x"),
    Rule(f"x * ((tanh({INNER}) + 1.0) * 0.5) -> x"),
    Rule(f"(x * (tanh({INNER}) + 1.0)) * 0.5 -> x"),
]
ERF = [
    Rule(text.replace("INNER", inner))
    for inner in ("x / 1.4142135623730951", "x * 0.7071067811865476", "x * 0.7071067811865475")
    for text in (
        "(x * 0.5) * (erf(INNER) + 1.0) -> x",
        "x * ((erf(INNER) + 1.0) * 0.5) -> x",
        "(x * (erf(INNER) + 1.0)) * 0.5 -> x",
    )
]


@register_pass
class Gelu(OptimizationPass):
    """Finds GELU and its tanh approximation, and makes each a node.

        gelu(x) = x / 2 (1 + erf(x / sqrt(2)))
               ~= x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

    What else uses a step of it, such as the graph's own backward, keeps that step.

    Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016.
    """

    name = "gelu"
    exact = False

    def analyze(self, graph: torch.fx.Graph) -> list[tuple[Node, Node, str]]:
        """For each: its last node, its input, and "none" or "tanh" for how it approximates."""
        functions = [n for n in graph.nodes if self.semantics.op_name(n) in ("tanh", "erf")]
        if not functions:
            return []
        memory, found = Aliasing(graph, self.semantics), []
        for node in graph.nodes:
            if self.semantics.op_name(node) != "mul" or memory.touches_written(node):
                continue
            for approximate, rules in (("tanh", TANH), ("none", ERF)):
                source = self._source(node, rules)
                if source is not None:
                    found.append((node, source, approximate))
        return found

    def transform(self, graph: torch.fx.Graph, found: list[tuple[Node, Node, str]]) -> bool:
        for node, source, approximate in found:
            with graph.inserting_before(node):
                new = insert(
                    graph, aten.gelu.default, (source,), like=node, approximate=approximate
                )
            node.replace_all_uses_with(new)
            graph.erase_node(node)
        return bool(found)

    def _source(self, node: Node, rules: list[Rule]) -> Node | None:
        for rule in rules:
            bound = rule.match(node, self.semantics)
            if bound is not None and self.semantics.interchangeable(bound["x"], node):
                source: Node = bound["x"]
                return source
        return None
