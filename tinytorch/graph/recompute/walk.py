"""`Walk`: going through the backward under a plan, event by event.

What a plan does not keep is computed again right before its first use in the backward, and lives
until its last. Searches walk thousands of times, so what does not depend on a plan is prepared
once, in a `Part`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Again(NamedTuple):
    """An instruction of the forward that may be computed again.

    Attributes:
        needs: storages it reads that may be missing.
        reads: all that it reads and the part knows.
        makes: storages.
        allocates: what it makes: bytes, and by which key `Walk.last` knows it.
        cost, flops: of it.
    """

    needs: tuple[int, ...]
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    allocates: tuple[tuple[int, int], ...]
    cost: float
    flops: int


class Event(NamedTuple):
    """An instruction of the backward, or neighbours that read nothing a plan says anything of.

    Attributes:
        before, during: bytes alive, apart from what a plan says.
        reads: known storages that it reads and that are kept in any case.
        open: those that it reads and a plan may leave out.
    """

    before: int
    during: int
    reads: tuple[int, ...] = ()
    open: tuple[int, ...] = ()


@dataclass
class Part:
    """A part of the backward, prepared for walking.

    Attributes:
        events: in order.
        again: for each storage that a plan may leave out what computes it again.
        shift: the number of storages: what is computed again has its number plus this as its key.
    """

    events: list[Event]
    again: dict[int, Again]
    shift: int


class Walk:
    """A walk through a part of the backward.

    Args:
        kept: the storages that are kept, of those that may be left out.

    Attributes:
        live: bytes that do not depend on the plan, at each event; computing something again is one.
        allocates: what is computed again: event, bytes, and by which key `last` knows it.
        last: the last event at which a storage of the forward (or what was computed again for it,
            by its key) is used.
        cost, flops: of what is computed again.
    """

    def __init__(self, part: Part, kept: frozenset[int]) -> None:
        self.part, self.kept = part, kept
        self.live: list[int] = []
        self.allocates: list[tuple[int, int, int]] = []
        self.last: dict[int, int] = {}
        self.cost, self.flops = 0.0, 0
        self._again: set[int] = set()
        again, live, last, shift = self._again, self.live, self.last, part.shift
        for before, during, reads, opened in part.events:
            for s in opened:
                if s not in kept and s not in again:
                    self._compute_again(s, before)
            event = len(live)
            live.append(during)
            for s in reads:
                last[s] = event
            for s in opened:
                last[s if s in kept else s + shift] = event

    def _compute_again(self, storage: int, before: int) -> None:
        """Compute a storage, and before it what is missing for that.

        Args:
            before: bytes alive when that begins.
        """
        found, again, kept, last = self.part.again, self._again, self.kept, self.last
        shift = self.part.shift
        pending = [storage]
        while pending:
            s = pending[-1]
            if s in again:
                pending.pop()
                continue
            needs, reads, makes, allocates, cost, flops = found[s]
            missing = [r for r in needs if r not in kept and r not in again]
            if missing:
                pending += missing
                continue
            pending.pop()
            again.update(makes)
            event = len(self.live)
            self.live.append(before)
            for r in reads:
                last[r if r in kept or r not in found else r + shift] = event
            for size, key in allocates:
                last[key] = event
                self.allocates.append((event, size, key))
            self.cost += cost
            self.flops += flops

    def change(self) -> list[int]:
        """The changes of the recomputed bytes at each event, and after the last."""
        change = [0] * (len(self.live) + 1)
        for event, size, key in self.allocates:
            change[event] += size
            change[self.last[key] + 1] -= size
        return change
