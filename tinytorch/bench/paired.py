"""Is it faster, or was it luck? Ratios of paired samples, and an interval around them.

Two functions are timed in pairs, close together in time, so that what disturbs one disturbs the
other. The ratio of a pair is what is kept; a *launch* (fresh processes) has many pairs, and gives
one number for each case: the median of its ratios. Launches differ by more than pairs do, as memory
lies differently in each process, so the interval is taken over launches.

    score = geometric_mean([statistics.median(ratios) for ratios in cases])
    low, high = bootstrap_interval(scores_of_launches)
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

RESAMPLES = 4000
STEPS = 2000  # of Simpson's rule


def paired_ratios(slower: Sequence[float], faster: Sequence[float]) -> list[float]:
    """How many times as long the first took, pair by pair.

    >>> paired_ratios([2.0, 3.0], [1.0, 2.0])
    [2.0, 1.5]

    Raises:
        ValueError: there are not as many of each, or a time is not positive.
    """
    if len(slower) != len(faster):
        raise ValueError(f"pairs need as many of each: {len(slower)} and {len(faster)} samples")
    if min([*slower, *faster], default=1.0) <= 0:
        raise ValueError("a time of a pair is not positive: the clock is too coarse for this work")
    return [a / b for a, b in zip(slower, faster, strict=True)]


def geometric_mean(ratios: Sequence[float]) -> float:
    """The n-th root of the product: twice as fast and half as fast give 1.

    >>> geometric_mean([2.0, 0.5])
    1.0

    Source: P. J. Fleming, J. J. Wallace, "How not to lie with statistics", CACM 29(3), 1986.
    """
    return math.exp(statistics.fmean(map(math.log, ratios)))


def bootstrap_interval(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = statistics.median,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """An interval for a statistic of the distribution that the values were drawn from.

    As many values as there are, n, are drawn from them again, with replacement, and the statistic
    of this sample is computed: `resamples` times. These numbers are sorted, and the interval is
    their middle part: at each end the share `_share_outside(n, confidence)` of them is left out,
    their count rounded down. The same seed gives the same interval.

    The share is smaller than the plain (1 - confidence) / 2, since few values make that too narrow.

    >>> bootstrap_interval([1.0, 1.0, 1.0])
    (1.0, 1.0)

    Raises:
        ValueError: there are fewer than two values.

    Source: T. Hesterberg, "What teachers should know about the bootstrap", The American
    Statistician 69(4), 2015 (the expanded percentile interval).
    """
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs two values or more, not {n}")
    draw = random.Random(seed)
    found = sorted(statistic(draw.choices(values, k=n)) for _ in range(resamples))
    first = math.floor(_share_outside(n, confidence) * resamples)
    return found[first], found[resamples - 1 - first]


def student_interval(values: Sequence[float], *, confidence: float = 0.95) -> tuple[float, float]:
    """An interval for the geometric mean, from Student's distribution of the logarithms.

    For values too few for a bootstrap, which never reaches beyond the least and the largest. It
    assumes that the logarithms are about normal.

    >>> low, high = student_interval([0.5, 2.0], confidence=0.5)
    >>> round(low, 9), round(high, 9)
    (0.5, 2.0)

    Raises:
        ValueError: there are fewer than two values.

    Source: Student, "The probable error of a mean", Biometrika 6(1), 1908.
    """
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs two values or more, not {n}")
    logs = [math.log(v) for v in values]
    t = student_quantile((1 + confidence) / 2, n - 1)
    reach = t * statistics.stdev(logs) / math.sqrt(n)
    middle = statistics.fmean(logs)
    return math.exp(middle - reach), math.exp(middle + reach)


def pairs_needed(ratios: Sequence[float], precision: float, **options: Any) -> int:
    """How many pairs until the interval reaches no further than `precision` from the median.

    The interval of the ratios measured so far reaches h from their median, where h is half of its
    width, relative to the median. The width falls with the square root of the number of pairs n, so
    n (h / precision)^2 are needed, rounded up, and two at least.

    >>> pairs_needed([0.75, 1.0, 1.25] * 4, 0.25), pairs_needed([0.75, 1.0, 1.25] * 4, 0.125)
    (12, 48)

    Args:
        ratios: of a few pairs, to begin with.
        precision: relative; 0.03 for 3 %.
        options: those of `bootstrap_interval`.

    Raises:
        ValueError: the precision is not positive, or there are fewer than two ratios.

    Source: R. Jain, "The Art of Computer Systems Performance Analysis", 1991, chapter 13.
    """
    if precision <= 0:
        raise ValueError(f"the precision must be positive, not {precision}")
    low, high = bootstrap_interval(ratios, **options)
    reach = (high - low) / 2 / statistics.median(ratios)
    return max(2, math.ceil(len(ratios) * (reach / precision) ** 2))


def false_alarms(trials: Iterable[Sequence[float]], **options: Any) -> float:
    """The share of A/A trials that see a difference: 1 is outside of their interval.

    In an A/A trial both sides are the same code, so every difference is luck. At a confidence of
    95 % about one trial in twenty may claim one; a method that claims more is not to be believed
    when it compares A with B.

    >>> false_alarms([[0.99, 1.01, 1.0], [1.2, 1.2, 1.2]])
    0.5

    Args:
        trials: for each the values (ratios, or scores of launches) of which the interval is taken.
        options: those of `bootstrap_interval`.

    Raises:
        ValueError: there are no trials, or one has fewer than two values.

    Source: R. Kohavi, R. Longbotham, D. Sommerfield, R. Henne, "Controlled experiments on the web:
    survey and practical guide", Data Mining and Knowledge Discovery 18, 2009 (the A/A test).
    """
    intervals = [bootstrap_interval(values, **options) for values in trials]
    if not intervals:
        raise ValueError("a rate of false alarms needs a trial at least")
    return sum(not low <= 1.0 <= high for low, high in intervals) / len(intervals)


def _share_outside(n: int, confidence: float) -> float:
    """How much of the bootstrap distribution of n values to leave out at each end.

    >>> round(_share_outside(6, 0.95), 4), round(_share_outside(1000, 0.95), 4)
    (0.0024, 0.0248)

    Source: T. Hesterberg, "What teachers should know about the bootstrap", 2015 (the expanded
    percentile interval: as much further out as Student's distribution is wider than the normal).
    """
    t = student_quantile((1 + confidence) / 2, n - 1)
    return statistics.NormalDist().cdf(-math.sqrt(n / (n - 1)) * t)


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """The t below which a variable of Student's distribution stays with this probability.

    >>> round(student_quantile(0.975, 4), 3)
    2.776

    Args:
        probability: at least one half, below 1.
        degrees: of freedom.
    """
    low, high = 0.0, 1.0
    while _student_below(high, degrees) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _student_below(middle, degrees) < probability else (low, middle)
        )
    return (low + high) / 2


def _student_below(t: float, degrees: int) -> float:
    """One half and the integral of the density from 0 to t, by Simpson's rule."""
    logs = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(logs) / math.sqrt(degrees * math.pi)
    step = t / STEPS
    total = 0.0
    for i in range(STEPS + 1):
        weight = 1 if i in (0, STEPS) else 4 if i % 2 else 2
        total += weight * (1 + (i * step) ** 2 / degrees) ** (-(degrees + 1) / 2)
    return 0.5 + scale * total * step / 3
