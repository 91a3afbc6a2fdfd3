"""What the parent knows of a process that it measures."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.tito.compete.conftest import small_event
from tito.compete.match import Failed, launches
from tito.compete.process import Contestant, Worker, _visit

ROUNDS, SECONDS = 200, 2e-4


def test_a_process_is_charged_for_what_it_ran_when_we_visit_its_core() -> None:
    """Between ticks its clock stands still: a thread that has just stopped took no time at all."""
    core = max(os.sched_getaffinity(0))
    own = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            os.sched_setaffinity(busy.pid, {core})
            visited = _times_it_went_on(busy.pid, {core})
            assert visited > 3 * _times_it_went_on(busy.pid, set())
        finally:
            busy.kill()
    assert os.sched_getaffinity(0) == own


def _times_it_went_on(pid: int, cores: set[int]) -> int:
    """In how many of some short whiles the process's clock went on, as it is read at their ends."""
    count = 0
    for _ in range(ROUNDS):
        _visit(cores)
        before, began = _cpu_clock(pid), time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            pass
        _visit(cores)
        count += _cpu_clock(pid) > before
    return count


def _cpu_clock(pid: int) -> int:
    return time.clock_gettime_ns((~pid << 3) | 2)


def test_a_call_that_took_no_time_is_our_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ratio would be none: it is said of whom, and no launch is kept."""
    monkeypatch.setattr(Worker, "__init__", lambda self, *a, **b: None)
    monkeypatch.setattr(Worker, "close", lambda self: None)
    monkeypatch.setattr(Worker, "cpu_seconds", lambda self: 0.0)
    monkeypatch.setattr(
        Worker, "measure", lambda self, problem, seconds=None: (0.0, [_product(problem)])
    )
    event = small_event(tmp_path / "event", "open")
    with pytest.raises(Failed, match="took no time") as caught:
        list(launches(event, [Contestant("numpy"), Contestant("optimized")], 1, seed=0))
    assert caught.value.verdict == "infrastructure"


def _product(problem: object) -> np.ndarray:
    a, b = problem.inputs  # type: ignore[attr-defined]
    return np.matmul(a, b)
