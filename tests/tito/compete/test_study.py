"""The same code against itself: how often the harness says so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from tests.system_tools import needs_sandbox
from tinytorch.bench.paired import _share_outside
from tito.cli import app
from tito.compete import study as module
from tito.compete.commands import LAUNCHES
from tito.compete.event import Event
from tito.compete.match import Failed, Launch
from tito.compete.measure import REPEATS, Measured
from tito.compete.result import CONFIDENCE, MANY, NOISY, _interval, summarize
from tito.compete.study import SHARE, StudyError, at_most, study
from tito.leaderboard.jobs import MAX_ATTEMPTS

UNLIKELY = 1e-4


def measured(scores: list[float]) -> Measured:
    launches = [Launch({"numpy": {"a": [s]}, "copy": {"a": [1.0]}}, {"a": [1.0]}, {"a": [8]},
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
        return measured([1.01, 1.0101, 1.0102] if seed % 3 == 0 else [0.99, 1.0, 1.02])

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


Values = NDArray[np.float64]
SHAPES = ("normal", "one in seven is six times as far off")


def simulated(spread: float, shape: str, matches: int) -> Values:
    """Logarithms of launches' ratios, a row for each match, whose true ratio is 1.

    Args:
        spread: their standard deviation, of either shape.
    """
    draw = np.random.default_rng(3)
    found = draw.normal(0, spread, (matches, LAUNCHES << REPEATS))
    if shape == "normal":
        return found
    return found * np.where(draw.random(found.shape) < 1 / 7, 6, 1) / math.sqrt(6 / 7 + 36 / 7)


def exact_intervals(values: Values) -> Values:
    """`_interval` of every row, from the bootstrap's own probabilities in place of its samples.

    The median of a sample is the mean of two of the values, and how probable each two are is the
    same for all rows.
    """
    n = values.shape[1]
    drawn = np.sort(np.random.default_rng(0).integers(0, n, (100_000, n)), axis=1)
    pairs = drawn[:, (n - 1) // 2] * n + drawn[:, n // 2]
    which, count = np.unique(pairs, return_counts=True)
    ordered = np.sort(values, axis=1)
    medians = (ordered[:, which // n] + ordered[:, which % n]) / 2
    order = np.argsort(medians, axis=1)
    medians = np.take_along_axis(medians, order, axis=1)
    below = np.cumsum(count[order] / count.sum(), axis=1)
    outside = _share_outside(n, CONFIDENCE)
    rows = np.arange(len(values))
    ends = (below > outside).argmax(1), (below >= 1 - outside).argmax(1)
    return np.stack([medians[rows, end] for end in ends], axis=1)


def whole_matches(values: Values) -> tuple[Values, Values]:
    """Of each match whether it was accepted, and its interval at the last look."""
    ends = np.zeros((len(values), 2))
    accepted = np.zeros(len(values), dtype=bool)
    for look in range(1 + REPEATS):
        going_on = np.flatnonzero(~accepted)
        ends[going_on] = exact_intervals(values[going_on, : LAUNCHES << look])
        accepted[going_on] = np.diff(ends[going_on])[:, 0] <= math.log(NOISY)
    return accepted, ends


@pytest.mark.parametrize("count", [LAUNCHES << look for look in range(1 + REPEATS)])
def test_what_is_simulated_is_the_interval_in_use(count: int) -> None:
    values = simulated(0.01, "normal", 4)[:, :count]
    found = [np.log(_interval([float(v) for v in np.exp(row)])) for row in values]
    assert np.abs(exact_intervals(values) - found).max() < 0.003


@pytest.mark.parametrize(
    ("shape", "spread", "share"),
    [
        (SHAPES[0], 0.005, 0.99),
        (SHAPES[0], 0.01, 0.99),
        (SHAPES[0], 0.03, 0.1),  # most stay noisy, and what is accepted was selected for luck
        (SHAPES[1], 0.01, 0.99),
        (SHAPES[1], 0.03, 0.9),
        (SHAPES[1], 0.05, 0.3),
    ],
)
def test_what_is_accepted_covers_in_at_least_95_percent(
    shape: str, spread: float, share: float
) -> None:
    """With its looks, of which the first that happens to be narrow is the last."""
    accepted, ends = whole_matches(simulated(spread, shape, 4000))
    assert accepted.mean() > share
    covers = (ends[:, 0] <= 0) & (ends[:, 1] >= 0)
    assert covers[accepted].mean() >= SHARE and covers.mean() >= SHARE


def test_few_launches_have_a_wider_interval_that_covers() -> None:
    """Of Student's distribution: a budget may buy only so many."""
    for count in (2, 3, 5, MANY - 1):
        rows = np.exp(simulated(0.02, "normal", 400)[:, :count])
        ends = np.array([_interval([float(v) for v in row]) for row in rows])
        covers = (ends[:, 0] <= 1) & (ends[:, 1] >= 1)
        assert covers.mean() >= SHARE
        middle = np.median(rows, axis=1)
        assert ((ends[:, 0] <= middle) & (middle <= ends[:, 1])).all(), "the score is within"


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.03])
def test_noise_on_purpose_until_lucky_gains_less_than_five_percent(spread: float) -> None:
    """Who spoils a match that goes badly is measured again, and has the best of so many.

    Nobody can know more than the score itself, and nothing makes a match cheaper to lose.
    """
    values = simulated(spread, "normal", 3000)
    accepted, ends = whole_matches(values)
    lower = np.where(accepted, ends[:, 0], -np.inf)  # what counts on a board
    best = lower.reshape(-1, MAX_ATTEMPTS).max(axis=1)
    gained = best[np.isfinite(best)]
    assert np.exp(gained).max() < 1.05 and np.exp(np.median(gained)) < 1.0


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
