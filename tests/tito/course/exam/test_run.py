"""One notebook in the sandbox: what is heard of it, whatever it does."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from tests.system_tools import needs_sandbox
from tito import sandbox
from tito.course.exam import run
from tito.course.exam.job import Budget, InfrastructureError, Job, Question, Transcript, Unit
from tito.course.exam.run import run_job
from tito.course.exam.values import decode
from tito.usage import Usage

pytestmark = needs_sandbox
BUDGET = Budget(cell_seconds=20.0, seconds=600.0, memory_bytes=1 << 30)
SHORT = replace(BUDGET, cell_seconds=1.5)  # for what hangs
ROOMY = Budget(memory_bytes=1 << 30)  # for what imports much, perhaps without its bytecode
ASKED = Question("test", "__tito__.got(0, f(2))", visible=True)


def go(*sources: str, tests: tuple[Question, ...] = (ASKED,), **options: Any) -> Transcript:
    """Run cells, with the place of the tests behind the last."""
    units = [Unit(str(i), source) for i, source in enumerate(sources)]
    places = [Unit(f"place of {t.id}", None, t.id) for t in tests]
    options = {"budget": BUDGET, **options}
    return run_job(Job((*units, *places), tests, **options))


def claimed(said: Transcript, test: str = "test") -> list[Any]:
    return [decode(c["got"]) for c in said.tests[test]["claims"]]


def test_cells_run_in_one_namespace_and_tests_send_values() -> None:
    said = go("import numpy as np", "def f(x):\n    return np.int8(x)", "print('hi')\nf(3)")
    assert claimed(said) == [2]
    assert said.cells["2"]["text"] == "hi\n"
    assert said.cells["2"]["shown"] == [{"text/plain": "np.int8(3)"}]
    assert (said.ended, said.attempts) == ({}, 1)
    assert said.level.startswith("bubblewrap")


def test_a_test_sees_the_names_as_they_stood_at_its_place() -> None:
    units = (Unit("0", "def f(x): return x"), Unit("1", None, "test"), Unit("2", "f = None"))
    said = run_job(Job(units, (ASKED,), BUDGET))
    assert claimed(said) == [2]


def test_a_function_too_finds_the_names_as_they_stood_at_its_tests_place() -> None:
    """A scratch cell at the end that counts in `sum` breaks no solution above it."""
    other = Question("other", "__tito__.got(0, (f(2), sum))", True)
    units = (
        Unit("0", "def f(x): return sum([x, x]) + later()"), Unit("1", None, "test"),
        Unit("2", "sum = 0\ndef later(): return 1"), Unit("3", None, "other"),
        Unit("4", "def f(x): return sum + x"), Unit("5", None, "last"),
    )  # fmt: skip
    last = Question("last", "__tito__.got(0, f(2))", True)
    said = run_job(Job(units, (ASKED, other, last), BUDGET))
    assert claimed(said) == [5]
    assert said.tests["other"]["error"]["type"] == "TypeError"
    assert claimed(said, "last") == [2]


def test_an_error_that_says_that_something_is_not_there_is_an_answer_too() -> None:
    test = Question("test", "__tito__.outcome(0, f, 2)", visible=True)
    said = go("def f(x):\n    raise NotImplementedError('no sort')", tests=(test,))
    (told,) = said.tests["test"]["claims"]
    assert (told["raised"], told["message"]) == ("builtins.NotImplementedError", "no sort")
    assert said.tests["test"]["error"] is None


def test_what_one_test_imports_the_next_one_has() -> None:
    first = Question("first", "import math\n__tito__.got(0, math.pi)", True)
    second = Question("second", "__tito__.got(0, math.e)", True)
    said = go("pass", tests=(first, second))
    assert (len(claimed(said, "first")), len(claimed(said, "second"))) == (1, 1)


def test_every_test_starts_from_the_same_seed() -> None:
    draw = "__tito__.got(0, (np.random.rand(), random.random(), tinytorch.rand(1).item()))"
    tests = tuple(Question(name, draw, True) for name in ("one", "two"))
    said = go("import random, numpy as np, tinytorch\nnp.random.rand()", tests=tests)
    assert claimed(said, "one") == claimed(said, "two")


def test_hidden_tests_come_after_all_that_is_visible() -> None:
    told = "__tito__.got(0, seen)\nseen.append('{}')"
    tests = (Question("hidden", told.format("hidden"), False), ASKED)
    said = go("seen = []\ndef f(x):\n    seen.append('visible')", tests=tests)
    assert claimed(said, "hidden") == [["visible"]]


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while True: pass", "did not finish in 1.5 s"),
        ("import time; time.sleep(1000)", "did not finish in 1.5 s"),
        ("import os; os._exit(3)", r"ended by itself \(exit code 3\)"),
        ("import os; os.kill(os.getpid(), 9)", "was killed"),
        ("import os\nfor _ in range(5): os.fork()\nblock = b'x' * (200 << 20)\nwhile True: pass",
         "more than 1024 MiB"),
    ],
)  # fmt: skip
def test_a_cell_that_ends_the_process_is_left_out(code: str, reason: str) -> None:
    said = go(code, "def f(x): return x", budget=SHORT)
    assert claimed(said) == [2]
    assert list(said.ended) == ["0"]
    assert re.search(reason, said.ended["0"])


def test_an_unlucky_kill_is_forgiven_once() -> None:
    said = go("import os\nif not os.path.exists('x'): os.kill(os.getpid(), 9)\ndef f(x): return x")
    assert said.attempts == 3  # forgiven, then the cell is left out
    assert said.tests["test"]["error"]["type"] == "NameError"


@pytest.mark.slow
def test_a_visible_test_that_hangs_is_not_waited_for_twice() -> None:
    units = (Unit("0", "def f(x):\n    while True: pass"), Unit("1", "f(2)", "test", False))
    said = run_job(Job(units, (ASKED,), SHORT))
    assert set(said.ended) == {"1", "test"}
    assert said.attempts == 2


def test_all_is_told_when_the_time_is_over() -> None:
    budget = Budget(cell_seconds=5.0, seconds=1.0)
    said = go("while True: pass", "while True: pass", budget=budget)
    assert "did not finish in 1 s" in said.ended["0"]
    assert "took all of the time" in said.ended["test"]


def test_what_the_system_ends_for_its_processor_time_did_not_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where starting takes longer than a second the system's limit is met before ours."""
    limits = Budget.limits
    monkeypatch.setattr(Budget, "limits", lambda budget: replace(limits(budget), cpu_seconds=3))
    said = go("while True: pass", budget=Budget(cell_seconds=60.0, seconds=60.0))
    assert said.attempts == 2  # it is no kill by the machine, which is forgiven once
    assert said.ended["0"] == "the notebook did not finish in 60 s"


def test_the_system_is_believed_though_less_time_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts whole ticks: on a busy core it ends what has run for less than its limit."""
    limits = Budget.limits
    monkeypatch.setattr(Budget, "limits", lambda budget: replace(limits(budget), cpu_seconds=3))
    monkeypatch.setattr(run, "usage", lambda pid: Usage(0.0, 0, 0))
    said = go("while True: pass", budget=Budget(cell_seconds=60.0, seconds=60.0))
    assert said.attempts == 2
    assert said.ended["0"] == "the notebook did not finish in 60 s"


def test_forged_and_broken_messages_are_no_answers() -> None:
    forge = (
        "import gc\n"
        "pipe = [x for x in gc.get_objects() if type(x).__name__ == 'Pipe'][0]\n"
        "def f(x):\n"
        "    pipe.tell(end='another')\n"
        "    return x\n"
    )
    said = go(forge)
    assert said.ended["test"] == "it interfered with its own grading"
    noise = (
        "import os\n"
        "for fd in range(3, 30):\n"
        "    try: os.write(fd, b'\\n{}\\n\\xff')\n"
        "    except OSError: pass"
    )
    assert claimed(go(noise, "def f(x): return x")) == [2]


def test_halves_of_characters_and_floods_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    said = go("print('a\\ud800b')\nprint('\\N{SNOWMAN}')", "def f(x): return '\\ud800'")
    assert said.cells["0"]["text"] == "a?b\n\N{SNOWMAN}\n"
    assert claimed(said) == ["?"]
    monkeypatch.setattr(run, "MOST_BYTES", 1 << 20)
    flood = "def f(x):\n    return ['x' * 1000] * 2000"
    assert "more than the grader takes" in go(flood).ended["test"]


def test_files_beside_the_notebook_are_there() -> None:
    content = base64.b64encode(b"def g(): return 5").decode()
    said = go(
        "import sys; sys.path.insert(0, '')\nfrom helper import g\ndef f(x): return g()",
        files={"helper.py": content},
    )
    assert claimed(said) == [5]


def test_magics_and_errors_are_those_of_a_notebook() -> None:
    sources = ("%matplotlib inline\n!echo from the shell", "1/0", "def f(x:", "f = abs")
    said = go(*sources, budget=ROOMY)
    assert "from the shell" in said.cells["0"]["text"]
    assert said.cells["1"]["error"]["type"] == "ZeroDivisionError"
    assert said.cells["2"]["error"]["type"] == "SyntaxError"
    assert claimed(said) == [2]


def test_without_a_sandbox_nothing_runs_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bwrap is not installed")
    with pytest.raises(InfrastructureError, match="bwrap is not installed"):
        go("def f(x): return x")
    said = go("def f(x): return x", confined=False)
    assert claimed(said) == [2]
    assert said.level.startswith("none")


def test_a_kernel_that_does_not_start_is_no_fault_of_the_student(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "HARNESS", run.HARNESS.with_name("no_such_file.py"))
    with pytest.raises(InfrastructureError, match=r"did not start: .*no_such_file"):
        go("pass")
    monkeypatch.undo()
    with pytest.raises(InfrastructureError, match=r"(?s)did not start: .*Error"):
        go("pass", budget=Budget(memory_bytes=50 << 20))


COMPILES = """
import time
import numba.core.event as event
def f(x):
    with event.trigger_event("numba:compiler_lock"), event.trigger_event("numba:compiler_lock"):
        end = time.process_time() + {seconds}
        while time.process_time() < end:
            pass
    return x
"""


@pytest.mark.slow
def test_what_the_compiler_takes_is_not_the_students_up_to_a_limit() -> None:
    pytest.importorskip("numba")
    budget = Budget(cell_seconds=1.0, compile_seconds=8.0, seconds=600.0, memory_bytes=4 << 30)
    importing = Unit("numba", "import numba", seconds=20)
    place = Unit("place", None, "test")

    def run(seconds: float) -> Transcript:
        units = (importing, Unit("f", COMPILES.format(seconds=seconds)), place)
        return run_job(Job(units, (ASKED,), budget))

    assert claimed(run(3.0)) == [2]
    assert "did not finish in 1 s" in run(20.0).ended["test"]


@pytest.mark.slow
def test_a_cell_may_have_a_limit_of_its_own() -> None:
    slow = "import time\ndef f(x):\n    end = time.process_time() + 1.5\n" \
        "    while time.process_time() < end: pass\n    return x"  # fmt: skip
    budget = Budget(cell_seconds=0.5, seconds=600.0, memory_bytes=1 << 30)
    longer = Question("test", ASKED.source, True, seconds=20.0)
    assert claimed(go(slow, tests=(longer,), budget=budget)) == [2]
    assert "did not finish in 0.5 s" in go(slow, budget=budget).ended["test"]


def test_a_run_can_be_stopped() -> None:
    stop = Event()
    stop.set()
    with pytest.raises(InfrastructureError, match="stopped"):
        run_job(Job((Unit("0", "while True: pass"),), (), BUDGET), stop)


def test_a_job_travels_as_json() -> None:
    job = Job((Unit("0", "x = 1", None, False),), (ASKED,), BUDGET, False, {"a": "YQ=="})
    assert Job.from_json(job.to_json()) == job


def test_a_million_empty_files_are_stopped() -> None:
    """They take memory of the kernel, which no limit on bytes counts."""
    budget = replace(BUDGET, cell_seconds=20.0, files=2_000)
    flood = (
        "import itertools, os\n"
        "for n in itertools.count():\n    os.mknod(('/tmp/%d', '/dev/shm/%d')[n % 2] % n)"
    )
    said = go("def f(x):\n    return x", flood, budget=budget)
    assert said.ended == {"1": "it made more than 2,000 files"}
    assert claimed(said) == [2]
