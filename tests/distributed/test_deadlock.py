"""What ranks have written about their waits is taken for a deadlock where it is one, only there."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tinytorch.distributed import deadlock
from tinytorch.distributed.communicator import Communicator
from tinytorch.distributed.deadlock import DeadlockDetector, Wait, is_deadlock

NAMES = "abc"
programs = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6)


class Rank:
    """Begins collectives one after another, and waits for each; may write that it waits."""

    def __init__(self, program: list[str]) -> None:
        self.program, self.done = program, 0
        self.begun = dict.fromkeys(NAMES, 0)
        self.waits_in = ""
        self.written: Wait | None = None

    def is_blocked(self, ranks: list[Rank]) -> bool:
        own = self.waits_in
        return bool(own) and any(r.begun[own] < self.begun[own] for r in ranks)

    def go_on(self, ranks: list[Rank]) -> bool:
        """Whether it could."""
        if self.is_blocked(ranks) or self.done == len(self.program):
            return False
        self.waits_in = self.program[self.done]
        self.begun[self.waits_in] += 1
        self.done += 1
        return True

    def write(self) -> None:
        if self.waits_in:
            self.written = Wait("", self.waits_in, dict(self.begun))


def _is_taken_for_one(ranks: list[Rank]) -> bool:
    waits = [rank.written for rank in ranks if rank.written is not None]
    return len(waits) == len(ranks) and is_deadlock(waits)


@given(
    st.one_of(
        st.lists(programs, min_size=2, max_size=4), st.tuples(programs).map(lambda p: [*p] * 3)
    ),
    st.data(),
)
def test_a_deadlock_is_seen_and_no_other_wait_is_taken_for_one(
    lists: list[list[str]], data: Any
) -> None:
    """Ranks go on in any order, and write at any time; what they wrote is read much later, too."""
    ranks = [Rank(program) for program in lists]
    for _ in range(30):
        rank = data.draw(st.sampled_from(ranks))
        act: Callable[[], Any] = data.draw(
            st.sampled_from([rank.write, lambda rank=rank: rank.go_on(ranks)])
        )
        act()
        if _is_taken_for_one(ranks):
            assert all(each.is_blocked(ranks) for each in ranks)
    while any([rank.go_on(ranks) for rank in ranks]):
        pass
    for rank in ranks:
        if rank.is_blocked(ranks):
            rank.write()
    assert _is_taken_for_one(ranks) == all(rank.is_blocked(ranks) for rank in ranks)


class Store(dict[str, str]):
    """What a detector needs of a store of PyTorch."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)


class Work:
    """Ends when it has been asked that often."""

    def __init__(self, asked: int) -> None:
        self.asked = asked

    def is_completed(self) -> bool:
        self.asked -= 1
        return self.asked <= 0

    def wait(self, timeout: timedelta | None = None) -> None:
        if self.asked > 0:
            raise RuntimeError("timed out")


def test_a_rank_that_was_interrupted_in_a_wait_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has written that it waits, and yet begins what another one waits for."""
    monkeypatch.setattr(deadlock, "PATIENCE", 0.01)
    store, own = Store(), Communicator("own", None, [])
    store["1"] = json.dumps(Wait("barrier", "questions", {"questions": 1, "own": 0}))
    detector = DeadlockDetector(store, Communicator("questions", None, []), 0, 2)
    detector.communicators.append(own)
    own.begun = 1
    detector.wait(Work(asked=3), "backward", own)
    assert Wait(*json.loads(store["0"])) == Wait("backward", "own", {"questions": 0, "own": 1})
