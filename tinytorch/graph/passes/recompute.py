"""Recomputation: leave values of the forward out, and compute them again in the backward.

How they are chosen is in `tinytorch/graph/recompute/`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tinytorch.graph.ir import GraphError
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.recompute.budget import Budget, bytes_of
from tinytorch.graph.recompute.frontier import STRATEGIES, Strategy, find_frontier
from tinytorch.graph.recompute.problem import Plan, Problem, is_forward
from tinytorch.graph.recompute.rewrite import rewrite
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, Semantics


@register_pass
class Recompute(OptimizationPass):
    """Lowers the peak memory of a forward and backward, or of a training step, to a budget.

    Run it behind the passes that clean up, and before those that make ops work in place. A graph
    without a backward stays as it is.

    Args:
        budget: bytes beyond inputs and constants, or as a float a fraction of the present peak; by
            default the least that is possible.
        strategies: ways of choosing, by name.
    """

    name = "recompute"
    strategies: Mapping[str, Strategy] = STRATEGIES

    def __init__(
        self,
        semantics: Semantics = TINYTORCH,
        budget: Budget | None = None,
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        super().__init__(semantics)
        self.budget = budget
        self.strategies = strategies or self.strategies

    def analyze(self, graph: AnyGraph) -> tuple[Problem, Plan] | None:
        """The cheapest plan within the budget.

        Raises:
            RecomputeError: the budget cannot be met, or an op writes in place.
        """
        if all(n.op != "call_function" or is_forward(n) for n in graph.nodes):
            return None
        problem = Problem(graph, self.semantics)
        if not problem.forward_last:  # the forward makes nothing that could be left out
            return None
        frontier = find_frontier(problem, self.strategies)
        plan = frontier.plans[0] if self.budget is None else frontier.within(self.budget)
        return problem, plan

    def transform(self, graph: AnyGraph, found: tuple[Problem, Plan] | None) -> bool:
        return found is not None and bool(rewrite(*found))

    def verify(self, before: AnyGraph, after: AnyGraph) -> None:
        super().verify(before, after)
        whole, peak = (timeline(graph, self.semantics).peak for graph in (before, after))
        limit = whole if self.budget is None else bytes_of(self.budget, whole)
        if peak > limit:
            raise GraphError(f"the peak is {peak} bytes and not within the budget of {limit}")
