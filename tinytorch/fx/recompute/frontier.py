"""Which plan to take: a portfolio of strategies, judged by exact simulation.

No rule is best everywhere, so all of them propose; what none of the others beats is improved and
makes the frontier from everything kept to the lowest peak there is. The frontier does not depend on
the budget that is asked for: a lower budget never gives a higher peak, nor a cheaper plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch.fx

from tinytorch.bench.units import format_bytes
from tinytorch.fx.recompute.mincut import min_cut_plans
from tinytorch.fx.recompute.mutwo import greedy_plans
from tinytorch.fx.recompute.problem import Plan, Problem, RecomputeError
from tinytorch.fx.recompute.rewrite import rewrite
from tinytorch.fx.recompute.segment_search import segment_plans

Budget = int | float  # bytes, or as a float a fraction of the peak with everything kept
Strategy = Callable[[torch.fx.GraphModule, Problem], Iterable[frozenset[int]]]

STRATEGIES: dict[str, Strategy] = {
    "segments": lambda module, problem: segment_plans(problem),
    "mutwo": lambda module, problem: greedy_plans(problem),
    "min-cut": min_cut_plans,
}
SPACING = 0.004  # of the peak with everything kept: plans that lie nearer are one
FLIPS = 32  # storages that are tried for each improvement of a plan


@dataclass
class Frontier:
    """Plans of which none is both lower and cheaper than another.

    Attributes:
        plans: from the lowest peak to the highest, which keeps everything.
        proposed: how many plans each strategy proposed, and how many of them are in `plans`.
    """

    plans: list[Plan]
    proposed: dict[str, tuple[int, int]]

    @property
    def everything(self) -> Plan:
        """The plan that computes nothing again."""
        return self.plans[-1]

    def within(self, budget: Budget) -> Plan:
        """The cheapest plan whose peak is within the budget.

        Args:
            budget: bytes beyond inputs and constants, or as a float a fraction of the peak with
                everything kept.

        Raises:
            RecomputeError: no plan is; the message says the lowest budget that can be met.
        """
        whole = self.everything.peak
        limit = int(budget * whole) if isinstance(budget, float) else budget
        fitting = [plan for plan in self.plans if plan.peak <= limit]
        if not fitting:
            lowest = self.plans[0].peak
            raise RecomputeError(
                f"a budget of {limit} bytes ({limit / whole:.1%} of everything kept) cannot be "
                f"met; the lowest that can is {lowest} ({format_bytes(lowest)}, "
                f"{lowest / whole:.1%})"
            )
        return fitting[-1]


def find_frontier(
    module: torch.fx.GraphModule,
    problem: Problem,
    strategies: Iterable[str] = tuple(STRATEGIES),
) -> Frontier:
    """Let all strategies propose plans, and improve the best of them.

    Args:
        module: with the graph of the problem.
        strategies: names in STRATEGIES.

    Raises:
        KeyError: there is no strategy of this name.
    """
    everything = problem.simulate(problem.everything, "everything")
    pool = [everything]
    count = {}
    for name in strategies:
        proposals = [problem.simulate(k, name) for k in STRATEGIES[name](module, problem)]
        count[name] = len(proposals)
        pool += proposals
    pool += _lower(problem, min(pool, key=lambda plan: plan.peak))
    steps = _spaced(_not_beaten(pool), int(SPACING * everything.peak))
    plans = _not_beaten([*pool, *_improved(problem, steps)])
    used = [plan.source for plan in plans]
    return Frontier(plans, {name: (n, used.count(name)) for name, n in count.items()})


def _not_beaten(plans: Iterable[Plan]) -> list[Plan]:
    """By ascending peak, each cheaper than those before it."""
    found: list[Plan] = []
    for plan in sorted(plans, key=lambda p: (p.peak, p.cost)):
        if not found or plan.cost < found[-1].cost:
            found.append(plan)
    return found


def _spaced(plans: list[Plan], spacing: int) -> list[Plan]:
    """In each stretch of peaks the cheapest plan."""
    return list({plan.peak // max(spacing, 1): plan for plan in plans}.values())


def _improved(problem: Problem, plans: list[Plan]) -> Iterator[Plan]:
    """Keep more, as long as the peak stays below that of the next plan."""
    for plan, following in zip(plans, [*plans[1:], None], strict=True):
        if following is None:
            yield plan
            continue
        best = plan
        for s in _most_expensive(problem, plan):
            if s not in best.kept:
                other = problem.simulate(best.kept | {s}, plan.source)
                if other.peak < following.peak and other.cost < best.cost:
                    best = other
        yield best


def _most_expensive(problem: Problem, plan: Plan) -> list[int]:
    forgotten = [s for s in problem.candidates if s not in plan.kept and s in problem.needed]
    return sorted(forgotten, key=lambda s: (-problem.made_by[s].cost, s))[:FLIPS]


def _lower(problem: Problem, plan: Plan) -> Iterator[Plan]:
    """Ever lower plans, by keeping or forgetting one of the largest storages at a time."""
    large = sorted(problem.candidates, key=lambda s: (-problem.sizes[s], s))[: 8 * FLIPS]
    lowered = True
    while lowered:
        lowered = False
        for s in large:
            other = problem.simulate(plan.kept ^ {s}, plan.source)
            if other.peak < plan.peak:
                plan, lowered = other, True
                yield plan


def recompute(
    module: torch.fx.GraphModule, problem: Problem, budget: Budget, frontier: Frontier | None = None
) -> Plan:
    """Rewrite a graph in place so that it stays within a budget, at the least cost.

    Returns:
        What was done.

    Raises:
        RecomputeError: the budget cannot be met; the message says the lowest that can.
    """
    plan = (frontier or find_frontier(module, problem)).within(budget)
    rewrite(problem, plan)
    module.recompile()
    return plan
