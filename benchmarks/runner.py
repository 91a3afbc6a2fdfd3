"""Measures contestants side by side, says when the machine was not ours alone, and reports.

A round takes one sample of every contestant (A B A B ...), so that all see the same machine; where
several threads run, after a rest in which those of the contestant before go to sleep. What a core
can do at most is a contestant, too: its clock goes up and down with what it and others do. After
the rounds, the kernel's own accounts say how much CPU time other processes had meanwhile: if they
had more than a little, the case is measured again, and, if it never gets quiet, marked with "!".
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from operator import truediv
from pathlib import Path
from typing import Any

from progress import progress

from tinytorch.bench import format_seconds, format_table
from tinytorch.collector import collector_paused
from tito import strict_json

CLOCKS = {
    "cpu": time.thread_time,
    "process": time.process_time,  # of all threads: of libraries that work in threads of their own
    "wall": time.perf_counter,
}
ROUNDS = 9
WARM_CALLS = 4  # before the last one of a sample: until the last cache holds large arrays again
SAMPLE_SECONDS = 0.004
REST_SECONDS = 0.12  # until the threads of the contestant before sleep; OpenBLAS's take the longest
ATTEMPTS = 3
MOST_FOREIGN = 0.15  # cores that other processes may use during a measurement
MOST_SHARE = 1.03
"""Of the peak; above it the peak was measured wrongly. Clocks change by that much within a case."""

PEAK = "peak"  # the contestant that only multiplies and adds
PEAK_ROUNDS = 100_000  # of its loop in a call: less than a millisecond

Function = Callable[[], object]
Remote = Callable[[int, str], float]  # calls, clock -> seconds per call, in another process


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes:
        group, name: what it is.
        contestants: functions by name; "ours" is one.
        remote: contestants in other processes, by name. Of several with the same name before a
            colon, `blas:Haswell` and `blas:Zen`, the fastest counts.
        flops, nbytes: what one call does at the least, where that makes sense.
    """

    group: str
    name: str
    contestants: Mapping[str, Function]
    remote: Mapping[str, Remote] = field(default_factory=dict)
    flops: float | None = None
    nbytes: float | None = None


@dataclass(frozen=True)
class Result:
    """Seconds per call of every contestant (the fastest sample, and the lower quartile).

    Attributes:
        ratios: how many times as long as ours another takes: the median of the rounds. The clock
            of a core changes more from round to round than within one, and the fastest samples of
            two contestants need not be of the same round.
        peak: of a case with flops: the most that multiply-adds alone reached in a second on one
            core in these rounds.
    """

    group: str
    name: str
    seconds: dict[str, float]
    quartile: dict[str, float]
    ratios: dict[str, float]
    flops: float | None
    nbytes: float | None
    disturbed: bool
    peak: float | None = None

    @property
    def share(self) -> float | None:
        """Of the peak of one core."""
        if self.flops is None or self.peak is None:
            return None
        return self.flops / self.seconds["ours"] / self.peak


def foreign_cores(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """How many cores other processes used between two `accounts`."""
    wall, busy, own = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, (busy - own) / wall) if wall else 0.0


def accounts(workers: Sequence[int] = ()) -> tuple[float, float, float]:
    """Wall time, CPU time of all processes and of our own; only zeros where /proc is missing."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return (0.0, 0.0, 0.0)
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    own = time.process_time()
    for pid in workers:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own += (int(fields[11]) + int(fields[12])) / tick
    return time.perf_counter(), (user + nice + system + irq + softirq + steal) / tick, own


def measure(
    case: Case, *, clock: str, rounds: int = ROUNDS, workers: Sequence[int] = (),
    attempts: int = ATTEMPTS,
) -> Result:  # fmt: skip
    """Time the contestants of a case in interleaved rounds; again if something disturbed them.

    Where nothing else was running, those rounds count alone; where there were none such, all do.
    """
    with progress.during(f"{case.group}, {case.name}"):
        return _measure_until_quiet(case, clock, rounds, workers, attempts)


def _measure_until_quiet(
    case: Case, clock: str, rounds: int, workers: Sequence[int], attempts: int
) -> Result:
    taken: dict[str, list[float]] = {}
    for _ in range(attempts):
        before = accounts(workers)
        samples = _samples(case, clock, rounds)
        if foreign_cores(before, accounts(workers)) <= MOST_FOREIGN:
            return _evaluate(case, samples, disturbed=False)
        for name, values in samples.items():
            taken.setdefault(name, []).extend(values)
    return _evaluate(case, taken, disturbed=True)


def _samples(case: Case, clock: str, rounds: int) -> dict[str, list[float]]:
    now = CLOCKS[clock]
    calls: dict[str, int] = {}
    contestants = {**case.contestants, **({PEAK: _multiply_adds()[0]} if case.flops else {})}
    for name, function in contestants.items():
        function()
        calls[name] = _calls_lasting(function, SAMPLE_SECONDS)
    slowest = min(calls.values())
    samples: dict[str, list[float]] = {n: [] for n in (*contestants, *case.remote)}
    with collector_paused():
        for _ in range(rounds):
            for name, function in contestants.items():
                if clock == "wall":
                    time.sleep(REST_SECONDS)
                    _time(function, calls[name], now)  # its own wake up
                for _ in range(max(WARM_CALLS - calls[name], 1)):
                    function()
                samples[name].append(_time(function, calls[name], now))
            for name, remote in case.remote.items():
                samples[name].append(remote(slowest, clock))
    return samples


@cache
def _multiply_adds() -> tuple[Function, int]:
    from tinytorch.bench.peak import multiply_adds  # which compiles

    return multiply_adds(PEAK_ROUNDS)


def _time(function: Function, calls: int, now: Callable[[], float]) -> float:
    """Seconds per call."""
    start = now()
    for _ in range(calls):
        function()
    return (now() - start) / calls


def _calls_lasting(function: Function, seconds: float) -> int:
    start = time.perf_counter()
    function()
    once = max(time.perf_counter() - start, 1e-7)
    return max(1, int(seconds / once))


def lower_quartile(values: Sequence[float]) -> float:
    """The value below which a quarter are; of one round that round's."""
    return statistics.quantiles(values, n=4)[0] if len(values) > 1 else values[0]


def _evaluate(case: Case, samples: Mapping[str, list[float]], disturbed: bool) -> Result:
    chosen: dict[str, list[float]] = {}
    for name, values in samples.items():  # the best of a family speaks for it
        family = name.partition(":")[0]
        if family not in chosen or min(values) < min(chosen[family]):
            chosen[family] = values
    alone = chosen.pop(PEAK, None)
    others = {n: values for n, values in chosen.items() if n != "ours"}
    return Result(
        case.group, case.name,
        {n: min(values) for n, values in chosen.items()},
        {n: lower_quartile(values) for n, values in chosen.items()},
        {n: statistics.median(map(truediv, v, chosen["ours"])) for n, v in others.items()},
        case.flops, case.nbytes, disturbed,
        _multiply_adds()[1] / min(alone) if alone else None,
    )  # fmt: skip


def check_share(name: str, share: float, peak: float) -> None:
    """Check that a case is not faster than the core can be.

    Raises:
        ValueError: it is, so the peak is wrong.
    """
    if share > MOST_SHARE:
        raise ValueError(
            f"{name} takes {share:.0%} of a peak of {peak / 1e9:.0f} Gflop/s: the peak was "
            "measured wrongly (tinytorch/bench/peak.py)"
        )


def highest_peak(results: Sequence[Result]) -> float:
    """Floating-point operations a second of one core: the most that was measured beside a case."""
    beside = [r.peak for r in results if r.peak is not None]
    if not beside:
        from tinytorch.bench.peak import multiply_add_peak

        return multiply_add_peak()
    return max(beside)


def verdict(
    results: Sequence[Result], goals: Mapping[str, Mapping[str, float]]
) -> tuple[list[str], list[str]]:
    """Lines on the goals that were missed, and on those without a peer to compare with.

    Args:
        goals: by group and peer, how many times as long that must take at the least.
    """
    missed, absent = [], []
    for result in results:
        for name, goal in goals[result.group].items():
            ratio = result.ratios.get(name)
            if ratio is None:
                absent.append(f"{result.name}: {name} is not installed, so its goal {goal} is open")
            elif ratio < goal:
                missed.append(
                    f"{result.name}: {name} takes {ratio:.2f} times as long, the goal is {goal}"
                )
    return missed, absent


def report(results: Sequence[Result], *, bandwidth: float, cores: int = 1) -> None:
    """Print one table for each group: times, rates, and how many times longer the others take.

    Args:
        cores: that a case uses: the share is of the peak of all of them.
    """
    peak, rate = highest_peak(results) / 1e9, bandwidth / 1e9
    print(f"peak of one core up to {peak:.0f} Gflop/s float32, memory {rate:.0f} GB/s")
    for group in dict.fromkeys(r.group for r in results):
        rows = [r for r in results if r.group == group]
        others = list(dict.fromkeys(name for r in rows for name in r.ratios))
        columns = [group, "ours", "Gflop/s", "% peak", "GB/s", *(f"{o}/ours" for o in others)]
        table = [_row(r, others, cores) for r in rows]
        _print_table(columns, table)
    if any(r.disturbed for r in results):
        print('"!": other processes were running; measure these again on a quiet machine')


def _row(result: Result, others: Sequence[str], cores: int) -> list[str]:
    ours = result.seconds["ours"]
    rate = result.flops / ours if result.flops else None
    return [
        result.name + (" !" if result.disturbed else ""),
        format_seconds(ours),
        f"{rate / 1e9:.1f}" if rate else "",
        f"{100 * result.share / cores:.0f}" if result.share else "",
        f"{result.nbytes / ours / 1e9:.1f}" if result.nbytes else "",
        *(f"{result.ratios[o]:.2f}" if o in result.ratios else "" for o in others),
    ]


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        print("\n" + format_table(columns, rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def as_json(results: Sequence[Result], **facts: Any) -> str:
    """Everything that was measured, for a machine."""
    return strict_json.dumps(
        {**facts, "results": [{**asdict(r), "share": r.share} for r in results]}
    )
