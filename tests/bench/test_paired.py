from __future__ import annotations

import math
import random
import statistics

import pytest

from tinytorch.bench import bootstrap_interval, geometric_mean, paired_ratios
from tinytorch.bench.paired import student_quantile


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


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """Six launches of equal code, 400 times: 1.0 is in the interval in 95 % of them, or nearly."""
    draw = random.Random(7)
    held = 0
    for seed in range(400):
        scores = [math.exp(draw.gauss(0, 0.01)) for _ in range(6)]
        low, high = bootstrap_interval(scores, resamples=1000, seed=seed)
        assert low <= statistics.median(scores) <= high
        held += low <= 1.0 <= high
    assert held >= 0.93 * 400


def test_an_interval_repeats_itself_and_narrows_with_more_values():
    draw = random.Random(1)
    few = [draw.gauss(1, 0.05) for _ in range(5)]
    many = few + [draw.gauss(1, 0.05) for _ in range(45)]
    assert bootstrap_interval(few) == bootstrap_interval(few)
    width = [high - low for low, high in (bootstrap_interval(few), bootstrap_interval(many))]
    assert width[1] < width[0] / 2
