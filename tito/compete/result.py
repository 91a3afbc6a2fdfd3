"""From samples to a table: ratios to the baseline, their intervals, and a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tinytorch.bench.paired import (
    bootstrap_interval,
    geometric_mean,
    paired_ratios,
    student_interval,
)
from tito.compete.match import Launch

NOISY = 1.03  # upper over lower end of the interval
CONFIDENCE = 0.99  # of each of up to three looks, of which the narrow one is accepted
MANY = 8  # launches; of fewer, not even the least and the largest have their median between them
#            with this probability (1 - 2 ** (1 - n)), and a bootstrap has no more than these
SUSPICIOUS = 1.02  # times the least that a call can take: nothing is that fast


class Peak(NamedTuple):
    """What the event's cores can do a second at most: operations, and bytes out of a cache."""

    flops: float
    bytes: float


@dataclass(frozen=True)
class Row:
    """One contestant in one case, or over all of them.

    Attributes:
        ratio: how many times as fast as the baseline: the median over launches.
        low, high: the 95 % interval of it.
        milliseconds: the median call.
        gflops: at the median rate; 0 over all cases.
    """

    name: str
    case: str
    ratio: float
    low: float
    high: float
    milliseconds: float
    gflops: float


@dataclass(frozen=True)
class Result:
    """Of a whole match.

    Attributes:
        baseline: whom ratios are to.
        rows: a row for each contestant and case.
        scores: a row for each contestant: the geometric mean over cases.
        by_launch: for each contestant its score in each launch.
        verdicts: "ok", "noisy", "wide" or "impossible" of each contestant.
        compile_seconds: of each, the median over launches.
        others: cores that other programs used in the worst launch.
    """

    baseline: str
    rows: tuple[Row, ...]
    scores: tuple[Row, ...]
    by_launch: dict[str, tuple[float, ...]]
    verdicts: dict[str, str]
    compile_seconds: dict[str, float]
    others: float

    def to_dict(self) -> dict[str, Any]:
        """For a machine to read."""
        return asdict(self)


def summarize(launches: Sequence[Launch], baseline: str, peak: Peak | None = None) -> Result:
    """Ratios of each contestant to the baseline, over launches.

    Args:
        peak: what the event's cores can do at most, if it was measured.
    """
    rows, scores = [], []
    by_launch: dict[str, tuple[float, ...]] = {}
    verdicts: dict[str, str] = {}
    for name in launches[0].seconds:
        own = [_row(launches, name, case, baseline) for case in launches[0].seconds[name]]
        by_launch[name] = tuple(_score(launch, name, baseline) for launch in launches)
        low, high = _interval(by_launch[name])
        total = statistics.median(by_launch[name])
        rows += own
        scores.append(Row(name, "all", total, low, high, 0.0, 0.0))
        known = len(launches) > 1 and was_quiet(launches)
        verdicts[name] = "ok" if known and high <= NOISY * low else "noisy"
        if peak is not None and any(_is_impossible(launches, name, r.case, peak) for r in own):
            verdicts[name] = "impossible"
    compiling = {
        name: statistics.median(launch.compile_seconds[name] for launch in launches)
        for name in verdicts
    }
    others = max(launch.others for launch in launches)
    return Result(baseline, tuple(rows), tuple(scores), by_launch, verdicts, compiling, others)


def was_quiet(launches: Sequence[Launch]) -> bool:
    """Whether others used few enough cores during all of the launches."""
    return all(launch.was_quiet for launch in launches)


def _row(launches: Sequence[Launch], name: str, case: str, baseline: str) -> Row:
    by_launch = [_ratio(launch, name, case, baseline) for launch in launches]
    seconds = [s for launch in launches for s in launch.seconds[name][case]]
    work = [g for launch in launches for g in launch.gflop[case]]
    rate = statistics.median(g / s for g, s in zip(work, seconds, strict=True))
    low, high = _interval(by_launch)
    middle = statistics.median(by_launch)
    return Row(name, case, middle, low, high, 1e3 * statistics.median(seconds), rate)


def _is_impossible(launches: Sequence[Launch], name: str, case: str, peak: Peak) -> bool:
    """Whether the median call took less time than its operations, or its bytes, take at least."""
    shares = [
        max(1e9 * gflop / peak.flops, size / peak.bytes) / seconds
        for launch in launches
        for gflop, size, seconds in zip(
            launch.gflop[case], launch.bytes[case], launch.seconds[name][case], strict=True
        )
    ]
    return statistics.median(shares) > SUSPICIOUS


def _ratio(launch: Launch, name: str, case: str, baseline: str) -> float:
    pairs = paired_ratios(launch.seconds[baseline][case], launch.seconds[name][case])
    return statistics.median(pairs)


def _score(launch: Launch, name: str, baseline: str) -> float:
    return geometric_mean([_ratio(launch, name, case, baseline) for case in launch.seconds[name]])


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval over launches that covers in 95 % of the matches that are accepted.

    A match is measured until its interval is narrow, and is looked at up to three times. What is
    accepted is selected: an interval that happens to be too narrow is the likeliest to be the last.
    At 95 % in each look it would cover far less often; at 99 % it covers in more than 95 % of the
    accepted matches, whether launches differ by 0.5 %, 1 % or 3 %, if each look has twice the
    launches of the one before (tests/tito/compete/test_study.py has the simulation).

    Source: P. Armitage, C. K. McPherson, B. C. Rowe, "Repeated significance tests on accumulating
    data", Journal of the Royal Statistical Society A 132(2), 1969.
    """
    if len(values) == 1:
        return values[0], values[0]  # and the verdict is "noisy"
    if len(values) < MANY:
        return student_interval(values, confidence=CONFIDENCE)
    return bootstrap_interval(values, confidence=CONFIDENCE)
