"""Which plan to take: a portfolio of strategies, judged by exact simulation.

No rule is best everywhere, so all of them propose; what none of the others beats is improved and
makes the frontier from everything kept to the lowest peak there is. The frontier does not depend on
the budget that is asked for: a lower budget never gives a higher peak, nor a cheaper plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch.fx

from tinytorch.bench.units import format_bytes
from tinytorch.fx.recompute import known
from tinytorch.fx.recompute.mincut import min_cut_plans
from tinytorch.fx.recompute.mutwo import greedy_plans
from tinytorch.fx.recompute.problem import Plan, Problem, RecomputeError
from tinytorch.fx.recompute.rewrite import rewrite
from tinytorch.fx.recompute.segment_search import segment_plans

#: Bytes; or as a float a fraction of the peak with everything kept; or as a text either: "512MiB".
Budget = int | float | str
UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30,
         "kb": 10**3, "mb": 10**6, "gb": 10**9}  # fmt: skip


def parse_budget(budget: Budget) -> int | float:
    """Bytes, or a fraction above 0 and up to 1; what is neither is refused before any work.

    >>> parse_budget("512MiB"), parse_budget("0.5"), parse_budget(4096)
    (536870912, 0.5, 4096)

    Raises:
        RecomputeError: it is neither.
    """
    given: int | float | None = None
    if isinstance(budget, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", budget.strip())
        if match is not None and match[2].lower() in UNITS:
            is_fraction = not match[2] and "." in match[1]
            given = (
                float(match[1]) if is_fraction else int(float(match[1]) * UNITS[match[2].lower()])
            )
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        given = budget
    if given is None:
        raise RecomputeError(
            f"{budget!r} is no budget: bytes (536870912 or '512MiB'), or a fraction of keeping "
            "everything (0.5)"
        )
    if isinstance(given, float) and not 0 < given <= 1:
        raise RecomputeError(
            f"a budget of {given:g} is a fraction, which is above 0 and at most 1 (0.5 is half of "
            f"keeping everything); for bytes give an integer or a unit ('{given:g}GiB')"
        )
    if given <= 0:
        raise RecomputeError(f"a budget of {given} bytes: it must be above 0")
    return given


def bytes_of(budget: Budget, whole: int) -> int:
    """A budget in bytes, where keeping everything takes `whole`."""
    parsed = parse_budget(budget)
    return int(parsed * whole) if isinstance(parsed, float) else parsed


Strategy = Callable[[torch.fx.GraphModule, Problem], Iterable[frozenset[int]]]

Progress = Callable[[str], None]

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
        return fitting(self.plans, self.everything.peak, budget)[-1]


class _HasPeak(Protocol):
    @property
    def peak(self) -> int: ...


P = TypeVar("P", bound=_HasPeak)


def fitting(plans: Sequence[P], whole: int, budget: Budget, means: str = "") -> list[P]:
    """The plans whose peak is within a budget; there is at least one.

    Args:
        plans: the one with the lowest peak first.
        whole: the peak with everything kept, of which a budget may be a fraction.
        means: what the plans could use, for the message.

    Raises:
        RecomputeError: no plan is; the message says the lowest budget that can be met.
    """
    limit = bytes_of(budget, whole)
    found = [plan for plan in plans if plan.peak <= limit]
    if not found:
        lowest = plans[0].peak
        raise RecomputeError(
            f"a budget of {format_bytes(limit)} ({limit / whole:.1%} of everything kept) "
            f"cannot be met{means}; the lowest that can is {lowest} bytes "
            f"({format_bytes(lowest)}, {lowest / whole:.1%})"
        )
    return found


def find_frontier(
    module: torch.fx.GraphModule,
    problem: Problem,
    strategies: Iterable[str] = tuple(STRATEGIES),
    *,
    progress: Progress = lambda what: None,
    remember: bool = False,
) -> Frontier:
    """Let all strategies propose plans, and improve the best of them.

    Args:
        module: with the graph of the problem.
        strategies: names in STRATEGIES.
        progress: is told what is being done, each time that it changes.
        remember: take the frontier from disk if the same problem was solved before.

    Raises:
        KeyError: there is no strategy of this name.
    """
    strategies = tuple(strategies)
    path = known.file_of(problem, strategies) if remember else None
    if path is not None and (found := known.load(path, problem)) is not None:
        return Frontier(*found)
    everything = problem.simulate(problem.everything, "everything")
    pool = [everything]
    count = {}
    for name in strategies:
        proposals: list[Plan] = []
        for kept in STRATEGIES[name](module, problem):
            progress(f"{name}: {len(proposals)} plans")
            proposals.append(problem.simulate(kept, name))
        count[name] = len(proposals)
        pool += proposals
    progress("the lowest peak")
    pool += _lower(problem, min(pool, key=lambda plan: plan.peak))
    steps = _spaced(_not_beaten(pool), int(SPACING * everything.peak))
    better = []
    for plan in _improved(problem, steps):
        better.append(plan)
        progress(f"improving plans: {len(better)} of {len(steps)}")
    plans = _not_beaten([*pool, *better])
    used = [plan.source for plan in plans]
    frontier = Frontier(plans, {name: (n, used.count(name)) for name, n in count.items()})
    if path is not None:
        known.save(path, frontier.plans, frontier.proposed)
    return frontier


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
