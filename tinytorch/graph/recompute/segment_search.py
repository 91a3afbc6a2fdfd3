"""Choosing what to recompute segment by segment: dynamic programming over simulated memory.

For each segment, and for runs of several, a set of options is found by search, each measured by
simulation; then one pass from the first to the last segment finds the cheapest combination whose
every part stays within the budget. Late segments must be frugal with what they compute again at a
time, early ones with what they keep. Equal segments are searched once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.graph.recompute.problem import Problem
from tinytorch.graph.recompute.segments import Option, Run, Segments

RUNS = (1, 2, 3, 4, 6)  # lengths of the stretches that are considered as one
BUCKETS = 2048  # resolution of the memory that earlier segments freed
TOLERANCE = 0.004  # of a run's bytes and cost: options that lie nearer are one
MOST_FLIPS = 600  # options of a run that are found by changing others
MOST_JOINED = 16  # options of each half of a run that are joined

Options = Sequence[tuple[Run, list[Option]]]


class Front:
    """Options of which none is as good as another in all respects, to a tolerance."""

    def __init__(self, bytes_tolerance: float, cost_tolerance: float) -> None:
        self.options: list[Option] = []
        self._bytes, self._cost = bytes_tolerance, cost_tolerance

    def add(self, new: Option) -> bool:
        """Take an option in, and throw out what it beats. Returns whether it was worth it."""
        for o in self.options:
            if (
                o.freed >= new.freed - self._bytes
                and o.peak <= new.peak + self._bytes
                and o.cost <= new.cost + self._cost
            ):
                return False
        self.options = [o for o in self.options if not new.beats(o)]
        self.options.append(new)
        return True


class Search:
    """Finds options of runs, and remembers them for runs of the same structure."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self._known: dict[Hashable, list[tuple[tuple[int, ...], Option]]] = {}

    def options(self, run: Run) -> list[Option]:
        """The options for a run: no option is better than another in all respects."""
        key = self.segments.structure(run)
        if key not in self._known:
            place = {s: i for i, s in enumerate(run.free)}
            self._known[key] = [(tuple(place[s] for s in o.kept), o) for o in self._search(run)]
        return [
            Option(frozenset(run.free[i] for i in places), o.freed, o.peak, o.cost)
            for places, o in self._known[key]
        ]

    def _search(self, run: Run) -> list[Option]:
        """Flip one storage after the other in the best options found so far."""
        everything = frozenset(run.free) & self.segments.problem.everything
        nothing = self.segments.measure(run, frozenset())
        front = Front(TOLERANCE * run.normal, TOLERANCE * nothing.cost)
        seen: set[frozenset[int]] = set()

        def consider(kept: frozenset[int]) -> None:
            if kept not in seen:
                seen.add(kept)
                front.add(self.segments.measure(run, kept))

        consider(everything)
        consider(nothing.kept)
        for kept in self._joined(run):
            consider(kept)
        expanded: set[frozenset[int]] = set()
        shift = len(self.segments.problem.sizes)
        limit = len(seen) + MOST_FLIPS
        while len(seen) < limit:
            pending = [o for o in front.options if o.kept not in expanded]
            if not pending:
                break
            for option in pending:
                expanded.add(option.kept)
                for s in run.free:
                    if s in option.touched or s + shift in option.touched:
                        consider(option.kept ^ {s})
                    else:  # it would change nothing
                        seen.add(option.kept ^ {s})
        return front.options

    def _joined(self, run: Run) -> Iterator[frozenset[int]]:
        """Options of the run's halves together, without the value that one hands to the other."""
        if run.end - run.first < 2:
            return
        segments, middle = self.segments, (run.first + run.end) // 2
        halves = [segments.run(run.first, middle), segments.run(middle, run.end)]
        first, second = (_spread(self.options(half)) for half in halves)
        free = frozenset(run.free)
        small = frozenset(
            s
            for s in (halves[0].always | halves[1].always) & free
            if segments.last_reader[s] < middle or segments.segment_of[s] >= middle
        )
        for a in first:
            for b in second:
                yield ((a.kept | b.kept) & free) | small

    def runs(self) -> Options:
        """All runs that are considered, with their options, by their first segment."""
        count = len(self.segments)
        found = [
            self.segments.run(first, first + length)
            for first in range(count)
            for length in RUNS
            if first + length <= count
        ]
        return [(run, self.options(run)) for run in found]


def _spread(options: list[Option]) -> list[Option]:
    """At most MOST_JOINED of these, from the least to the most that they free."""
    ordered = sorted(options, key=lambda o: (o.freed, o.cost))
    count = min(MOST_JOINED, len(ordered))
    return [ordered[(i * (len(ordered) - 1)) // max(1, count - 1)] for i in range(count)]


def cheapest(segments: Segments, options: Options, budget: int) -> frozenset[int] | None:
    """The cheapest plan that keeps every part of the backward within a budget.

    Dynamic programming from the first segment to the last; the state is how much all segments so
    far have freed, in buckets. None if nothing fits.
    """
    p, count = segments.problem, len(segments)
    total = sum(p.sizes[s] for s in p.needed) + 1
    quantum = total / BUCKETS
    best = np.full((count + 1, BUCKETS), np.inf)
    best[0, 0] = 0.0
    chosen = np.full((count + 1, BUCKETS), -1, np.int64)
    flat = [(run, o) for run, found in options for o in found]
    for number, (run, o) in enumerate(flat):
        steps = int(max(o.freed, 0) / quantum)
        least = max(0, int(np.ceil((run.reference + o.peak - budget) / quantum)))
        if least >= BUCKETS - steps:
            continue
        costs = best[run.first, least : BUCKETS - steps] + o.cost
        target = best[run.end, least + steps :]
        better = costs < target
        target[better] = costs[better]
        chosen[run.end, least + steps :][better] = number
    if not np.isfinite(best[count]).any():
        return None
    return _kept(segments, flat, chosen, count, int(np.argmin(best[count])), quantum)


def _kept(
    segments: Segments,
    flat: list[tuple[Run, Option]],
    chosen: Array,
    segment: int,
    bucket: int,
    quantum: float,
) -> frozenset[int]:
    """Follow the choices back from the last segment."""
    kept = set(segments.problem.everything)
    while segment > 0:
        run, o = flat[chosen[segment, bucket]]
        kept = kept.difference(run.free) | o.kept
        kept |= run.always
        segment, bucket = run.first, bucket - int(max(o.freed, 0) / quantum)
    return frozenset(kept)


def segment_plans(problem: Problem, levels: int = 96) -> Iterator[frozenset[int]]:
    """The plans at budgets from the peak with everything kept down to nothing."""
    segments = Segments(problem)
    options = Search(segments).runs()
    whole = problem.simulate(problem.everything).peak
    for level in range(levels, 0, -1):
        kept = cheapest(segments, options, whole * level // levels)
        if kept is None:  # and so for every lower budget
            return
        yield kept
