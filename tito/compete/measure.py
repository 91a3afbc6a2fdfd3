"""Measuring a whole match: again, and longer, where it was noisy; without those that fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import numpy as np

from tinytorch.files import cache_root
from tito.compete.event import Event
from tito.compete.match import Failed, Launch, launches
from tito.compete.process import Contestant, Failure, Worker
from tito.compete.result import Result, summarize

REPEATS = 2


@dataclass(frozen=True)
class Measured:
    """What is known after a match.

    Attributes:
        launches: every sample.
        result: ratios and verdicts of those that were measured; None if too few were left.
        failed: of each that could not be scored, why.
        peak: operations per second of the event's cores; None where it could not be measured.
        is_noisy: an interval is too wide for a score; the naive backend needs none.
    """

    launches: list[Launch]
    result: Result | None
    failed: dict[str, Failed]
    peak: float | None
    is_noisy: bool = False


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
            _fill_cache(event, left)
            found = list(_launches(event, left, count, draw, confined, begin))
            result = summarize(found, left[0].name, peak := _peak(event.threads))
            for _ in range(repeats):
                if not _is_noisy(result, left):
                    break
                again()
                found = [launch for launch in found if launch.was_quiet]
                found += _launches(event, left, count, draw, confined, begin)
                result = summarize(found, left[0].name, peak)
            return Measured(found, result, failed, peak, _is_noisy(result, left))
        except Failed as error:
            culprit = next(c for c in left if c.name == error.contestant)
            ours = culprit.entry is None
            verdict = "infrastructure" if ours else error.verdict
            failed[culprit.name] = Failed(culprit.name, verdict, error.text)
            left.remove(culprit)
            if ours or len(left) < 2 or not any(c.entry for c in left) or culprit is contestants[0]:
                return Measured([], None, failed, None)


def _fill_cache(event: Event, contestants: Sequence[Contestant]) -> None:
    """Compile the kernels of our own backends once, outside of the sandbox, where they are kept.

    Inside they can be read, and what is compiled there vanishes with each launch. They are written
    for this user alone, and the sandbox's is another where we are root: machine code is no secret.
    """
    draw = np.random.default_rng(0)
    for contestant in (c for c in contestants if c.is_compiled):
        try:
            cache_root().mkdir(parents=True, exist_ok=True)
            with closing(Worker(contestant, event, confined=False)) as worker:
                for case in event.cases:
                    worker.measure(event.task.make(draw, case), event.compile_seconds)
        except (Failure, OSError) as error:
            text = f"its kernels cannot be compiled: {error}"
            raise Failed(contestant.name, "infrastructure", text) from None
        for kernel in cache_root().rglob("*.bin") if os.geteuid() == 0 else ():
            with suppress(FileNotFoundError):  # another process sweeps
                kernel.chmod(0o644)


def _is_noisy(result: Result, contestants: Sequence[Contestant]) -> bool:
    return any(result.verdicts[c.name] == "noisy" for c in contestants if not c.is_naive)


def _launches(
    event: Event,
    contestants: Sequence[Contestant],
    count: int,
    draw: np.random.Generator,
    confined: bool,
    begin: Callable[[int], Callable[[], None]],
) -> list[Launch]:
    small = event.small if any(c.is_naive for c in contestants) else ()
    step = begin(count * (len(event.cases) + len(small)) * event.rounds)
    return list(launches(event, contestants, count, seed=draw, confined=confined, step=step))


def _peak(cores: int) -> float | None:
    """Operations per second of so many cores; None without numba, which measures it."""
    try:
        from tinytorch.bench.peak import multiply_add_peak
    except ImportError:
        return None
    return cores * multiply_add_peak()
