"""What may be left out after the forward and computed again in the backward, and what that does.

The graph is reduced to the nodes that make memory. A plan says which storages of the forward are
kept for the backward; every other one that the backward reads is computed again right before its
first use there, from what is kept, and lives until its last. `Problem.simulate` says what a plan
takes to the byte, in milliseconds, without rewriting the graph: plans are measured, not estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from tinytorch.errors import TinyTorchError
from tinytorch.graph.memory import lifetimes
from tinytorch.graph.recompute.walk import Again, Event, Part, Walk
from tinytorch.graph.semantics import AnyGraph, AnyNode, Semantics
from tinytorch.graph.storages import Storages

FLOPS_PER_BYTE = 6.0  # what a core computes while memory brings a byte


class RecomputeError(TinyTorchError, ValueError):
    """A graph that cannot be recomputed, or a budget that cannot be met."""


def is_forward(node: AnyNode) -> bool:
    """Whether a node is computed in the forward."""
    return bool(node.op == "call_function" and node.meta.get("phase", "forward") == "forward")


@dataclass
class Instruction:
    """A node that makes memory, or one of the backward that reads the forward's.

    Attributes:
        node: in the graph.
        reads: storages of the forward that it reads; inputs and constants left out.
        makes: storages that it makes.
        cost: of computing it, in FLOPs or in seconds.
        flops: of it.
    """

    node: AnyNode
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    cost: float
    flops: int


@dataclass(frozen=True)
class Plan:
    """A choice of what to keep, and what it takes.

    Attributes:
        kept: storages of the forward that stay for the backward.
        peak: bytes alive at the most, beyond inputs and constants.
        cost: of what is computed again, in the unit of the instructions.
        flops: of what is computed again.
        source: the strategy that found it.
    """

    kept: frozenset[int]
    peak: int
    cost: float
    flops: int
    source: str = ""


class Problem:
    """A graph of forward and backward, or a whole training step, as a problem of recomputation.

    Args:
        graph: functional, its nodes with meta["phase"].
        semantics: of its ops.
        found: its storages, if they are known already.
        seconds: measured time of each node; by default a cost in FLOPs stands for it, where a byte
            moved counts for as many FLOPs as a core computes meanwhile.
        held_bytes: what whoever runs the graph holds beside it.
        read_only: the graph is only looked at, so its ops may write in place.

    Attributes:
        forward, backward: instructions in order.
        sizes: bytes of each storage, and behind them of the state that each random op of the
            forward needs to be replayed.
        needed: storages of the forward that the backward reads.
        fixed: storages of the forward that cannot be computed again, or are results anyway.
        made_by: for each storage of the forward the instruction that makes it.

    Raises:
        RecomputeError: an op of forward or backward writes in place what the backward did not make,
            or there is no backward.
    """

    def __init__(
        self,
        graph: AnyGraph,
        semantics: Semantics,
        *,
        found: Storages | None = None,
        seconds: dict[AnyNode, float] | None = None,
        held_bytes: int = 0,
        read_only: bool = False,
    ) -> None:
        self.graph, self.semantics = graph, semantics
        self.found = semantics.storages(graph) if found is None else found
        self.sizes = list(self.found.sizes)
        self.forward: list[Instruction] = []
        self.backward: list[Instruction] = []
        self._seconds = seconds
        self._held_bytes = held_bytes
        self._touched: list[set[int]] = []  # storages used at an instruction, and up to the next
        if not read_only:
            self._check_functional()
        self._collect()
        if not self.backward:
            raise RecomputeError("the graph has no backward: capture a joint graph or a step")
        self.made_by = {s: each for each in self.forward for s in each.makes}
        self.needed = {s for each in self.backward for s in each.reads}
        self._lifetimes = lifetimes(graph, self.found)
        results = {s for s, t in self._lifetimes.items() if t.is_result}
        self.fixed = {
            s for s, each in self.made_by.items() if s in results or not self._is_repeatable(each)
        }

    # -- reading the graph -------------------------------------------------------------------------

    def _check_functional(self) -> None:
        """Refuse a graph that writes what an instruction may read that is computed again."""
        backward = {
            s for s, node in enumerate(self.found.makers)
            if node.op == "call_function" and node.meta.get("phase") == "backward"
        }  # fmt: skip
        writer: AnyNode | None = None
        for node in self.graph.nodes:
            if writer is None and node.op == "call_function" and self._overwrites(node, backward):
                writer = node
            if writer is not None and node.meta.get("phase") in ("forward", "backward"):
                line = self.semantics.user_line(writer)
                raise RecomputeError(
                    f"{writer.name} ({writer.target}) writes in place, or may for all that is "
                    f"known, before the backward ends{line and f', at {line}'}; recompute a "
                    "functional graph, and make ops work in place afterwards"
                )

    def _overwrites(self, node: AnyNode, backward: set[int]) -> bool:
        """Whether a node writes memory that does not belong to the backward only."""
        written = [self.found.held[a] for a in self.semantics.mutates(node)]
        return any(not held or not backward.issuperset(held) for held in written)

    def _collect(self) -> None:
        in_forward: set[int] = set()
        for node in (n for n in self.graph.nodes if n.op == "call_function"):
            reads, makes = self.found.read(node) & in_forward, self.found.made(node)
            if not is_forward(node):
                if makes or reads:
                    self.backward.append(self._instruction(node, reads, makes))
                continue
            in_forward.update(makes)
            if makes:
                self.forward.append(self._instruction(node, reads, makes))
                self._touched.append({*reads, *makes})
            elif self.forward:
                self._touched[-1] |= (reads | set(self.found.held[node])) & in_forward

    def _instruction(self, node: AnyNode, reads: set[int], makes: tuple[int, ...]) -> Instruction:
        flops, nbytes = self.semantics.cost(node)
        cost = max(float(flops), FLOPS_PER_BYTE * nbytes)
        if self._seconds is not None:
            cost = self._seconds.get(node, 0.0)
        found = Instruction(node, tuple(sorted(reads)), makes, cost if makes else 0.0, flops)
        state = self.semantics.random_state_bytes
        if state and is_forward(node) and self.semantics.is_random(node):
            found.reads += (len(self.sizes),)  # kept only if it is replayed
            self.sizes.append(state)
        return found

    def _is_repeatable(self, each: Instruction) -> bool:
        return self.semantics.is_pure(each.node) or self.semantics.is_random(each.node)

    # -- what does not depend on a plan ------------------------------------------------------------

    @cached_property
    def total_cost(self) -> float:
        """Of the whole graph."""
        return sum(each.cost for each in (*self.forward, *self.backward))

    @cached_property
    def total_flops(self) -> int:
        """Of the whole graph."""
        return sum(each.flops for each in (*self.forward, *self.backward))

    @cached_property
    def defined_at(self) -> dict[int, int]:
        """The position of the instruction that makes each storage of the forward."""
        made = {s: i for i, each in enumerate(self.forward) for s in each.makes}
        states = {s: i for i, each in enumerate(self.forward) for s in each.reads if s not in made}
        return made | states

    @cached_property
    def forward_last(self) -> dict[int, int]:
        """The last instruction of the forward that uses a storage."""
        return {s: i for i, touched in enumerate(self._touched) for s in touched}

    @cached_property
    def results(self) -> set[int]:
        """Storages of the forward that are results of the graph."""
        return {s for s in self.defined_at if s in self._lifetimes and self._lifetimes[s].is_result}

    @cached_property
    def forward_live(self) -> list[int]:
        """Bytes alive at each instruction of the forward if nothing is kept but results."""
        change = [self._held_bytes] + [0] * len(self.forward)
        for s, last in self.forward_last.items():
            change[self.defined_at[s]] += self.sizes[s]
            change[len(self.forward) if s in self.results else last + 1] -= self.sizes[s]
        return list(accumulate(change[:-1]))

    @cached_property
    def backward_live(self) -> list[tuple[int, int]]:
        """The bytes alive at each instruction of the backward: before and during it, without what
        the forward kept or is computed again. Autograd holds the tangents all the while."""
        nodes = list(self.graph.nodes)
        makers, external = self.found.makers, self.found.external
        tangents = [s for s in external if makers[s].meta.get("role") == "tangent"]
        change = [self._held_bytes + sum(self.sizes[s] for s in tangents)] + [0] * len(nodes)
        for s, t in self._lifetimes.items():
            if s not in self.defined_at or t.is_result:
                change[t.first] += t.nbytes
                change[t.last + 1] -= t.nbytes
        at = dict(zip(nodes, accumulate(change[:-1]), strict=True))
        return [(at[each.node] - self.made_bytes(each), at[each.node]) for each in self.backward]

    def made_bytes(self, each: Instruction) -> int:
        """Bytes that an instruction makes."""
        return sum(self.sizes[s] for s in each.makes)

    @cached_property
    def everything(self) -> frozenset[int]:
        """The plan that computes nothing again: what the backward reads is kept."""
        return frozenset(self.needed | self.fixed)

    @cached_property
    def candidates(self) -> list[int]:
        """Storages that a plan may keep or not, in the order of the forward.

        Those that something of the backward may be computed from, however far.
        """
        found: set[int] = set()
        pending = list(self.needed)
        while pending:
            s = pending.pop()
            if s in found or s in self.fixed or s not in self.made_by:
                continue
            found.add(s)
            pending += self.made_by[s].reads
        return sorted(found, key=lambda s: self.defined_at[s])

    def last_used_at(self, last: dict[int, int], length: int) -> list[int]:
        """Bytes of storages that are all alive at moment 0, at each moment, as they die."""
        change = [0] * (length + 1)
        for s, moment in last.items():
            if s not in self.results:
                change[0] += self.sizes[s]
                change[min(moment + 1, length)] -= self.sizes[s]
        return list(accumulate(change[:-1]))

    def kept_in_forward(self, kept: Iterable[int], ops: range | None = None) -> list[int]:
        """Bytes that kept storages take in the forward where nothing there needs them any more.

        Args:
            ops: of the forward, at which that is asked; by default all.
        """
        ops = range(len(self.forward)) if ops is None else ops
        change = [0] * (len(ops) + 1)
        for s in kept:
            if s in self.defined_at and s not in self.results:
                start = self.forward_last.get(s, self.defined_at[s] - 1) + 1 - ops.start
                change[min(max(start, 0), len(ops))] += self.sizes[s]
        return list(accumulate(change[:-1]))

    # -- what a plan does --------------------------------------------------------------------------

    def part(
        self,
        positions: range,
        outside: Sequence[int],
        closed: Set[int],
        known: Set[int],
        merged: bool = True,
    ) -> Part:
        """A part of the backward, prepared for walking.

        Args:
            positions: of the instructions of the backward.
            outside: bytes at each of them that come from elsewhere.
            closed: storages that are kept whatever a plan says.
            known: storages whose last use matters.
            merged: neighbours that read none of them are one event; else each is one.
        """
        again = {s: self._again(each, closed, known) for s, each in self.made_by.items()
                 if s not in closed}  # fmt: skip
        events: list[Event] = []
        for position, more in zip(positions, outside, strict=True):
            before, during = self.backward_live[position]
            reads = self.backward[position].reads
            opened = tuple(s for s in reads if s in again)
            others = tuple(s for s in reads if s in known and s not in again)
            quiet = merged and not opened and not others
            if quiet and events and not events[-1].reads and not events[-1].open:
                events[-1] = Event(0, max(during + more, events[-1].during))  # the most counts
            else:
                events.append(Event(before + more, during + more, others, opened))
        return Part(events, again, len(self.sizes))

    def _again(self, each: Instruction, closed: Set[int], known: Set[int]) -> Again:
        shift = len(self.sizes)
        return Again(
            needs=tuple(r for r in each.reads if r in self.made_by and r not in closed),
            reads=tuple(r for r in each.reads if r in known or r in self.made_by),
            makes=each.makes,
            allocates=tuple((self.sizes[m], m + shift) for m in each.makes),
            cost=each.cost,
            flops=each.flops,
        )

    @cached_property
    def whole(self) -> Part:
        """The whole backward."""
        return self._whole(merged=True)

    @cached_property
    def each_event(self) -> Part:
        """The whole backward, with an event for every instruction."""
        return self._whole(merged=False)

    def _whole(self, merged: bool) -> Part:
        count = len(self.backward)
        return self.part(range(count), [0] * count, set(), self.defined_at.keys(), merged)

    def sequence(self, walk: Walk) -> list[Instruction]:
        """The instruction at each event of a walk through `each_event`."""
        again = {event: self.made_by[key - len(self.sizes)] for event, _, key in walk.allocates}
        ordinary = iter(self.backward)
        return [again.get(event) or next(ordinary) for event in range(len(walk.live))]

    def simulate(self, kept: Iterable[int], source: str = "") -> Plan:
        """Simulate a plan: its peak to the byte, and what is computed again."""
        plan = frozenset(kept) | self.fixed
        walk = Walk(self.whole, plan)
        peak = max([*self.live_in_forward(walk), *self.live_in_backward(walk)], default=0)
        return Plan(plan, peak, walk.cost, walk.flops, source)

    def live_in_forward(self, walk: Walk) -> list[int]:
        """Bytes alive at each instruction of the forward, if what a walk uses is kept."""
        return list(map(int.__add__, self.forward_live, self.kept_in_forward(walk.last)))

    def live_in_backward(self, walk: Walk) -> list[int]:
        """Bytes alive at each event of a walk through the whole backward."""
        change = walk.change()
        for s, event in walk.last.items():
            if s in self.defined_at and s not in self.results:
                change[0] += self.sizes[s]
                change[event + 1] -= self.sizes[s]
        return list(map(int.__add__, walk.live, accumulate(change)))
