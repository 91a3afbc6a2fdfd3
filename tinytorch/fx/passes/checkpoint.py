"""Recomputation of torch graphs under a memory budget, as a pass."""

from __future__ import annotations

import torch.fx

from tinytorch.fx.recompute.frontier import Budget, bytes_of, find_frontier
from tinytorch.fx.recompute.problem import Plan, Problem, RecomputeError
from tinytorch.fx.recompute.rewrite import rewrite
from tinytorch.graph.ir import GraphError
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import Semantics


@register_pass
class Checkpoint(OptimizationPass):
    """Lowers the peak memory of a joint graph or a training step to a budget.

    Run it behind the passes that clean up, and before those that make ops work in place.

    Args:
        budget: bytes beyond inputs and constants, or as a float a fraction of the present peak.
    """

    name = "checkpoint"

    def __init__(self, semantics: Semantics, budget: Budget = 0.5) -> None:
        super().__init__(semantics)
        self.budget = budget

    def analyze(self, graph: torch.fx.Graph) -> tuple[Problem, Plan]:
        """The cheapest plan within the budget.

        Raises:
            RecomputeError: the budget cannot be met, or the graph has no backward or writes in
                place.
        """
        module = _module(graph)
        problem = Problem(graph, self.semantics.storages(graph), self.semantics)
        return problem, find_frontier(module, problem).within(self.budget)

    def transform(self, graph: torch.fx.Graph, found: tuple[Problem, Plan]) -> bool:
        problem, plan = found
        return bool(rewrite(problem, plan))

    def verify(self, before: torch.fx.Graph, after: torch.fx.Graph) -> None:
        super().verify(before, after)
        whole, peak = (timeline(graph, self.semantics).peak for graph in (before, after))
        limit = bytes_of(self.budget, whole)
        if peak > limit:
            raise GraphError(f"the peak is {peak} bytes and not within the budget of {limit}")


def _module(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    if graph.owning_module is None:
        raise RecomputeError("the graph belongs to no module, so its constants are not known")
    return graph.owning_module
