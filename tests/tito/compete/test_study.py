"""The same code against itself: how often the harness says so."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.system_tools import needs_sandbox
from tito.cli import app
from tito.compete import study as module
from tito.compete.event import Event
from tito.compete.match import Failed, Launch
from tito.compete.measure import REPEATS, Measured
from tito.compete.result import NOISY, _interval, summarize
from tito.compete.study import StudyError, at_most, study

UNLIKELY = 1e-4


def measured(scores: list[float]) -> Measured:
    launches = [Launch({"numpy": {"a": [s]}, "copy": {"a": [1.0]}}, {"a": [1.0]},
                       {"numpy": 0.1, "copy": 0.1}) for s in scores]  # fmt: skip
    return Measured(launches, summarize(launches, "numpy"), {}, None)


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of the matches that were measured; every third does not hold, and the seventh is stopped."""
    found: list[int] = []

    def measure(event: Event, pair: Any, count: int, *, seed: int, **_: object) -> Measured:
        assert event.division == "open" and [c.name for c in pair] == ["numpy", "copy"]
        if len(found) == 6:
            found.append(seed)
            raise KeyboardInterrupt
        found.append(seed)
        return measured([1.01, 1.01, 1.02] if seed % 3 == 0 else [0.99, 1.0, 1.02])

    monkeypatch.setattr(module, "measure", measure)
    return found


def test_an_interrupted_study_goes_on_where_it_was(
    kernel_event: Event, tmp_path: Path, seeds: list[int]
) -> None:
    file = tmp_path / "aa.jsonl"
    with pytest.raises(KeyboardInterrupt):
        study(kernel_event, 9, 3, seed=10, file=file)
    steps: list[int] = []
    done = study(kernel_event, 9, 3, seed=10, file=file, step=lambda: steps.append(len(seeds)))
    assert seeds == [*range(10, 17), 16, 17, 18]
    assert [m.seed for m in done] == [*range(10, 19)]
    assert [m.holds for m in done] == [m.seed % 3 != 0 for m in done]
    assert steps == [7] * 6 + [8, 9, 10]
    assert study(kernel_event, 9, 3, file=file) == done and len(seeds) == 10
    with pytest.raises(StudyError, match=r"of another study.*'launches': 3.*'launches': 4"):
        study(kernel_event, 9, 4, file=file)
    file.write_text("{}\n{}\n")
    with pytest.raises(StudyError, match="is not the file of a study"):
        study(kernel_event, 9, 3, file=file)


def test_the_command_says_how_many_held(
    kernel_event: Event, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["compete", "aa", str(kernel_event.folder), "--matches", "6", "--seed", "1"]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 1, done.output
    assert "4 of 6 matches held" in done.output and "few or fewer with 0.033" in done.output

    def fails(event: Event, pair: Any, *_: object, **__: object) -> Measured:
        return Measured([], None, {"copy": Failed("copy", "timeout", "too slow")}, None)

    monkeypatch.setattr(module, "measure", fails)
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 3 and "match 1: copy: timeout: too slow" in done.output


def test_how_likely_so_few_are() -> None:
    assert at_most(6, 6) == pytest.approx(1.0)
    assert at_most(0, 4) == pytest.approx(0.05**4)
    assert at_most(4, 6) == pytest.approx(1 - 0.95**6 - 6 * 0.05 * 0.95**5)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_a_match_that_is_measured_again_while_noisy_still_covers(spread: float) -> None:
    """Launches whose true ratio is 1, of which one in seven is six times as far off."""
    draw = random.Random(3)

    def launch() -> float:
        return math.exp(draw.gauss(0, spread) * (6 if draw.random() < 1 / 7 else 1))

    held, matches = 0, 100
    for _ in range(matches):
        scores: list[float] = []
        for _ in range(1 + REPEATS):
            scores += [launch() for _ in range(6)]
            low, high = _interval(scores)
            if high <= NOISY * low:
                break
        held += low <= 1.0 <= high
    assert at_most(held, matches) > UNLIKELY, held


@needs_sandbox
@pytest.mark.slow
def test_a_copy_of_the_baseline_is_as_fast_as_it(open_event: Event) -> None:
    """In worker processes, in the sandbox. What is asserted fails by luck once in ten thousand.

    Launches have no side that they prefer: of n about one half has a ratio above 1. And matches
    hold, each with 95 %.
    """
    done = study(open_event, 4, 6, seed=7, repeats=0)
    scores = [score for match in done for score in match.scores]
    assert len(scores) == 24
    above = sum(score > 1 for score in scores)
    assert 2 * at_most(min(above, 24 - above), 24, share=0.5) > UNLIKELY, scores
    assert at_most(sum(match.holds for match in done), 4) > UNLIKELY, done
