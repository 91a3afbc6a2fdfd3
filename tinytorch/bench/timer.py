"""Honest timing: callables side by side, interleaved, by median.

Comparing two functions by timing first one and then the other compares the machine at two moments.
So every round takes one sample of each (A B A B ...), and a ratio is the median over the rounds of
the ratio within a round. The default clock is the CPU time of the calling thread: it stands still
while another process has the core. For work on several threads take the wall clock.

    timings = time_callables({"ours": step, "torch": torch_step})
    timings["ours"].median, timings["ours"].iqr
    ratio(timings["torch"], timings["ours"])        # how many times faster ours is
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.thread_time, "wall": time.perf_counter}


@dataclass(frozen=True)
class Timing:
    """Samples of the time that one call takes.

    Attributes:
        samples: seconds per call, one for each round.
        calls: calls over which each sample was taken.
        clock: "cpu" or "wall".
    """

    samples: tuple[float, ...]
    calls: int
    clock: str

    @property
    def median(self) -> float:
        """Seconds per call, the median of the samples."""
        return statistics.median(self.samples)

    @property
    def fastest(self) -> float:
        """Seconds per call, the least disturbed sample."""
        return min(self.samples)

    @property
    def iqr(self) -> float:
        """The interquartile range in seconds: half of the samples lie within it."""
        if len(self.samples) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.samples, n=4, method="inclusive")
        return upper - lower

    @property
    def spread(self) -> float:
        """iqr / median. More than about 0.1 says that something disturbed the run."""
        return self.iqr / self.median if self.median else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The timings as plain values, as for JSON: median, fastest and iqr in seconds, and how
        they were taken."""
        return {
            "median_s": self.median,
            "fastest_s": self.fastest,
            "iqr_s": self.iqr,
            "rounds": len(self.samples),
            "calls_per_sample": self.calls,
            "clock": self.clock,
        }


def time_callables(
    functions: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    clock: str = "cpu",
    sample_seconds: float = 0.005,
    warmup: int = 3,
) -> dict[str, Timing]:
    """Time functions against each other in interleaved rounds.

    Args:
        functions: by name; each is called without arguments.
        rounds: samples of each.
        clock: "cpu", the time of the calling thread alone, or "wall".
        sample_seconds: a sample repeats the call until it lasts about this long.
        warmup: calls before anything is measured; compilation and caches fall into them.

    Returns:
        A `Timing` for each function, under its name.

    Raises:
        ValueError: rounds < 1 or an unknown clock.

    The garbage collector is off while samples are taken, and runs between the rounds.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    if clock not in CLOCKS:
        raise ValueError(f"there is no clock {clock!r}; there are {', '.join(CLOCKS)}")
    now = CLOCKS[clock]
    for function in functions.values():
        for _ in range(warmup):
            function()
    calls = {n: _calls_lasting(f, sample_seconds) for n, f in functions.items()}
    samples = _samples(functions, calls, rounds, now)
    return {name: Timing(tuple(samples[name]), calls[name], clock) for name in functions}


def time_callable(function: Callable[[], object], **options: Any) -> Timing:
    """Time one function; the options are those of `time_callables`.

    >>> time_callable(lambda: sum(range(100)), rounds=3).median > 0
    True
    """
    return time_callables({"it": function}, **options)["it"]


def ratio(slower: Timing, faster: Timing) -> float:
    """How many times as long `slower` takes: the median of the ratios within each round.

    Both must have as many samples, on the same clock.

    Raises:
        ValueError: the two were not timed together.
    """
    if len(slower.samples) != len(faster.samples) or slower.clock != faster.clock:
        raise ValueError(
            f"a ratio needs timings of one run: {len(slower.samples)} samples on the "
            f"{slower.clock} clock, {len(faster.samples)} on {faster.clock}"
        )
    pairs = zip(slower.samples, faster.samples, strict=True)
    return statistics.median(a / b for a, b in pairs)


def _samples(
    functions: Mapping[str, Callable[[], object]],
    calls: Mapping[str, int],
    rounds: int,
    now: Callable[[], float],
) -> dict[str, list[float]]:
    """Samples of each function, interleaved: one of each in every round, in their order.

    Before a sample the function is called once more, untimed: that brings the caches back which the
    others have emptied. The garbage collector is off, and runs (generation 0) before each round.
    Afterwards it is on if it was, also after an error.

    Args:
        functions: by name; called without arguments.
        calls: for each name, over how many calls a sample is taken.
        now: a clock, in seconds.

    Returns:
        For each name seconds per call, one sample for each round.
    """
    samples: dict[str, list[float]] = {name: [] for name in functions}
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            gc.collect(0)
            for name, function in functions.items():
                function()
                samples[name].append(_seconds_per_call(function, calls[name], now))
    finally:
        if was_enabled:
            gc.enable()
    return samples


def _seconds_per_call(
    function: Callable[[], object], calls: int, now: Callable[[], float]
) -> float:
    """Call the function `calls` times; seconds on the clock `now` for one of them, on average."""
    start = now()
    for _ in range(calls):
        function()
    return (now() - start) / calls


def _calls_lasting(
    function: Callable[[], object], seconds: float, now: Callable[[], float] = time.perf_counter
) -> int:
    """How many calls take at least `seconds` on the clock `now`, found by trying.

    The first try is one call. If a try was too short, the next has as many calls as the rate so far
    says, and one more; but at least twice and at most ten times as many as the last. The clock must
    go on by itself: one that stands still, as CPU time while a function sleeps, has no end.
    """
    calls = 1
    while True:
        taken = _seconds_per_call(function, calls, now) * calls
        if taken >= seconds:
            return calls
        calls = max(calls * 2, min(calls * 10, int(calls * seconds / max(taken, 1e-9)) + 1))
