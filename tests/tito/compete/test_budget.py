"""What a time buys, on a clock that only the launches move."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tito.compete import measure as module
from tito.compete.budget import Budget
from tito.compete.event import Event, list_events, load_event
from tito.compete.match import Failed, Launch
from tito.compete.measure import Measured, measure
from tito.compete.process import Contestant

SECONDS = 45.0


class Machine:
    """Launches that take as long as a test says, and a clock.

    Attributes:
        pairs: of each case, launch by launch.
    """

    def __init__(self, first_calls: float, pair: float, spread: float = 0.0) -> None:
        self.first_calls, self.pair, self.spread = first_calls, pair, spread
        self.now, self.pairs = 1000.0, list[int]()
        self.draw = random.Random(1)
        self.disturbed: set[int] = set()

    def launches(
        self, event: Event, contestants: list[Contestant], count: int, *, step: Any, **_: object
    ) -> Iterator[Launch]:
        for _ in range(count):
            self.now += self.first_calls
            self.pairs.append(event.rounds)
            for _ in range(event.rounds):
                self.now += self.pair
                step()
            seconds = {
                c.name: {"a": [self.draw.gauss(1, self.spread if i else 0)] * event.rounds}
                for i, c in enumerate(contestants)
            }
            spent = {c.name: self.first_calls / len(contestants) for c in contestants}
            quiet = len(self.pairs) not in self.disturbed
            yield Launch(
                seconds,
                {"a": [1.0] * event.rounds},
                {"a": [8] * event.rounds},
                spent,
                was_quiet=quiet,
            )


@pytest.fixture
def pair(tmp_path: Any) -> list[Contestant]:
    return [Contestant("numpy"), Contestant("entry", tmp_path / "entry.py", "Entry")]


def run(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, pair: list[Contestant], **options: Any
) -> tuple[Measured, Budget]:
    monkeypatch.setattr(module, "launches", machine.launches)
    monkeypatch.setattr(module, "_peak", lambda cores: None)
    budget = Budget(SECONDS, clock=lambda: machine.now)
    return measure(load_event("matmul"), pair, 8, budget=budget, **options), budget


@pytest.mark.parametrize(
    ("first_calls", "pair_seconds", "pairs"),
    [
        (0.5, 0.1, [2] + [6] * 7),  # the event's pairs
        (2.5, 0.8, [2] + [4] * 7),  # eight launches of fewer pairs: 40.7 s are left for 7
        (4.0, 0.7, [2] * 8),
        (9.0, 3.0, [2] * 3),  # not even so: fewer launches
        (60.0, 9.0, [2] * 3),  # of fewer nothing is known
    ],
)
def test_time_is_divided_over_launches_and_pairs(
    first_calls: float,
    pair_seconds: float,
    pairs: list[int],
    pair: list[Contestant],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(first_calls, pair_seconds)
    measured, budget = run(monkeypatch, machine, pair)
    assert machine.pairs == pairs
    assert budget.spent <= max(SECONDS, 3 * (first_calls + 2 * pair_seconds))
    assert measured.result is not None and not measured.is_noisy
    assert measured.result.verdicts["entry"] == "ok"


def test_what_was_not_bought_is_a_wider_interval(
    pair: list[Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches that differ by 3 %: as many more as there is time for, and no verdict of noise."""
    widths = []
    for first_calls in (1.5, 3.0, 9.0):
        machine = Machine(first_calls, 0.05, spread=0.03)
        measured, budget = run(monkeypatch, machine, pair)
        result = measured.result
        assert result is not None and not measured.is_noisy and budget.spent <= SECONDS
        score = result.scores[1]
        assert score.low < 1 < score.high
        widths.append((len(machine.pairs), result.verdicts["entry"], score.high / score.low))
    assert [count for count, _, _ in widths] == [25, 13, 4]
    assert {word for _, word, _ in widths} == {"wide"}
    assert widths[0][2] < widths[1][2] < widths[2][2]


def test_noise_is_what_the_last_look_does_not_narrow(
    pair: list[Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(0.1, 0.01, spread=0.2)
    measured, _ = run(monkeypatch, machine, pair)
    assert len(machine.pairs) == 32 and measured.is_noisy


def test_a_disturbed_launch_is_noise_whatever_the_time(
    pair: list[Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(9.0, 3.0)
    machine.disturbed = {2}
    measured, _ = run(monkeypatch, machine, pair)
    assert measured.is_noisy and measured.result is not None
    assert measured.result.verdicts["entry"] == "noisy"


def test_without_one_that_fails_the_rest_of_the_time_is_divided_again(
    pair: list[Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1.0, 0.1)
    real, failed = machine.launches, []

    def launches(event: Event, contestants: list[Contestant], *rest: Any, **options: Any) -> Any:
        if len(contestants) == 3 and len(machine.pairs) == 3:
            failed.append(machine.now)
            raise Failed("slow", "timeout", "too slow")
        return real(event, contestants, *rest, **options)

    monkeypatch.setattr(machine, "launches", launches)
    slow = Contestant("slow", pair[1].entry, "Slow")
    measured, budget = run(monkeypatch, machine, [*pair, slow])
    assert failed and machine.pairs[3:] == [2] + [6] * 7 and budget.spent <= SECONDS
    assert set(measured.failed) == {"slow"} and measured.result is not None


@pytest.mark.parametrize("name", list_events())
def test_every_event_is_measured_in_time(
    name: str, pair: list[Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a launch costs, the last one began when it fitted."""
    for first_calls in (0.5, 3.0, 7.0, 20.0):
        machine = Machine(first_calls, first_calls / 4)
        monkeypatch.setattr(module, "launches", machine.launches)
        monkeypatch.setattr(module, "_peak", lambda cores: None)
        budget = Budget(SECONDS, clock=lambda now=machine: now.now)  # type: ignore[misc]
        measure(load_event(name), pair, 8, budget=budget)
        assert budget.spent <= max(SECONDS, 4.5 * first_calls)
        assert len(machine.pairs) >= 3
