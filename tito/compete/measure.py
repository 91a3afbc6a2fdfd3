"""Measuring a whole match: again, and longer, where it was noisy; without those that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tito.compete.event import Event
from tito.compete.match import Failed, Launch, launches
from tito.compete.process import Contestant
from tito.compete.result import Result, summarize

REPEATS = 2


@dataclass(frozen=True)
class Measured:
    """What is known after a match.

    Attributes:
        launches: every sample.
        result: ratios and verdicts of those that were measured; None if too few were left.
        failed: of each that could not be scored, why.
        peak: operations per second of one core; None where it could not be measured.
    """

    launches: list[Launch]
    result: Result | None
    failed: dict[str, Failed]
    peak: float | None

    @property
    def is_noisy(self) -> bool:
        """Whether an interval is too wide for a score."""
        return self.result is not None and "noisy" in self.result.verdicts.values()


def measure(
    event: Event,
    contestants: Sequence[Contestant],
    count: int,
    *,
    seed: int | None = None,
    confined: bool = True,
    repeats: int = REPEATS,
    begin: Callable[[int], Callable[[], None]] = lambda total: lambda: None,
    again: Callable[[], None] = lambda: None,
) -> Measured:
    """Measure contestants in turn; ratios are to the first.

    An entry that fails is left out, and the others are measured from the beginning. A baseline that
    fails is our fault, and its verdict "infrastructure". Launches that other programs disturbed do
    not count where the match is measured again.

    Args:
        count: launches.
        repeats: as many launches more, up to so many times, while the match is noisy.
        begin: called before measuring with the number of rounds; what it returns, after each round.
        again: called before a noisy match is measured again.
    """
    failed: dict[str, Failed] = {}
    left = list(contestants)
    draw = np.random.default_rng(seed)  # one for all launches: no inputs come twice
    while True:
        try:
            found = list(_launches(event, left, count, draw, confined, begin))
            result = summarize(found, left[0].name, peak := _peak())
            for _ in range(repeats):
                if "noisy" not in result.verdicts.values():
                    break
                again()
                found = [launch for launch in found if launch.was_quiet]
                found += _launches(event, left, count, draw, confined, begin)
                result = summarize(found, left[0].name, peak)
            return Measured(found, result, failed, peak)
        except Failed as error:
            culprit = next(c for c in left if c.name == error.contestant)
            ours = culprit.entry is None
            verdict = "infrastructure" if ours else error.verdict
            failed[culprit.name] = Failed(culprit.name, verdict, error.text)
            left.remove(culprit)
            if ours or len(left) < 2 or not any(c.entry for c in left) or culprit is contestants[0]:
                return Measured([], None, failed, None)


def _launches(
    event: Event,
    contestants: Sequence[Contestant],
    count: int,
    draw: np.random.Generator,
    confined: bool,
    begin: Callable[[int], Callable[[], None]],
) -> list[Launch]:
    step = begin(count * len(event.cases) * event.rounds)
    return list(launches(event, contestants, count, seed=draw, confined=confined, step=step))


def _peak() -> float | None:
    """Operations per second of one core; None without numba, which measures it."""
    try:
        from tinytorch.bench.peak import multiply_add_peak
    except ImportError:
        return None
    return multiply_add_peak()
