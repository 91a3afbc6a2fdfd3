"""Recomputation: forget values of the forward, and compute them again in the backward.

How the values are chosen is in `tinytorch/graph/recompute.py`.
"""

from __future__ import annotations

from tinytorch.graph.ir import GraphError
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.recompute import RecomputePlan, choose_exact, choose_greedy, rewrite
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, Semantics


@register_pass
class Recompute(OptimizationPass):
    """Lowers the peak memory of a training step to a budget.

    Args:
        budget: bytes, or as a float a fraction of the present peak.
        exact_choice: choose by integer programming instead of by the greedy rule.
    """

    name = "recompute"

    def __init__(
        self,
        semantics: Semantics = TINYTORCH,
        budget: float | int = 0.5,
        exact_choice: bool = False,
    ) -> None:
        super().__init__(semantics)
        self.budget = budget
        self.choose = choose_exact if exact_choice else choose_greedy

    def analyze(self, graph: AnyGraph) -> RecomputePlan:
        """The choice; it forgets nothing if the peak is within the budget."""
        budget = self.budget
        if isinstance(budget, float):
            budget = int(timeline(graph, self.semantics).peak * budget)
        return self.choose(graph, budget, self.semantics)

    def transform(self, graph: AnyGraph, found: RecomputePlan) -> bool:
        return bool(rewrite(graph, found.names, self.semantics))

    def verify(self, before: AnyGraph, after: AnyGraph) -> None:
        super().verify(before, after)
        peaks = [timeline(g, self.semantics).peak for g in (before, after)]
        if peaks[1] > peaks[0]:
            raise GraphError(f"recompute raised the peak from {peaks[0]} to {peaks[1]} bytes")
