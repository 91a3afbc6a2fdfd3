"""Which activations to swap and which to compute again, under one budget.

As in muTWO, the next value goes the way that costs less time: out to the host while the copy stream
has time for it, else it is computed again. Here every step is simulated rather than estimated, the
recomputation plans of `frontier.py` are starting points too, and the best plan within the budget is
improved value by value.

Source: S. Purandare et al., "muTWO: compile-time techniques for concurrent training of multiple
models", MLSys 2023.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tinytorch.fx.recompute.swapping import Swapping, SwapPlan
from tinytorch.graph.recompute.budget import Budget, bytes_of, fitting
from tinytorch.graph.recompute.frontier import Frontier, Progress
from tinytorch.graph.recompute.mutwo import greedy_order

STARTS = 24  # plans of recomputation from which swapping starts
STEPS = 48  # plans on each way from no to full swapping
FLIPS = 48  # storages whose treatment is changed to improve a plan


@dataclass
class SwapFrontier:
    """Plans of which none takes both less memory and less time than another.

    Attributes:
        plans: from the lowest peak to the highest.
        everything: the plan that keeps all on the device.
    """

    swapping: Swapping
    plans: list[SwapPlan]
    everything: SwapPlan

    def within(self, budget: Budget) -> SwapPlan:
        """The fastest plan found whose peak is within the budget, improved value by value.

        Args:
            budget: bytes beyond inputs and constants, or a fraction of keeping everything.

        Raises:
            RecomputeError: no plan is; the message says the lowest budget that can be met.
        """
        whole = self.everything.peak
        limit = bytes_of(budget, whole)
        found = fitting(self.plans, whole, budget, ", swapping included")
        starts = [*found[:: max(1, len(found) // STARTS)], found[-1]]
        return min((improved(self.swapping, plan, limit) for plan in starts), key=_order)


def find_swap_frontier(
    swapping: Swapping, recomputing: Frontier, *, progress: Progress = lambda what: None
) -> SwapFrontier:
    """The best plans of muTWO's rule and of every recomputation plan with more and more swapped.

    Args:
        recomputing: plans that swap nothing.
        progress: is told what is being done, each time that it changes.
    """
    everything = swapping.simulate(swapping.problem.everything)
    pool = [everything]
    for plan in joint_path(swapping):
        pool.append(plan)
        progress(f"muTWO: {len(pool)} plans")
    starts = recomputing.plans[:: max(1, len(recomputing.plans) // STARTS)]
    for start in (*starts, recomputing.everything):
        pool += _swapping_more(swapping, start.kept)
        progress(f"swapping beside recomputation: {len(pool)} plans")
    pool += [swapping.simulate(plan.kept) for plan in recomputing.plans]
    return SwapFrontier(swapping, _not_beaten(pool), everything)


def _not_beaten(plans: Iterable[SwapPlan]) -> list[SwapPlan]:
    """By ascending peak, each faster than those before it."""
    found: list[SwapPlan] = []
    for plan in sorted(plans, key=lambda p: (p.peak, p.seconds, len(p.swapped))):
        if not found or plan.seconds < found[-1].seconds:
            found.append(plan)
    return found


def joint_path(swapping: Swapping) -> Iterator[SwapPlan]:
    """muTWO's way from everything kept to nothing: swap or compute again, whichever costs less.

    The candidate for swapping is the one that is inactive for the longest time, for recomputation
    the one of the best ratio of bytes to time. Of graphs with many values several go at a time.
    """
    kept, swapped = set(swapping.problem.everything), set[int]()
    idle, ratio = _by_idle_time(swapping), greedy_order(swapping.problem)
    at_a_time = max(1, len(idle) // (2 * STEPS))
    while idle or ratio:
        out, again = set(idle[:at_a_time]), set(ratio[:at_a_time])
        ways = [(kept - out, swapped | out)] * bool(out) + [(kept - again, swapped)] * bool(again)
        results = [(swapping.simulate(*way), way) for way in ways]
        plan, (kept, swapped) = min(results, key=lambda result: result[0].seconds)
        idle = [s for s in idle if s in kept]
        ratio = [s for s in ratio if s in kept]
        yield plan


def _by_idle_time(swapping: Swapping) -> list[int]:
    return sorted(swapping.candidates, key=lambda s: (-swapping.inactive[s], s))


def _swapping_more(swapping: Swapping, kept: frozenset[int]) -> Iterator[SwapPlan]:
    """Of what a plan keeps ever more swapped, beginning with what is inactive for longest."""
    idle = [s for s in _by_idle_time(swapping) if s in kept]
    for count in sorted({round(len(idle) * i / STEPS) for i in range(1, STEPS + 1)}):
        out = frozenset(idle[:count])
        yield swapping.simulate(kept - out, out)


def improved(swapping: Swapping, plan: SwapPlan, limit: int) -> SwapPlan:
    """Treat the largest values, and what is swapped, differently as long as that is faster."""
    p = swapping.problem
    treated = {*p.candidates, *swapping.candidates}
    large = sorted(treated, key=lambda s: (-p.sizes[s], s))[:FLIPS]
    found = True
    while found:
        found = False
        for s in dict.fromkeys([*large, *sorted(plan.swapped)]):
            for other in _changed(swapping, plan, s, large, limit):
                if other.peak <= limit and _order(other) < _order(plan):
                    plan, found = other, True
    return plan


def _changed(
    swapping: Swapping, plan: SwapPlan, s: int, others: list[int], limit: int
) -> Iterator[SwapPlan]:
    """A plan with one value treated differently; where that alone is faster but takes too much
    memory, with others swapped or computed again until it fits."""
    for treatment in _treatments(swapping, plan, s):
        other = swapping.simulate(*treatment)
        if other.peak > limit and other.seconds < plan.seconds:
            other = _repaired(swapping, other, [o for o in others if o != s], plan.seconds, limit)
        yield other


def _repaired(
    swapping: Swapping, plan: SwapPlan, others: list[int], seconds: float, limit: int
) -> SwapPlan:
    """A plan brought below a limit by giving up one value after the other, while it is faster than
    so many seconds; as far as that goes."""
    for s in others:
        if plan.peak <= limit:
            break
        if s in plan.kept:
            ways = [swapping.simulate(*way) for way in _treatments(swapping, plan, s)]
            fast = [way for way in ways if way.seconds < seconds]
            plan = min(fast, key=lambda way: (way.peak, way.seconds), default=plan)
    return plan


def _order(plan: SwapPlan) -> tuple[float, int]:
    """The faster plan first; of equally fast ones the one with less to copy."""
    return plan.seconds, sum(t.nbytes for t in plan.transfers)


def _treatments(
    swapping: Swapping, plan: SwapPlan, s: int
) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """A plan with one storage kept, swapped, or computed again."""
    kept, swapped = plan.kept - {s}, plan.swapped - {s}
    yield kept | {s}, swapped
    if s in swapping.inactive:
        yield kept, swapped | {s}
    if s not in swapping.problem.fixed:
        yield kept, swapped
