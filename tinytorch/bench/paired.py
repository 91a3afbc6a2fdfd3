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
from collections.abc import Callable, Sequence
from functools import cache

RESAMPLES = 4000
STEPS = 2000  # of Simpson's rule


def paired_ratios(slower: Sequence[float], faster: Sequence[float]) -> list[float]:
    """How many times longer the first took, pair by pair.

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

    The values are drawn again, with replacement, as many as there are; the statistic of each such
    sample is computed, and the interval holds the middle part of them. Few values make it too
    narrow: the percentiles are taken further out, by what Student's distribution is wider than the
    normal one.

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
    outside = statistics.NormalDist().cdf(
        -math.sqrt(n / (n - 1)) * student_quantile((1 + confidence) / 2, n - 1)
    )
    first = min(math.floor(outside * resamples), (resamples - 1) // 2)
    return found[first], found[resamples - 1 - first]


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
