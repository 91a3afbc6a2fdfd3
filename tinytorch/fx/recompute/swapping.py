"""Activations that wait in the host's memory: what that does to peak and time, simulated.

A value of the forward goes out after its last use there and comes back before its first use in the
backward. Copies run one after the other on a stream of their own, beside the computation. The
memory of a value is free from the end of its copy out until it is asked for again; an op waits for
what it reads. The computation never waits for a copy out, so where the stream is too slow, memory
is what suffers.

Source: S. Purandare et al., "muTWO: compile-time techniques for concurrent training of multiple
models", MLSys 2023; X. Peng et al., "Capuchin", ASPLOS 2020.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import torch.fx

from tinytorch.graph.recompute.problem import Instruction, Problem, RecomputeError as RecomputeError
from tinytorch.graph.recompute.walk import Walk


@dataclass(frozen=True)
class Transfer:
    """A value on its way to the host and back; times in seconds from the beginning of the step.

    Attributes:
        storage: its number; `name` is the node that makes it.
        nbytes: of it.
        out: from when to when it is copied to the host.
        back: from when to when it is copied back.
        away: from when to when it takes no memory of the device; empty if it came out too late.
        asked: before which op of the backward it is asked for; ops computed again count.
    """

    storage: int
    name: str
    nbytes: int
    out: tuple[float, float]
    back: tuple[float, float]
    away: tuple[float, float]
    asked: int


@dataclass(frozen=True)
class SwapPlan:
    """A choice of what is kept on the device and what waits in the host's memory, and its effect.

    What is in neither, and is read in the backward, is computed again.

    Attributes:
        kept, swapped: storages of the forward.
        peak: bytes alive on the device at the most, beyond inputs and constants.
        seconds: of the step.
        recompute_seconds, stall_seconds: of these, computing again and waiting for copies.
        transfers: in the order of their way back.
        curve: moments, and the bytes alive from each on.
    """

    kept: frozenset[int]
    swapped: frozenset[int]
    peak: int
    seconds: float
    recompute_seconds: float
    stall_seconds: float
    transfers: tuple[Transfer, ...] = field(repr=False)
    curve: tuple[tuple[float, int], ...] = field(repr=False)


class Swapping:
    """Simulates plans that keep, swap and recompute.

    Args:
        problem: what is kept, swapped and computed again in.
        seconds: of each node of its graph, measured or estimated; a missing one takes no time.
        bandwidth: bytes per second between device and host, in either direction.

    Raises:
        RecomputeError: the bandwidth is not above 0.
    """

    def __init__(
        self, problem: Problem, seconds: Mapping[torch.fx.Node, float], bandwidth: float
    ) -> None:
        if not bandwidth > 0:
            raise RecomputeError(f"a bandwidth of {bandwidth:g} bytes/s: it must be above 0")
        self.problem, self.bandwidth = problem, bandwidth
        self._again = {op.node: seconds.get(op.node, 0.0) for op in problem.forward}
        self._forward, self._backward = self._durations(seconds)

    def _durations(self, seconds: Mapping[torch.fx.Node, float]) -> tuple[list[float], list[float]]:
        """Of each op, with the nodes behind it that make no memory."""
        p = self.problem
        places = {op.node: (row, i) for row, ops in enumerate((p.forward, p.backward))
                  for i, op in enumerate(ops)}  # fmt: skip
        found = [0.0] * len(p.forward), [0.0] * len(p.backward)
        row, i = 0, 0
        for node in p.graph.nodes:
            row, i = places.get(node, (row, i))
            if found[row]:
                found[row][i] += seconds.get(node, 0.0)
        return found

    @cached_property
    def compute_seconds(self) -> float:
        """The seconds of the step if everything is kept."""
        return sum(self._forward) + sum(self._backward)

    @cached_property
    def candidates(self) -> list[int]:
        """Storages that can be swapped: read in the backward, and no results of the graph."""
        p = self.problem
        return [s for s in sorted(p.needed & p.made_by.keys()) if s not in p.results]

    @cached_property
    def inactive(self) -> dict[int, float]:
        """The seconds between each candidate's last use in the forward and the next use."""
        p = self.problem
        ends = list(accumulate(self._forward))
        begins = [ends[-1] + t for t in accumulate(self._backward[:-1], initial=0.0)]
        first: dict[int, int] = {}
        for i, op in enumerate(p.backward):
            for s in op.reads:
                first.setdefault(s, i)
        return {s: begins[first[s]] - ends[p.forward_last[s]] for s in self.candidates}

    @cached_property
    def floor(self) -> int:
        """Bytes that no plan gets below: what single ops make and read."""
        p = self.problem
        least = [during + sum(p.sizes[s] for s in op.reads if s in p.made_by.keys() - p.results)
                 for op, (_, during) in zip(p.backward, p.backward_live, strict=True)]  # fmt: skip
        return max([*p.forward_live, *least])

    def simulate(self, kept: Iterable[int], swapped: Iterable[int] = ()) -> SwapPlan:
        """Simulate a plan: memory to the byte, and time by the durations of the nodes.

        Raises:
            RecomputeError: a storage cannot be swapped.
        """
        p = self.problem
        away = frozenset(swapped)
        if wrong := away.difference(self.candidates):
            raise RecomputeError(
                f"storages {sorted(wrong)} cannot be swapped: the backward does not read them, or "
                "they are results"
            )
        kept = (frozenset(kept) | p.fixed) - away
        walk = Walk(p.each_event, kept | away)
        return _Clockwork(self, walk, away).run(kept)


class _Clockwork:
    """One simulation: goes through the step op by op, and knows the time and the copies."""

    def __init__(self, swapping: Swapping, walk: Walk, swapped: frozenset[int]) -> None:
        self.swapping, self.walk = swapping, walk
        self.sizes = swapping.problem.sizes
        self.swapped = [s for s in sorted(swapped) if s in walk.last]  # else nothing reads it
        self.now = 0.0
        self.stream_free = 0.0
        self.out: dict[int, tuple[float, float]] = {}
        self.back: dict[int, tuple[float, float]] = {}
        self.issued: dict[int, tuple[float, int]] = {}  # when, and before which event
        self.waiting: list[int] = []  # on their way out, in order
        self.away_bytes = 0
        self.curve: list[tuple[float, int]] = []
        self._read_backward()

    def _read_backward(self) -> None:
        """What each event of the backward takes, reads and makes."""
        p, again = self.swapping.problem, self.swapping._again
        ordinary = iter(self.swapping._backward)
        self.events: list[tuple[Instruction, float, int]] = []  # seconds, bytes that it makes
        for op in p.sequence(self.walk):
            seconds = again[op.node] if op.node in again else next(ordinary)
            self.events.append((op, seconds, p.made_bytes(op)))

    def run(self, kept: frozenset[int]) -> SwapPlan:
        p = self.swapping.problem
        self._forward(p.live_in_forward(self.walk))
        self._backward(p.live_in_backward(self.walk), self._prefetches())
        again = sum(seconds for op, seconds, _ in self.events if op.node in self.swapping._again)
        transfers = tuple(
            Transfer(s, p.made_by[s].node.name, self.sizes[s], self.out[s], self.back[s],
                     (self.out[s][1], max(self.issued[s][0], self.out[s][1])), self.issued[s][1])
            for s in self.back
        )  # fmt: skip
        stall = self.now - self.swapping.compute_seconds - again
        return SwapPlan(
            kept, frozenset(self.swapped), max((n for _, n in self.curve), default=0), self.now,
            again, max(0.0, stall), transfers, tuple(self.curve),
        )  # fmt: skip

    def _forward(self, live: list[int]) -> None:
        p = self.swapping.problem
        leaving: dict[int, list[int]] = defaultdict(list)
        for s in self.swapped:
            leaving[p.forward_last[s]].append(s)
        for i, (nbytes, seconds) in enumerate(zip(live, self.swapping._forward, strict=True)):
            self._point(nbytes)
            self.now += seconds
            for s in leaving[i]:
                self.out[s] = self._copy(s, self.now)
                self.waiting.append(s)

    def _prefetches(self) -> dict[int, list[int]]:
        """At which events which values are asked for: as late as their copies allow.

        From the last to the first: a copy is to end when its value is needed or the next one
        begins, if nothing waits.
        """
        begins = list(accumulate((t for _, t, _ in self.events), initial=self.now))
        first: dict[int, int] = {}
        wanted = set(self.swapped)
        for event, (op, _, _) in enumerate(self.events):
            for s in op.reads:
                if s in wanted:
                    first.setdefault(s, event)
        asked: dict[int, list[int]] = defaultdict(list)
        following, event = float("inf"), len(self.events)
        for s in sorted(first, key=lambda s: (first[s], s), reverse=True):
            begin = min(begins[first[s]], following) - self.sizes[s] / self.swapping.bandwidth
            event = min(event, first[s], max(0, bisect_right(begins, begin) - 1))
            asked[event].insert(0, s)
            following = begin
        return asked

    def _backward(self, live: list[int], asked: dict[int, list[int]]) -> None:
        for event, (op, seconds, made) in enumerate(self.events):
            self._come_out()
            for s in asked.get(event, ()):
                if s not in self.waiting:
                    self.away_bytes -= self.sizes[s]
                self.issued[s] = self.now, event
                self.back[s] = self._copy(s, max(self.now, self.out[s][1]))
            ready = max((self.back[s][1] for s in op.reads if s in self.back), default=self.now)
            if ready > self.now:
                self._point(live[event] - made)
                self.now = ready
            self._point(live[event])
            self.now += seconds

    def _copy(self, s: int, earliest: float) -> tuple[float, float]:
        begin = max(self.stream_free, earliest)
        self.stream_free = begin + self.sizes[s] / self.swapping.bandwidth
        return begin, self.stream_free

    def _come_out(self) -> None:
        """Free what has come to the host by now."""
        while self.waiting and self.out[self.waiting[0]][1] <= self.now:
            s = self.waiting.pop(0)
            if s not in self.issued:
                self.away_bytes += self.sizes[s]

    def _point(self, nbytes: int) -> None:
        self._come_out()
        self.curve.append((self.now, nbytes - self.away_bytes))
