"""A match: contestants in turn on the same inputs, in launches of fresh processes.

Within a launch every round has inputs of its own. Rounds are in pairs: in the first the order is
drawn, and in the second turned round (A B, B A), so that going first after the parent has computed
favours nobody. Every output is checked. Launches repeat all of it in new processes, because
where memory happens to lie moves a process's times by several percent.

Nothing tells contestants apart but their code: the order in which they start and make their first
calls is drawn as well, and first calls have the same inputs for all. What a process allocated
before decides whether later calls touch new pages, which is several percent of a short call, and
where in a page its arrays begin: so that is drawn too. Python's garbage is collected before each
call; by turns of its own it fell into the same call of every launch, of one contestant and not of
the other: a copy of the baseline was 13 % faster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tinytorch.bench.accuracy import difference
from tito.compete import load
from tito.compete.event import Array, Event, Problem
from tito.compete.load import Gate
from tito.compete.process import Contestant, Failure, Worker

#: What a worker allocates first: more than fits among what Python has freed, and up to a page more
#: in steps of what malloc(3) aligns to.
SHIFT_BYTES, PAGE_BYTES, MALLOC_ALIGNMENT = 1 << 16, 4096, 16
#: A virtual machine whose core was taken by another takes that time off what it charges its
#: processes, later as well (update_rq_clock_task in Linux): a short call may have cost nothing.
MOST_CALLS = 3

T = TypeVar("T")
Times = dict[str, dict[str, list[float]]]  # contestant, case: seconds of each round


class Failed(Exception):
    """A contestant cannot be scored.

    Attributes:
        contestant: its name.
        verdict: see `process.Failure`.
        text: what happened, and in which case.
    """

    def __init__(self, contestant: str, verdict: str, text: str) -> None:
        super().__init__(f"{contestant}: {verdict}: {text}")
        self.contestant, self.verdict, self.text = contestant, verdict, text


@dataclass
class Launch:
    """What one launch measured.

    Attributes:
        seconds: of each contestant, in each case, round by round.
        gflop: of each case, round by round.
        bytes: of each case's inputs and outputs, round by round.
        compile_seconds: wall time of each contestant's start and first calls.
        others: cores that other programs used while calls were timed.
        was_quiet: they used so few that wall time counts, or CPU time is what counts.
    """

    seconds: Times
    gflop: dict[str, list[float]]
    bytes: dict[str, list[int]]
    compile_seconds: dict[str, float] = field(default_factory=dict)
    others: float = 0.0
    was_quiet: bool = True


def launches(
    event: Event,
    contestants: Sequence[Contestant],
    count: int,
    *,
    seed: int | np.random.Generator | None = None,
    confined: bool = True,
    step: Callable[[], None] = lambda: None,
    gate: Gate | None = None,
    patience: float = load.PATIENCE_SECONDS,
) -> Iterator[Launch]:
    """Measure, launch after launch.

    Args:
        seed: of shapes and values; by default one that nobody knows.
        step: called after each round, for a progress bar.
        gate: for an event that is measured by wall time; by default this machine's.
        patience: seconds that it waits for the machine to be quiet.

    Raises:
        Failed: a contestant gave a wrong output, or none; or the machine is not quiet.
    """
    draw = np.random.default_rng(seed)
    if event.clock == "wall" and gate is None:
        gate = Gate(event.threads)
    for _ in range(count):
        with ExitStack() as stack:
            workers: dict[str, Worker] = {}
            launch = _first_calls(event, contestants, draw, confined, stack, workers)
            if gate is not None and (reason := gate.wait(patience)) is not None:
                raise Failed(contestants[0].name, "infrastructure", reason)
            reading = load.read if gate is None else gate.read
            before, own = reading(), _cpu_seconds(workers)
            _timed_calls(event, workers, launch, draw, step)
            own = _cpu_seconds(workers) - own
            launch.others = load.cores_of_others(before, reading(), own)
            launch.was_quiet = gate is None or launch.others <= gate.allowed
            yield launch


def _cpu_seconds(workers: dict[str, Worker]) -> float:
    return time.process_time() + sum(w.cpu_seconds() for w in workers.values())


def _first_calls(
    event: Event,
    contestants: Sequence[Contestant],
    draw: np.random.Generator,
    confined: bool,
    stack: ExitStack,
    workers: dict[str, Worker],
) -> Launch:
    """Start the workers, and call each once in each case: that compiles, and is not timed."""
    cores = set(sorted(os.sched_getaffinity(0))[-event.threads :])
    launch = Launch({c.name: {} for c in contestants}, {}, {})
    spent = launch.compile_seconds
    started = {}
    for contestant in _shuffled(draw, contestants):
        shift = SHIFT_BYTES + MALLOC_ALIGNMENT * int(draw.integers(PAGE_BYTES // MALLOC_ALIGNMENT))
        confines = confined and contestant.is_confined
        began = time.perf_counter()
        with _naming(contestant.name, "start"):
            worker = Worker(contestant, event, confined=confines, cores=cores, shift=shift)
        stack.callback(worker.close)
        started[contestant.name] = worker
        spent[contestant.name] = time.perf_counter() - began
    workers |= {c.name: started[c.name] for c in contestants}
    theirs = {c.name: [case["name"] for case in _cases(event, contestants, c)] for c in contestants}
    for case in (*event.cases, *event.small):
        names = [name for name in workers if case["name"] in theirs[name]]
        if not names:
            continue
        launch.gflop[case["name"]], launch.bytes[case["name"]] = [], []
        problem = event.task.make(draw, case)
        expected = _reference(event, problem)
        for name in _shuffled(draw, names):
            launch.seconds[name][case["name"]] = []
            left = event.compile_seconds - spent[name]
            began = time.perf_counter()
            _call(workers[name], name, case["name"], problem, expected, left)
            spent[name] += time.perf_counter() - began
    return launch


def _shuffled(draw: np.random.Generator, several: Sequence[T]) -> list[T]:
    return [several[i] for i in draw.permutation(len(several))]


def _cases(
    event: Event, contestants: Sequence[Contestant], one: Contestant
) -> tuple[dict[str, Any], ...]:
    """What one of them is measured in: loops in Python in small cases, and their baseline too."""
    if not event.small:
        return event.cases
    if one.is_naive:
        return event.small
    small = one is contestants[0] and any(c.is_naive for c in contestants)
    return event.cases + event.small if small else event.cases


def _timed_calls(
    event: Event,
    workers: dict[str, Worker],
    launch: Launch,
    draw: np.random.Generator,
    step: Callable[[], None],
) -> None:
    for case in (c for c in (*event.cases, *event.small) if c["name"] in launch.gflop):
        names = order = [n for n in workers if case["name"] in launch.seconds[n]]
        for i in range(event.rounds):
            problem = event.task.make(draw, case)
            expected = _reference(event, problem)
            launch.gflop[case["name"]].append(problem.flops / 1e9)
            launch.bytes[case["name"]].append(problem.bytes)
            order = _shuffled(draw, names) if i % 2 == 0 else order[::-1]
            for name in order:
                spent = _call(workers[name], name, case["name"], problem, expected)
                launch.seconds[name][case["name"]].append(spent)
            step()


def _call(
    worker: Worker,
    name: str,
    case: str,
    problem: Problem,
    expected: list[tuple[Array, Array]],
    seconds: float | None = None,
) -> float:
    """Time one call, again if the clock stood still, and check what came of it."""
    with _naming(name, case):
        if seconds is not None and seconds <= 0:
            raise Failure("timeout", "its first calls take longer than compiling may")
        for _ in range(MOST_CALLS):
            spent, outputs = worker.measure(problem, seconds)
            wrong = difference(outputs, expected)
            if wrong is not None:
                shapes = ", ".join(str(list(a.shape)) for a in problem.inputs)
                raise Failure("wrong", f"{wrong} (inputs {shapes})")
            if spent > 0:
                return spent
        raise Failure("infrastructure", f"{MOST_CALLS} calls took no time on the event's clock")


def _reference(event: Event, problem: Problem) -> list[tuple[Array, Array]]:
    expected: list[tuple[Array, Array]] = event.task.reference(problem.inputs, problem.parameters)
    return expected


@contextmanager
def _naming(name: str, case: str) -> Iterator[None]:
    """Say of a failure whose it was, and where."""
    try:
        yield
    except Failure as error:
        raise Failed(name, error.verdict, f"{case}: {error}") from None
