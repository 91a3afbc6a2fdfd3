"""Wall time is measured on a quiet machine, and what was not quiet is not scored."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.system_tools import needs_sandbox
from tests.tito.compete.conftest import SMALL
from tito.cli import app
from tito.compete import load, match, measure
from tito.compete.event import BUILT_IN, Event, EventError, load_event
from tito.compete.load import QUIET_CORES, WINDOW_SECONDS, Gate, Reading, cores_of_others


@dataclass
class Machine:
    """Two cores, of which others use what the test says, window by window; then nothing."""

    others: list[float] = field(default_factory=list)
    now: float = 0.0
    busy: float = 0.0
    slept: int = 0

    def read(self) -> Reading:
        return Reading(self.now, self.busy)

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now += seconds
        self.busy += seconds * (self.others.pop(0) if self.others else 0.0)

    def gate(self, threads: int = 2) -> Gate:
        return Gate(threads, cores=2, read=self.read, sleep=self.sleep)


def test_a_quiet_machine_is_waited_for() -> None:
    machine = Machine([1.0, QUIET_CORES * 2, QUIET_CORES / 2])
    assert machine.gate().wait() is None
    assert machine.slept == 3


def test_others_may_have_the_cores_that_are_left() -> None:
    machine = Machine([1.0])
    assert machine.gate(threads=1).wait() is None and machine.slept == 1
    machine = Machine([1.1])
    assert machine.gate(threads=1).wait() is None and machine.slept == 2


def test_a_machine_that_stays_busy_is_refused_with_what_was_read() -> None:
    machine = Machine([1.25] * 100)
    reason = machine.gate().wait(patience=10.0)
    assert reason is not None and "others still use 1.25 of its 2 cores" in reason
    assert machine.slept == 11 and "bears 0.03" in reason
    reason = machine.gate(threads=4).wait()
    assert reason == "the event uses 4 cores, and this machine has 2"


def test_a_reading_of_this_machine_has_what_this_process_computes() -> None:
    before, own = load.read(), time.process_time()
    while time.process_time() - own < 0.5:
        pass
    after, own = load.read(), time.process_time() - own
    seconds = after.at - before.at
    ticks = 0.02 * (os.cpu_count() or 1)
    assert own - ticks <= after.busy - before.busy <= seconds * (os.cpu_count() or 1) + ticks
    with_ours = cores_of_others(before, after)
    assert with_ours - cores_of_others(before, after, own) >= (own - ticks) / seconds


@pytest.fixture
def parallel(tmp_path: Path) -> Iterator[Event]:
    folder = tmp_path / "parallel"
    folder.mkdir()
    text = SMALL.format(division="open").replace('clock = "cpu"', 'clock = "wall"\nthreads = 2')
    (folder / "event.toml").write_text(text)
    (folder / "task.py").write_text((BUILT_IN / "matmul" / "task.py").read_text())
    yield load_event(str(folder))


def test_several_threads_are_measured_by_wall_time(parallel: Event) -> None:
    assert (parallel.threads, parallel.clock) == (2, "wall")
    file = parallel.folder / "event.toml"
    for old, new in (('"wall"', '"cpu"'), ("threads = 2", "threads = 0"), ("= 2", '= "two"')):
        text = file.read_text()
        file.write_text(text.replace(old, new, 1))
        with pytest.raises(EventError, match='several are measured by clock = "wall"'):
            load_event(str(parallel.folder))
        file.write_text(text)


def test_all_cores_are_this_machines() -> None:
    cores = len(os.sched_getaffinity(0))
    event = load_event("matmul_parallel")
    assert (event.threads, event.clock) == (cores, "wall")


def test_the_peak_is_that_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores may be faster than one can be."""
    monkeypatch.setattr("tinytorch.bench.peak.multiply_add_peak", lambda: 1e9)
    monkeypatch.setattr("tinytorch.bench.peak.cache_bandwidth", lambda: 5e9)
    assert (measure._peak(1), measure._peak(2)) == ((1e9, 5e9), (2e9, 10e9))


ENTRY = """
import os
import numpy as np

class Entry:
    def matmul(self, a, b):
        assert len(os.sched_getaffinity(0)) == 2, os.sched_getaffinity(0)
        assert os.environ["OPENBLAS_NUM_THREADS"] == os.environ["NUMBA_NUM_THREADS"] == "2"
        return a @ b
"""


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    ("windows", "code", "said"),
    [
        ([0.0], (0,), "of which other programs used up to 0.00"),
        ([0.0, 9.9] * 3, (3,), "noisy"),
        ([9.9] * 1000, (3,), "infrastructure: numpy, the machine is not quiet"),
    ],
)
def test_the_verdict_says_whether_others_computed(
    windows: list[float],
    code: tuple[int, ...],
    said: str,
    parallel: Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("an event of two threads needs two cores")
    machine = Machine(list(windows))

    real = match._timed_calls

    def timed(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        machine.sleep(WINDOW_SECONDS)  # what others do while calls are timed

    monkeypatch.setattr(match, "Gate", machine.gate)
    monkeypatch.setattr(match, "_timed_calls", timed)
    monkeypatch.setattr(match, "_cpu_seconds", lambda workers: 0.0)
    file = parallel.folder / "entry.py"
    file.write_text(ENTRY)
    options = ["--event", str(parallel.folder), "--seconds", "1", "--seed", "3"]
    done = CliRunner().invoke(app, ["compete", "run", str(file), *options])
    assert done.exit_code in code and said in done.output, done.output
