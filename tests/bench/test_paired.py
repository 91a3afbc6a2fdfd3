from __future__ import annotations

import math
import random
import statistics

import pytest

from tinytorch.bench import (
    bootstrap_interval,
    false_alarms,
    geometric_mean,
    paired_ratios,
    pairs_needed,
)
from tinytorch.bench.paired import student_interval, student_quantile


@pytest.mark.parametrize(
    ("probability", "degrees", "t"), [(0.975, 1, 12.706), (0.975, 5, 2.571), (0.95, 10, 1.812)]
)
def test_quantiles_are_those_of_the_printed_tables(probability: float, degrees: int, t: float):
    assert student_quantile(probability, degrees) == pytest.approx(t, abs=1e-3)


def test_ratios_of_pairs():
    with pytest.raises(ValueError, match="2 and 1 samples"):
        paired_ratios([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="too coarse"):
        paired_ratios([1.0], [0.0])
    assert geometric_mean([4.0, 0.25, 1.0]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="not 1"):
        bootstrap_interval([1.0])
    with pytest.raises(ValueError, match="not 1"):
        student_interval([1.0])


def test_students_interval_is_that_of_the_logarithms():
    """exp(0 -+ t s / sqrt(n)), with t = 4.303 of two degrees of freedom and s = log 2."""
    low, high = student_interval([0.5, 1.0, 2.0])
    assert high == pytest.approx(2 ** (4.3027 / 3**0.5), rel=1e-4)
    assert low == pytest.approx(1 / high)
    draw = random.Random(5)
    trials = [[math.exp(draw.gauss(0, 0.01)) for _ in range(4)] for _ in range(400)]
    held = sum(low <= 1 <= high for low, high in map(student_interval, trials))
    assert 0.93 <= held / 400 <= 0.97


@pytest.mark.parametrize("count", [6, 20])
def test_the_interval_holds_the_truth_as_often_as_it_says(count: int):
    """Launches of equal code, 200 times: 1.0 is in the interval in 95 % of them, or nearly."""
    draw = random.Random(7)
    trials = [[math.exp(draw.gauss(0, 0.01)) for _ in range(count)] for _ in range(200)]
    assert false_alarms(trials, resamples=200) <= 0.07
    faster = [[1.05 * each for each in trial] for trial in trials]
    assert false_alarms(faster, resamples=200) > 0.99, "five sigma are seen"


def test_false_alarms_are_counted():
    assert false_alarms([[1.0, 1.0], [1.1, 1.1], [0.9, 0.9], [0.9, 1.1]]) == 0.5
    with pytest.raises(ValueError, match="a trial at least"):
        false_alarms([])


def test_as_many_pairs_as_are_needed():
    draw = random.Random(2)
    pilot = [draw.gauss(1.3, 0.05) for _ in range(40)]
    needed = pairs_needed(pilot, 0.01)
    assert needed == pytest.approx(4 * pairs_needed(pilot, 0.02), abs=4)
    assert pairs_needed(pilot, 10.0) == 2
    more = [draw.gauss(1.3, 0.05) for _ in range(needed)]
    low, high = bootstrap_interval(more)
    assert (high - low) / 2 / statistics.median(more) == pytest.approx(0.01, rel=0.4)
    with pytest.raises(ValueError, match="not 0"):
        pairs_needed(pilot, 0)


def test_an_interval_repeats_itself_and_narrows_with_more_values():
    draw = random.Random(1)
    few = [draw.gauss(1, 0.05) for _ in range(5)]
    many = few + [draw.gauss(1, 0.05) for _ in range(45)]
    assert bootstrap_interval(few) == bootstrap_interval(few)
    width = [high - low for low, high in (bootstrap_interval(few), bootstrap_interval(many))]
    assert width[1] < width[0] / 2
