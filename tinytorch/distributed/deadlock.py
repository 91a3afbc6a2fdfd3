"""Do the ranks wait for each other for ever? Looked at where a wait takes long; free until then.

Whoever has waited for a second writes into the group's store what it waits for, and how many
collectives it has begun in each communicator; and reads what the others wrote. A rank is blocked if
another has not begun what it waits for. If each is, none can go on to begin it: that is a deadlock.

What was written needs no withdrawal. A wait that was blocked ends only after another rank has gone
on from what it wrote, which was blocked too: so of waits that block each other none was the first
to end.

Source: K. Chandy, J. Misra, L. Haas, "Distributed Deadlock Detection", 1983 (the resource model: a
process waits for all that it has asked).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from tinytorch.distributed.communicator import Communicator
from tinytorch.errors import ProcessGroupError

PATIENCE = 1.0  # seconds of a wait before its first look; then a quarter of the wait to the next
INTERVAL = 0.05  # seconds between two looks while the ranks tell each other of a deadlock


class Wait(NamedTuple):
    """What a rank waits for.

    Attributes:
        call: in words.
        communicator: the name of the one in which it waits for all that it has begun.
        begun: how many collectives it has begun, by communicator.
        phase: 2 for each deadlock that has ended, and 1 if the rank knows that it is in one.
    """

    call: str
    communicator: str
    begun: dict[str, int]
    phase: int = 0


def is_deadlock(waits: Iterable[Wait]) -> bool:
    """Whether every rank waits for a collective that another one, which waits too, has not begun.

    >>> at_barrier = Wait("barrier", "questions", {"questions": 4, "gradients": 7})
    >>> in_backward = Wait("backward", "gradients", {"questions": 3, "gradients": 8})
    >>> is_deadlock([at_barrier, in_backward])
    True
    >>> is_deadlock([at_barrier, in_backward._replace(begun={"questions": 4, "gradients": 8})])
    False
    """
    waits = list(waits)
    return all(
        any(other.begun.get(own.communicator, 0) < own.begun[own.communicator] for other in waits)
        for own in waits
    )


class DeadlockDetector:
    """Waits for collectives; if no rank can go on, each of them is told what each waits for.

    Args:
        store: of the group; for the detector alone.
        questions: the communicator in which the ranks ask each other.
        rank, world_size: of this process, and of the group.

    Attributes:
        questions: as given.
        communicators: all that are in use, `questions` first.
    """

    def __init__(self, store: Any, questions: Communicator, rank: int, world_size: int) -> None:
        self.questions, self.communicators = questions, [questions]
        self._store, self._keys, self._own = store, [str(r) for r in range(world_size)], str(rank)
        self._phase = 0

    def wait(self, work: Any, call: str, communicator: Communicator) -> None:
        """Wait for what was begun in a communicator.

        Raises:
            ProcessGroupError: the ranks wait for each other, on every rank; all can go on then.
            RuntimeError: of PyTorch, say as a rank has gone.
        """
        waited = pause = PATIENCE
        while not _ends_within(work, pause):
            waits = self._exchange(call, communicator)
            told = any(wait.phase > self._phase for wait in waits)
            if told or (waits and is_deadlock(waits)):
                self._end_deadlock(work, call, communicator, waits)
            pause = waited / 4
            waited += pause

    def _exchange(self, call: str, communicator: Communicator) -> list[Wait]:
        """Write what this rank waits for, and return the waits of all, if each wrote in this phase.

        What was written in an earlier one does not count: a deadlock has ended those waits.
        """
        begun = {each.name: each.begun for each in self.communicators}
        wait = Wait(call, communicator.name, begun, self._phase)
        self._store.set(self._own, json.dumps(wait))
        if not self._store.check(self._keys):
            return []
        waits = [Wait(*json.loads(self._store.get(key))) for key in self._keys]
        return waits if all(wait.phase >= self._phase for wait in waits) else []

    def _end_deadlock(
        self, work: Any, call: str, communicator: Communicator, waits: list[Wait]
    ) -> None:
        """Once all ranks know, begin what others have begun, so that all are at the same point.

        Not before: a rank that does not know yet would take the zeros for results. If the work ends
        although not all know, it is an error, as a rank has gone; or it is none after all, as a
        rank left its wait by an interrupt and went on.
        """
        self._phase += 1
        ended = False
        while not self._exchange(call, communicator):
            if ended:
                self._phase -= 1
                self._exchange(call, communicator)
                return
            ended = work.is_completed()
            time.sleep(INTERVAL)
        for each in self.communicators:
            each.catch_up(max(wait.begun.get(each.name, 0) for wait in waits))
        self._phase += 1
        raise ProcessGroupError(differing(wait.call for wait in waits))


def differing(calls: Iterable[str]) -> str:
    """What each rank calls, in words.

    >>> differing(["barrier", "gather_objects"])
    'the ranks do not call the same, or not on the same: rank 0: barrier; rank 1: gather_objects'
    """
    each = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
    return f"the ranks do not call the same, or not on the same: {each}"


def _ends_within(work: Any, seconds: float) -> bool:
    """Wait that long at most. gloo goes on with what was not waited for to the end."""
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()  # raises again, unless it ended just now
    return True
