"""What the parent knows of a process that it measures."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.tito.compete.conftest import small_event
from tito.compete import process
from tito.compete.event import Problem
from tito.compete.match import Failed, launches
from tito.compete.process import Contestant, Failure, Worker, _visit
from tito.usage import cores

ROUNDS, SECONDS = 200, 2e-4


@pytest.mark.skipif(cores() == 1, reason="there is one core: always visited")
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


@pytest.mark.skipif(cores() == 1, reason="there is one core: nothing else can be meant")
def test_threads_of_an_entry_stay_on_its_cores(tmp_path: Path) -> None:
    """One that was made while it was loaded was free to compute where the machine is faster."""
    event = small_event(tmp_path / "event", "open")
    code = (
        "import os, threading\nclass Mine:\n    def __init__(self):\n        found = []\n"
        "        look = lambda: found.append(sorted(os.sched_getaffinity(0)))\n"
        "        thread = threading.Thread(target=look)\n        thread.start()\n"
        "        thread.join()\n        raise ValueError(found)"
    )
    (entry := tmp_path / "entry.py").write_text(code)
    own = os.sched_getaffinity(0)
    with pytest.raises(Failure, match=rf"\[\[{max(own)}\]\]"):
        Worker(Contestant("entry", entry, "Mine"), event, confined=False, cores={max(own)})
    assert os.sched_getaffinity(0) == own


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What calls of workers without a process cost, in turn and from the first again."""
    costs = [0.0]
    calls = itertools.count()
    monkeypatch.setattr(Worker, "__init__", lambda self, *a, **b: None)
    monkeypatch.setattr(Worker, "close", lambda self: None)
    monkeypatch.setattr(Worker, "cpu_seconds", lambda self: 0.0)

    def measure(self: Worker, problem: Problem, seconds: float | None = None) -> object:
        return costs[next(calls) % len(costs)], [np.matmul(*problem.inputs)]

    monkeypatch.setattr(Worker, "measure", measure)
    return costs


CONTESTANTS = [Contestant("numpy"), Contestant("optimized")]


@pytest.mark.parametrize(
    ("task", "said"),
    [("import os\nos._exit(1)", "ended with code 1"), ("raise ImportError('torch')", "torch")],
)
def test_what_fails_before_an_entry_is_loaded_is_our_fault(
    tmp_path: Path, task: str, said: str
) -> None:
    """A sandbox without our package, an event that cannot be loaded there: whoever starts first."""
    event = small_event(tmp_path / "event", "open")
    (event.folder / "task.py").write_text(task)
    (entry := tmp_path / "entry.py").write_text("class Mine: pass")
    with pytest.raises(Failure, match=f"{said}.*before anything") as caught:
        Worker(Contestant("entry", entry, "Mine"), event, confined=False)
    assert caught.value.verdict == "infrastructure"


@pytest.mark.parametrize(
    ("stderr", "said"),
    [("a\nno \x1b[1mroom\n \n", "no [1mroom"), ("a\n" + 9_999 * "long", 125 * "long"), ("", "")],
)
def test_what_a_worker_printed_before_is_said(tmp_path: Path, stderr: str, said: str) -> None:
    event = small_event(tmp_path / "event", "open")
    task = f"import os\nos.write(2, {stderr.encode()!r})\nos._exit(1)"
    (event.folder / "task.py").write_text(task)
    with pytest.raises(Failure) as caught:
        Worker(Contestant("numpy"), event, confined=False)
    assert str(caught.value).partition("loaded")[2] == (f"; it printed: {said}" if said else "")


def test_what_an_entry_prints_is_not(tmp_path: Path) -> None:
    """It would have a file of ours to fill."""
    event = small_event(tmp_path / "event", "open")
    code = "import os\nassert os.path.samestat(os.fstat(2), os.stat(os.devnull))\nclass Mine: pass"
    (entry := tmp_path / "entry.py").write_text(code)
    Worker(Contestant("entry", entry, "Mine"), event, confined=False).close()


def test_who_closes_the_pipe_of_answers_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STOP_SECONDS", 0.5)
    event = small_event(tmp_path / "event", "open")
    code = "import os, time\nos.closerange(3, 99)\ntime.sleep(60)\nclass Mine: pass"
    (entry := tmp_path / "entry.py").write_text(code)
    with pytest.raises(Failure, match="closed the pipe") as caught:
        Worker(Contestant("entry", entry, "Mine"), event, confined=False)
    assert caught.value.verdict == "rule"


def test_calls_that_take_no_time_are_our_fault(tmp_path: Path, costs: list[float]) -> None:
    """Their ratio would be none: it is said of whom, and no launch is kept."""
    event = small_event(tmp_path / "event", "open")
    with pytest.raises(Failed, match="3 calls took no time") as caught:
        list(launches(event, CONTESTANTS, 1, seed=0))
    assert caught.value.verdict == "infrastructure"


def test_a_call_is_made_again_for_which_the_clock_stood_still(
    tmp_path: Path, costs: list[float]
) -> None:
    costs[:] = [0.0, -1.0, 0.25, 0.0, 0.5]
    event = small_event(tmp_path / "event", "open")
    (launch,) = launches(event, CONTESTANTS, 1, seed=0)
    times = {t for cases in launch.seconds.values() for case in cases.values() for t in case}
    assert times == {0.25, 0.5}
