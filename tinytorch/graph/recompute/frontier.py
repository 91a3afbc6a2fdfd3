"""Which plan to take: a portfolio of strategies, judged by exact simulation.

No rule is best everywhere, so all of them propose; what none of the others beats is improved and
makes the frontier from everything kept to the lowest peak there is. The frontier does not depend on
the budget that is asked for: a lower budget never gives a higher peak, nor a cheaper plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tinytorch.graph.recompute.budget import Budget, fitting
from tinytorch.graph.recompute.mutwo import greedy_plans
from tinytorch.graph.recompute.problem import Plan, Problem
from tinytorch.graph.recompute.segment_search import segment_plans

#: Proposes what to keep.
Strategy = Callable[[Problem], Iterable[frozenset[int]]]
#: Is told what is being done, each time that it changes.
Progress = Callable[[str], None]
STRATEGIES: dict[str, Strategy] = {"segments": segment_plans, "mutwo": greedy_plans}
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
        return fitting(self.plans, self.everything.peak, budget)[-1]


def find_frontier(
    problem: Problem,
    strategies: Mapping[str, Strategy] = STRATEGIES,
    *,
    progress: Progress = lambda what: None,
) -> Frontier:
    """Find the best plans: all strategies propose some, and the best are improved.

    Args:
        strategies: by name.
        progress: is told how far the search is.
    """
    everything = problem.simulate(problem.everything, "everything")
    pool, count = [everything], {}
    for name, strategy in strategies.items():
        proposals: list[Plan] = []
        for kept in strategy(problem):
            progress(f"{name}: {len(proposals)} plans")
            proposals.append(problem.simulate(kept, name))
        count[name] = len(proposals)
        pool += proposals
    progress("the lowest peak")
    pool += _lower(problem, min(pool, key=lambda plan: plan.peak))
    steps = _spaced(_not_beaten(pool), int(SPACING * everything.peak))
    for number, plan in enumerate(_improved(problem, steps)):
        pool.append(plan)
        progress(f"improving plans: {number + 1} of {len(steps)}")
    plans = _not_beaten(pool)
    used = Counter(plan.source for plan in plans)
    return Frontier(plans, {name: (n, used[name]) for name, n in count.items()})


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
    recomputed = [s for s in problem.candidates if s not in plan.kept and s in problem.needed]
    return sorted(recomputed, key=lambda s: (-problem.made_by[s].cost, s))[:FLIPS]


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
