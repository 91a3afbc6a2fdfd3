"""muTWO's greedy choice of what to recompute, as published.

Next is always the value that frees most bytes for the time that it takes to compute again: its own
chain, and once more for every value chosen before that is computed from it. Nothing is simulated.

Source: S. Purandare et al., "muTWO: compile-time techniques for concurrent training of multiple
models", 2023, the recomputation policy; the ratio is that of X. Peng et al., "Capuchin", 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinytorch.graph.recompute.problem import Problem

LEAST_COST = 1e-9  # what costs nothing is divided by, too


@dataclass
class Candidate:
    """A value that may be recomputed.

    Attributes:
        nbytes: that it frees.
        sources: needed values that it is computed from.
        cost: of computing it from these.
        total: with what it adds to values that are recomputed from it.
        made_bytes: of all that is computed on the way, itself included.
    """

    nbytes: int
    sources: set[int]
    cost: float
    total: float
    made_bytes: int


def greedy_order(problem: Problem) -> list[int]:
    """Storages in the order in which muTWO's rule drops them."""
    left = candidates(problem)
    chosen: dict[int, Candidate] = {}
    while left:
        s = max(left, key=lambda k: (left[k].nbytes / left[k].total, -k))
        taken = left.pop(s)
        repeats = 1
        for other in chosen.values():
            if s in other.sources:
                other.sources = (other.sources - {s}) | taken.sources
                other.cost += taken.cost
                repeats += 1
        chosen[s] = taken
        for key, other in left.items():
            if s in other.sources:
                other.sources = (other.sources - {s}) | taken.sources
                other.cost += taken.cost
                uses = sum(key in c.sources for c in chosen.values())
                other.total = other.cost * (1 + uses)
            if key in taken.sources:
                other.total = other.cost * (1 + repeats)
    return list(chosen)


def candidates(problem: Problem) -> dict[int, Candidate]:
    """The cost of recomputing each value that the backward reads, if all others are kept."""
    needed = {s for s in problem.needed if s not in problem.fixed and s in problem.made_by}
    return {s: _candidate(problem, s, needed) for s in sorted(needed)}


def _candidate(problem: Problem, storage: int, needed: set[int]) -> Candidate:
    """A value with its chain: back to needed values, which are kept, and what cannot be missing."""
    sources: set[int] = set()
    cost, made = 0.0, 0
    pending, seen = [storage], set(problem.made_by[storage].makes)
    while pending:
        computed = problem.made_by[pending.pop()]
        cost += computed.cost
        made += problem.made_bytes(computed)
        for r in computed.reads:
            if r in needed:
                sources.add(r)
            elif r in problem.made_by and r not in problem.fixed and r not in seen:
                seen.update(problem.made_by[r].makes)
                pending.append(r)
    cost = max(cost, LEAST_COST)
    return Candidate(problem.sizes[storage], sources - {storage}, cost, cost, made)


def greedy_plans(problem: Problem, most: int = 200) -> Iterator[frozenset[int]]:
    """The plans along muTWO's path, in at most so many steps from keeping everything to nothing."""
    order = greedy_order(problem)
    steps = sorted({round(len(order) * i / most) for i in range(most + 1)})
    for count in steps:
        yield problem.everything - frozenset(order[:count])
