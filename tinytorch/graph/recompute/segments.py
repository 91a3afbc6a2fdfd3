"""A training step as a chain of segments, and what one choice in a segment does.

A deep model is a chain of segments (blocks) that hand on one value each. The backward goes through
them from the last to the first, so while it is in one, only what *earlier* segments kept weighs on
it. What a choice does within its segment is therefore found by simulating the segment's part of the
backward, with everything kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate

import numpy as np

from tinytorch.graph.recompute.problem import Instruction, Problem
from tinytorch.graph.recompute.walk import Part, Walk

SMALL = 0.02  # of a large storage: what is smaller may cross a cut
LONG = 0.3  # of the forward: what lives longer, such as a mask, does not bind segments together
SHORTEST = 4  # ops in a segment


@dataclass(frozen=True)
class Option:
    """One way to treat a run of segments.

    Attributes:
        kept: candidates of the run that are kept.
        freed: bytes less than with everything kept, until the backward comes to the run.
        peak: bytes while the backward is in the run, relative to everything kept at its beginning.
        cost: of what is computed again.
        touched: keys of `Walk.last`: whether a storage that is not among them is kept changes
            nothing.
    """

    kept: frozenset[int]
    freed: int
    peak: int
    cost: float
    touched: Set[int] = field(default=frozenset(), compare=False)

    def beats(self, other: Option) -> bool:
        """Whether it is at least as good in all respects."""
        return self.freed >= other.freed and self.peak <= other.peak and self.cost <= other.cost


@dataclass(frozen=True)
class Run:
    """Segments `first` to `end`, looked at as one.

    Attributes:
        ops: range of the forward.
        positions: range of the backward in which these segments are read.
        free: storages that may be kept or not.
        always: storages that are kept in any case: small ones, and those that later segments read.
        late: those of them that are read when the backward is in earlier segments.
        elsewhere: storages that are kept when nothing of `free` is.
        normal: bytes kept of these segments if everything is.
        outside: at each position, bytes that the forward kept elsewhere.
        forward: at each op of the forward, bytes alive if nothing of these segments is kept; empty
            where the backward takes more in any case.
        reference: bytes alive when the backward arrives, everything kept.
    """

    first: int
    end: int
    ops: range
    positions: range
    free: tuple[int, ...]
    always: frozenset[int]
    late: frozenset[int]
    elsewhere: frozenset[int]
    normal: int
    outside: tuple[int, ...]
    forward: tuple[int, ...]
    reference: int


class Segments:
    """The segments of a problem and what can be done with each."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.ends = self._cuts()
        self._parts: dict[tuple[int, int], Part] = {}

    def __len__(self) -> int:
        return len(self.ends)

    # -- cutting -----------------------------------------------------------------------------------

    def _cuts(self) -> list[int]:
        """For each segment the index of the op behind its last one."""
        p = self.problem
        count = len(p.forward)
        lives = {s: (p.defined_at[s], last) for s, last in p.forward_last.items()}
        large = sorted(p.sizes[s] for s in lives)[int(len(lives) * 0.98)] * SMALL
        crossing = [0] * (count + 1)
        carried: dict[int, int] = {}
        for s, (defined_at, last) in lives.items():
            if p.sizes[s] < large or last - defined_at > LONG * count:
                continue
            crossing[defined_at] += 1
            crossing[last] -= 1
            carried.update(dict.fromkeys(range(defined_at, last), s))
        ends = [0]
        stretch: list[int] = []  # neighbouring cuts across which single values are handed on
        for i, values in enumerate(accumulate(crossing)):
            if i < count - 1 and values <= 1:
                stretch.append(i + 1)
                continue
            # where the value is needed anyway, keeping it costs nothing
            for cut in [c for c in stretch if carried.get(c - 1) in p.needed] or stretch[-1:]:
                if cut - ends[-1] >= SHORTEST:
                    ends.append(cut)
            stretch = []
        if count - ends[-1] < SHORTEST and len(ends) > 1:
            ends.pop()
        return [*ends[1:], count]

    @cached_property
    def segment_of(self) -> dict[int, int]:
        """The segment that makes each storage of the forward."""
        starts = [0, *self.ends[:-1]]
        index = np.searchsorted(starts, list(self.problem.defined_at.values()), side="right") - 1
        return dict(zip(self.problem.defined_at, map(int, index), strict=True))

    @cached_property
    def last_reader(self) -> dict[int, int]:
        """The last segment that reads each storage of the forward."""
        starts = [0, *self.ends[:-1]]
        last = self.problem.forward_last
        index = np.searchsorted(starts, list(last.values()), side="right") - 1
        return dict(zip(last, map(int, index), strict=True))

    @cached_property
    def windows(self) -> list[range]:
        """The ops of the backward that belong to each segment.

        An op belongs to the last segment that it, or one behind it, reads. A read does not count
        when the backward has left its segment for good, as when a gradient that was computed in
        the forward is added to another one at the very end.
        """
        read = [[self.segment_of[s] for s in op.reads] for op in self.problem.backward]
        latest = [max(segments, default=len(self) - 1) for segments in read]
        arrived = list(accumulate(latest, min))
        positions = [0] * len(self)
        current = 0
        for segments, there in zip(reversed(read), reversed(arrived), strict=True):
            current = max([current, *(n for n in segments if n <= there + 1)])
            positions[current] += 1
        ends = [len(self.problem.backward) - n for n in accumulate([0, *positions[:-1]])]
        return [range(end - n, end) for end, n in zip(ends, positions, strict=True)]

    @cached_property
    def _last_position(self) -> dict[int, int]:
        """The last op of the backward that reads a storage, if everything is kept."""
        return {s: i for i, op in enumerate(self.problem.backward) for s in op.reads}

    @cached_property
    def _kept_live(self) -> list[int]:
        """Bytes of the forward's storages at each op of the backward, if everything is kept."""
        p = self.problem
        return p.last_used_at(self._last_position, len(p.backward))

    @cache  # noqa: B019
    def run(self, first: int, end: int) -> Run:
        """Segments `first` to `end` as one."""
        p = self.problem
        positions = range(self.windows[end - 1].start, self.windows[first].stop)
        ops = range(self.ends[first - 1] if first else 0, self.ends[end - 1])
        inside = [s for s in p.candidates if first <= self.segment_of[s] < end]
        always = {s for s in inside if self.last_reader[s] >= end}
        largest = max((p.sizes[s] for s in inside), default=0)
        always |= {s for s in inside if p.sizes[s] < SMALL * largest and s in p.needed}
        late = {s for s in inside if self._last_position.get(s, -1) >= positions.stop}
        last = {
            s: self._last_position[s] - positions.start
            for s in inside
            if s in p.needed and self._last_position[s] >= positions.start
        }
        own = p.last_used_at(last, len(positions))
        here = self._kept_live[positions.start : positions.stop]
        return Run(
            first, end, ops, positions,
            free=tuple(s for s in inside if s not in always and s not in late),
            always=frozenset(always | late),
            late=frozenset(late),
            elsewhere=p.everything.difference(inside) | always | late,
            normal=own[0] if own else 0,
            outside=tuple(a - b for a, b in zip(here, own, strict=True)),
            forward=self._forward_without(ops, positions, inside),
            reference=here[0] + p.backward_live[positions.start][0] if here else 0,
        )  # fmt: skip

    @cached_property
    def _forward_live(self) -> list[int]:
        """Bytes alive at each op of the forward, if everything is kept."""
        p = self.problem
        return list(map(int.__add__, p.forward_live, p.kept_in_forward(self._last_position)))

    def _forward_without(
        self, ops: range, positions: range, storages: list[int]
    ) -> tuple[int, ...]:
        p = self.problem
        most = max((p.backward_live[i][1] + self._kept_live[i] for i in positions), default=0)
        if max(self._forward_live[i] for i in ops) <= most:
            return ()
        own = p.kept_in_forward([s for s in storages if s in p.needed])
        return tuple(self._forward_live[i] - own[i] for i in ops)

    def _part(self, run: Run) -> Part:
        """A run prepared for walking; found by its ends, since hashing a run takes longer."""
        found = self._parts.get((run.first, run.end))
        if found is None:
            p = self.problem
            known = {*run.free, *run.always}
            found = p.part(run.positions, run.outside, run.elsewhere, known)
            self._parts[run.first, run.end] = found
        return found

    def measure(self, run: Run, kept: frozenset[int]) -> Option:
        """The effect of keeping these storages of a run, if all others keep everything."""
        p = self.problem
        walk = Walk(self._part(run), kept)
        change, last = walk.change(), walk.last
        used = [s for s in (*kept, *run.always) if s in last or s in run.late]
        for s in used:
            change[0] += p.sizes[s]
            if s not in run.late:
                change[last[s] + 1] -= p.sizes[s]
        peak = max(map(int.__add__, walk.live, accumulate(change)), default=run.reference)
        if run.forward:
            stays = p.kept_in_forward(used, run.ops)
            peak = max(peak, *map(int.__add__, run.forward, stays))
        freed = run.normal - sum(p.sizes[s] for s in used)
        return Option(kept, freed, peak - run.reference, walk.cost, last.keys())

    def structure(self, run: Run) -> Hashable:
        """A key that is equal for runs in which the same choices have the same effect."""
        p = self.problem
        names: dict[int, int] = {}

        def described(op: Instruction) -> Hashable:
            reads = tuple(names.setdefault(s, len(names)) for s in op.reads)
            makes = tuple((names.setdefault(s, len(names)), p.sizes[s]) for s in op.makes)
            return str(op.node.target), op.cost, reads, makes

        ops = [*p.forward[run.ops.start : run.ops.stop],
               *p.backward[run.positions.start : run.positions.stop]]  # fmt: skip
        described_ops = tuple(map(described, ops))
        live = tuple(
            (before + other - run.reference, during - before)
            for (before, during), other in zip(
                p.backward_live[run.positions.start : run.positions.stop], run.outside, strict=True
            )
        )
        always = tuple(sorted(names[s] for s in run.always))
        forward = tuple(n - run.reference for n in run.forward)
        return described_ops, live, forward, always, tuple(names[s] for s in run.free)
