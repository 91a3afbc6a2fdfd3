"""Measuring a whole match: again, and longer, where it was noisy; without those that fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinytorch.files import cache_root
from tito.compete.budget import Budget
from tito.compete.event import Event
from tito.compete.load import PATIENCE_SECONDS
from tito.compete.match import Failed, Launch, launches
from tito.compete.process import Contestant, Failure, Worker
from tito.compete.result import Peak, Result, summarize, was_quiet

REPEATS = 2


@dataclass(frozen=True)
class Measured:
    """What is known after a match.

    Attributes:
        launches: every sample.
        result: ratios and verdicts of those that were measured; None if too few were left.
        failed: of each that could not be scored, why.
        peak: what the event's cores can do a second; None where it could not be measured.
        is_noisy: an interval is too wide for a score; the naive backend needs none.
    """

    launches: list[Launch]
    result: Result | None
    failed: dict[str, Failed]
    peak: Peak | None
    is_noisy: bool = False


def measure(
    event: Event,
    contestants: Sequence[Contestant],
    count: int,
    *,
    seed: int | None = None,
    confined: bool = True,
    repeats: int = REPEATS,
    budget: Budget | None = None,
    begin: Callable[[int], Callable[[], None]] = lambda total: lambda: None,
    again: Callable[[], None] = lambda: None,
) -> Measured:
    """Measure contestants in turn; ratios are to the first.

    An entry that fails is left out, and the others are measured from the beginning. A baseline that
    fails is our fault, and its verdict "infrastructure". Launches that other programs disturbed do
    not count where the match is measured again.

    Args:
        count: launches.
        repeats: twice as many launches, up to so many times, while the match is noisy.
        budget: how long all of it may take; what is then not known is "wide" in place of "noisy".
        begin: called before measuring with the number of rounds; what it returns, after each round.
        again: called before a noisy match is measured again.
    """
    failed: dict[str, Failed] = {}
    left = list(contestants)
    draw = np.random.default_rng(seed)  # one for all launches: no inputs come twice
    while True:
        try:
            _fill_cache(event, left)
            if budget is not None:
                budget.begin()
            peak, found = _peak(event.threads), list[Launch]()
            for look in range(1 + repeats):
                if look:
                    again()
                    found = [launch for launch in found if launch.was_quiet]
                more = count << max(0, look - 1)  # looks at count, 2 count and 4 count launches
                found += _launches(event, left, more, draw, confined, budget, begin)
                result = summarize(found, left[0].name, peak)
                if not (is_noisy := _is_noisy(result, left)):
                    break
                if budget is not None and not budget.affords():
                    result, is_noisy = _widened(result, found), not was_quiet(found)
                    break
            return Measured(found, result, failed, peak, is_noisy)
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


def _widened(result: Result, found: Sequence[Launch]) -> Result:
    """Noise is what more launches do not narrow; here there was no time for them."""
    word = "wide" if was_quiet(found) else "noisy"
    told = {name: word if v == "noisy" else v for name, v in result.verdicts.items()}
    return replace(result, verdicts=told)


def _launches(
    event: Event,
    contestants: Sequence[Contestant],
    count: int,
    draw: np.random.Generator,
    confined: bool,
    budget: Budget | None,
    begin: Callable[[int], Callable[[], None]],
) -> Iterator[Launch]:
    """So many launches, or as many as there is time for."""
    small = event.small if any(c.is_naive for c in contestants) else ()
    step = begin(count * (len(event.cases) + len(small)) * event.rounds)
    options: dict[str, Any] = {"seed": draw, "confined": confined, "step": step}
    if budget is None:
        yield from launches(event, contestants, count, **options)
        return
    for _ in range(count):
        if not budget.affords():
            return
        one = replace(event, rounds=budget.pairs(event.rounds, count))
        began = budget.spent
        patience = min(PATIENCE_SECONDS, max(0.0, budget.seconds - began))
        (launch,) = launches(one, contestants, 1, patience=patience, **options)
        budget.note(sum(launch.compile_seconds.values()), one.rounds, budget.spent - began)
        yield launch


def _peak(cores: int) -> Peak | None:
    """What so many cores can do a second; None without numba, which measures it."""
    try:
        from tinytorch.bench.peak import cache_bandwidth, multiply_add_peak
    except ImportError:
        return None
    return Peak(cores * multiply_add_peak(), cores * cache_bandwidth())
