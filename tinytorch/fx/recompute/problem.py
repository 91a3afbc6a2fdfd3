"""What may be forgotten in the forward and computed again in the backward, and what that does.

The graph is reduced to ops that make memory. A plan says which storages of the forward are kept for
the backward; every other one that the backward reads is computed again right before its first use
there, from what is kept, and lives until its last. `Problem.simulate` says what a plan takes to the
byte, in milliseconds, without rewriting the graph: plans are measured, not estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch.fx

from tinytorch.errors import TinyTorchError
from tinytorch.fx.capture.slots import TANGENT
from tinytorch.fx.diagnosis.reasons import line_of
from tinytorch.graph.memory import lifetimes
from tinytorch.graph.recompute import FLOPS_PER_BYTE, is_forward
from tinytorch.graph.semantics import Semantics
from tinytorch.graph.storages import Storages

RANDOM_STATE_BYTES = 5056  # of the CPU's generator: what replaying a random op keeps


def _at(node: torch.fx.Node) -> str:
    line = line_of(node)
    return f", at {line}" if line else ""


class RecomputeError(TinyTorchError, ValueError):
    """A graph that cannot be recomputed, or a budget that cannot be met."""


@dataclass
class Op:
    """A node that makes memory, or one of the backward that reads the forward's.

    Attributes:
        node: in the graph.
        reads: storages of the forward that it reads; inputs and constants left out.
        makes: storages that it makes.
        cost: of computing it, in FLOPs or in seconds.
        flops: of it.
    """

    node: torch.fx.Node
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
        cost: of what is computed again, in the unit of the ops.
        flops: of what is computed again.
        source: the strategy that found it.
    """

    kept: frozenset[int]
    peak: int
    cost: float
    flops: int
    source: str = ""


class Again(NamedTuple):
    """An op that may be computed again.

    Attributes:
        needs: storages it reads that may be missing.
        reads: all that it reads and a view knows.
        makes: storages.
        born: what it makes: bytes, and by which key `Walk.last` knows it.
        cost, flops: of it.
    """

    needs: tuple[int, ...]
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    born: tuple[tuple[int, int], ...]
    cost: float
    flops: int


class View(NamedTuple):
    """A part of the backward as `walk` reads it, thousands of times.

    Attributes:
        events: bytes before and during each op, apart from what a plan says; which of the known
            storages it reads that are kept in any case, and which that a plan may leave out.
            Neighbours that read none are one event.
        open: the storages that a plan may leave out, each with the op that computes it again.
    """

    events: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]
    open: dict[int, Again]


@dataclass
class Walk:
    """The backward under a plan, or a part of it, event by event.

    Attributes:
        live: bytes that do not depend on the plan, at each event.
        born: what is computed again: event, bytes, and by which key `last` knows it.
        last: the last event at which a storage of the forward (or what was computed again for it,
            at its number plus the number of storages) is used.
        cost, flops: of what is computed again.
    """

    live: list[int]
    born: list[tuple[int, int, int]]
    last: dict[int, int]
    cost: float
    flops: int

    def change(self) -> list[int]:
        """How the bytes of what is computed again change at each event, and after the last."""
        change = [0] * (len(self.live) + 1)
        for event, size, key in self.born:
            change[event] += size
            change[self.last[key] + 1] -= size
        return change


class Problem:
    """A joint graph, or a whole training step, as a problem of recomputation.

    Args:
        graph: functional, its nodes with meta["phase"].
        found: its storages.
        semantics: of its ops.
        seconds: measured time of each node; by default a cost in FLOPs stands for it, where a byte
            moved counts for as many FLOPs as a core computes meanwhile.
        held_bytes: what whoever runs the graph holds beside it.
        read_only: the graph is only looked at, so its ops may write in place.

    Attributes:
        forward, backward: ops in order.
        needed: storages of the forward that the backward reads.
        fixed: storages of the forward that cannot be computed again, or are results anyway.
        made_by: for each storage of the forward the op that makes it.

    Raises:
        RecomputeError: an op of forward or backward writes in place what the backward did not make,
            or there is no backward.
    """

    def __init__(
        self,
        graph: torch.fx.Graph,
        found: Storages,
        semantics: Semantics,
        seconds: dict[torch.fx.Node, float] | None = None,
        held_bytes: int = 0,
        read_only: bool = False,
    ) -> None:
        self.graph, self.found, self.semantics = graph, found, semantics
        self.sizes = list(found.sizes)
        self.forward: list[Op] = []
        self.backward: list[Op] = []
        self.total_cost = 0.0
        self.total_flops = 0
        self._seconds = seconds
        self._held_bytes = held_bytes
        self.made_by: dict[int, Op] = {}
        self._forward_touches: list[set[int]] = []  # storages used at an op, and up to the next
        self._collect(read_only)
        if not self.backward:
            raise RecomputeError("the graph has no backward: capture a joint graph or a step")
        self.needed = {s for op in self.backward for s in op.reads}
        self._lifetimes = lifetimes(graph, found)
        results = {s for s, t in self._lifetimes.items() if t.is_result}
        self.fixed = {
            s for s, op in self.made_by.items() if s in results or not self._repeatable(op)
        }

    # -- reading the graph -------------------------------------------------------------------------

    def _collect(self, read_only: bool) -> None:
        in_forward: set[int] = set()
        in_backward = {
            s
            for s, node in enumerate(self.found.makers)
            if node.op == "call_function" and node.meta.get("phase") == "backward"
        }
        writer: torch.fx.Node | None = None
        for node in self.graph.nodes:
            if not read_only and node.op == "call_function" and self._spoils(node, in_backward):
                writer = writer or node
            if writer is not None and node.meta.get("phase") in ("forward", "backward"):
                raise RecomputeError(
                    f"{writer.name} ({writer.target}) writes in place, or may for all that is "
                    f"known, before the backward ends{_at(writer)}; recompute a functional graph, "
                    "and make ops work in place afterwards"
                )
            reads = self.found.read(node) & in_forward
            makes = self.found.made(node) if node.op == "call_function" else ()
            if is_forward(node):
                in_forward.update(makes)
                if makes:
                    self._append(self.forward, node, reads, makes)
                    self._forward_touches.append({*reads, *makes})
                elif self.forward:
                    self._forward_touches[-1] |= (reads | set(self.found.held[node])) & in_forward
            elif node.op == "call_function" and (makes or reads):
                self._append(self.backward, node, reads, makes)

    def _spoils(self, node: torch.fx.Node, backward: set[int]) -> bool:
        """It writes what an op that is computed again may read: not memory of the backward alone.

        Args:
            backward: the storages that the backward makes.
        """
        written = self.semantics.mutates(node)
        return any(not self.found.held[a] or not backward.issuperset(self.found.held[a])
                   for a in written)  # fmt: skip

    def _append(
        self, ops: list[Op], node: torch.fx.Node, reads: set[int], makes: tuple[int, ...]
    ) -> None:
        cost = self.semantics.cost(node)
        if self._seconds is not None:
            value = self._seconds.get(node, 0.0)
        else:
            value = max(float(cost.flops), FLOPS_PER_BYTE * cost.bytes)
        op = Op(node, tuple(sorted(reads)), makes, value if makes else 0.0, cost.flops)
        if ops is self.forward and self.semantics.is_random(node):
            # what replays it: the state of the generator, kept only if it is replayed
            state = len(self.sizes)
            self.sizes.append(RANDOM_STATE_BYTES)
            op.reads = (*op.reads, state)
        ops.append(op)
        if ops is self.forward:
            self.made_by.update(dict.fromkeys(makes, op))
        self.total_cost += op.cost
        self.total_flops += op.flops

    def _repeatable(self, op: Op) -> bool:
        return self.semantics.is_pure(op.node) or self.semantics.is_random(op.node)

    # -- what does not depend on a plan ------------------------------------------------------------

    @cached_property
    def born(self) -> dict[int, int]:
        """For each storage of the forward the index of the op that makes it."""
        born = {s: i for i, op in enumerate(self.forward) for s in op.makes}
        states = {s: i for i, op in enumerate(self.forward) for s in op.reads if s not in born}
        return born | states

    @cached_property
    def forward_last(self) -> dict[int, int]:
        """The last op of the forward that uses a storage."""
        return {s: i for i, touched in enumerate(self._forward_touches) for s in touched}

    @cached_property
    def results(self) -> set[int]:
        """Storages of the forward that are results of the graph."""
        return {s for s in self.born if s in self._lifetimes and self._lifetimes[s].is_result}

    @cached_property
    def forward_live(self) -> list[int]:
        """Bytes alive at each op of the forward if nothing is kept but results."""
        change = [self._held_bytes] + [0] * len(self.forward)
        for s, last in self.forward_last.items():
            change[self.born[s]] += self.sizes[s]
            change[len(self.forward) if s in self.results else last + 1] -= self.sizes[s]
        return list(accumulate(change[:-1]))

    @cached_property
    def backward_live(self) -> list[tuple[int, int]]:
        """For each op of the backward the bytes alive before and during it, without what the
        forward kept or is computed again. Autograd holds the tangents all the while."""
        nodes = list(self.graph.nodes)
        tangents = [n for n in nodes if n.op == "placeholder" and n.meta.get("role") == TANGENT]
        change = [
            self._held_bytes + sum(self.sizes[s] for n in tangents for s in self.found.made(n))
        ]
        change += [0] * len(nodes)
        for s, t in self._lifetimes.items():
            if s not in self.born or t.is_result:
                change[t.first] += t.nbytes
                change[t.last + 1] -= t.nbytes
        at = dict(zip(nodes, accumulate(change[:-1]), strict=True))
        return [
            (at[op.node] - sum(self.sizes[s] for s in op.makes), at[op.node])
            for op in self.backward
        ]

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
        return sorted(found, key=lambda s: self.born[s])

    def dying(self, last: dict[int, int], length: int) -> list[int]:
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
            if s in self.born and s not in self.results:
                start = self.forward_last.get(s, self.born[s] - 1) + 1 - ops.start
                change[min(max(start, 0), len(ops))] += self.sizes[s]
        return list(accumulate(change[:-1]))

    # -- what a plan does --------------------------------------------------------------------------

    def view(
        self,
        positions: range,
        outside: Sequence[int],
        closed: Set[int],
        known: Set[int],
        merged: bool = True,
    ) -> View:
        """A part of the backward, prepared for `walk`.

        Args:
            positions: of the backward's ops.
            outside: bytes at each of them that come from elsewhere.
            closed: storages that are kept whatever a plan says.
            known: storages whose last use matters.
            merged: neighbours that read none of them are one event; else each op is one.
        """
        shift = len(self.sizes)
        again: dict[int, Again] = {}
        for s, op in self.made_by.items():
            if s not in closed:
                again[s] = Again(
                    tuple(r for r in op.reads if r in self.made_by and r not in closed),
                    tuple(r for r in op.reads if r in known or r in self.made_by),
                    op.makes,
                    tuple((self.sizes[m], m + shift) for m in op.makes),
                    op.cost,
                    op.flops,
                )
        events: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = []
        for position, more in zip(positions, outside, strict=True):
            before, during = self.backward_live[position]
            found = self.backward[position].reads
            opened = tuple(s for s in found if s in again)
            closed_reads = tuple(s for s in found if s in known and s not in again)
            quiet = not opened and not closed_reads
            if (
                merged and quiet and events and not any(events[-1][2:])
            ):  # nothing happens: the most counts
                events[-1] = (0, max(during + more, events[-1][1]), (), ())
            else:
                events.append((before + more, during + more, closed_reads, opened))
        return View(events, again)

    def walk(self, view: View, kept: frozenset[int]) -> Walk:
        """Go through a part of the backward under a plan."""
        shift, ops = len(self.sizes), view.open
        live: list[int] = []
        born: list[tuple[int, int, int]] = []
        last: dict[int, int] = {}
        again: set[int] = set()
        cost, flops = 0.0, 0
        for before, during, reads, opened in view.events:
            for s in opened:
                if s in kept or s in again:
                    continue
                pending = [s]
                while pending:
                    t = pending[-1]
                    if t in again:
                        pending.pop()
                        continue
                    op = ops[t]
                    missing = [r for r in op.needs if r not in kept and r not in again]
                    if missing:
                        pending += missing
                        continue
                    pending.pop()
                    again.update(op.makes)
                    event = len(live)
                    live.append(before)
                    for r in op.reads:
                        last[r if r in kept or r not in ops else r + shift] = event
                    for size, key in op.born:
                        last[key] = event
                        born.append((event, size, key))
                    cost += op.cost
                    flops += op.flops
            event = len(live)
            live.append(during)
            for s in reads:
                last[s] = event
            for s in opened:
                last[s if s in kept else s + shift] = event
        return Walk(live, born, last, cost, flops)

    @cached_property
    def whole_view(self) -> View:
        """The whole backward."""
        count = len(self.backward)
        return self.view(range(count), [0] * count, set(), self.born.keys())

    def is_missing(self, s: int, kept: frozenset[int] | set[int], again: set[int]) -> bool:
        """A storage of the forward that is not kept, and not yet computed again."""
        return s not in kept and s not in again and s in self.made_by

    def chain(self, storage: int, kept: frozenset[int] | set[int], again: set[int]) -> list[Op]:
        """The ops that compute a storage again, in order; `again` learns what they make."""
        order: list[Op] = []
        pending = [storage]
        while pending:
            s = pending[-1]
            if s in again:
                pending.pop()
                continue
            op = self.made_by[s]
            missing = [r for r in op.reads if self.is_missing(r, kept, again)]
            if missing:
                pending += missing
                continue
            pending.pop()
            again.update(op.makes)
            order.append(op)
        return order

    def simulate(self, kept: Iterable[int], source: str = "") -> Plan:
        """What a plan takes: its peak to the byte, and what is computed again."""
        plan = frozenset(kept) | self.fixed
        walk = self.walk(self.whole_view, plan)
        peak = max([*self.live_in_forward(walk), *self.live_in_backward(walk)], default=0)
        return Plan(plan, peak, walk.cost, walk.flops, source)

    def live_in_forward(self, walk: Walk) -> list[int]:
        """Bytes alive at each op of the forward, if what a walk uses is kept."""
        return list(map(int.__add__, self.forward_live, self.kept_in_forward(walk.last)))

    def live_in_backward(self, walk: Walk) -> list[int]:
        """Bytes alive at each event of a walk through the whole backward."""
        change = walk.change()
        for s, event in walk.last.items():
            if s in self.born and s not in self.results:
                change[0] += self.sizes[s]
                change[event + 1] -= self.sizes[s]
        return list(map(int.__add__, walk.live, accumulate(change)))
