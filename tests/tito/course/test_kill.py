"""SIGKILL of `grade` at each place where something is half done: the next run ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.system_tools import needs_sandbox
from tests.tito.course.conftest import ASSIGNMENT, submission, write
from tests.tito.course.test_grade import HandIn, graded, scores
from tests.tito.test_limits import alive
from tito.course import states
from tito.course.config import Course
from tito.course.feedback import feedback
from tito.course.states import States
from tito.course.tables import database

pytestmark = [needs_sandbox, pytest.mark.slow(seconds=10)]

#: Grades as `tito course grade` does, and ends itself at a call of a function.
KILLED = """
import os, signal, sys
from pathlib import Path
from nbgrader.preprocessors import SaveAutoGrades
from tito.course import grade, record, states
from tito.course.config import Course
from tito.course.exam.pool import LocalPool
from tito.course.history import attempts

root, assignment, owner, name, count, when = sys.argv[1:]
owners = {"Assignment": record.Assignment, "Grader": grade.Grader, "States": states.States,
          "SaveAutoGrades": SaveAutoGrades, "attempts": attempts,
          "grade": grade, "record": record}
original, calls = getattr(owners[owner], name), 0

def killing(*args, **options):
    global calls
    calls += 1
    if calls == int(count) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*args, **options)
    if calls == int(count):
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owners[owner], name, killing)
grade.Grader(Course.load(Path(root)), assignment).run(LocalPool(2), lambda state, total: None)
"""
EXPECTED = {"right": 10, "half": 2, "none": 0, "broken": 0}


def hand_in_all(hand_in: HandIn) -> None:
    hand_in("right", submission())
    hand_in("half", submission(write("clamp", "raise NotImplementedError")))
    neither = [write(name, "pass") for name in ("double", "clamp")]
    hand_in("none", submission(lambda cells: [edit(cells) for edit in neither]))
    hand_in("broken", "{")


def known(course: Course) -> dict[str, Any]:
    with database(course) as engine:
        return {student: s for (_, student, _), s in States(engine).all(ASSIGNMENT).items()}


@pytest.mark.exhaustive_beyond(3)
@pytest.mark.parametrize("place", [
    ("attempts", "keep", "2", "after"), ("SaveAutoGrades", "preprocess", "2", "after"),
    ("record", "_write", "2", "before"), ("Assignment", "record", "2", "after"),
    ("Assignment", "record_unreadable", "1", "after"), ("grade", "settle", "1", "before"),
], ids=" ".join)  # fmt: skip
def test_a_run_that_was_killed_is_ended_by_the_next(
    course: Course, hand_in: HandIn, place: tuple[str, ...]
) -> None:
    hand_in_all(hand_in)
    command = [sys.executable, "-c", KILLED, str(course.root), ASSIGNMENT, *place]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    before = known(course)
    # what has a grade has its own, and what has none is told apart from a zero
    had = scores(course)
    for student, state in before.items():
        assert not state.done or had[student] == EXPECTED[student]
    found = graded(course)
    assert found.keys() == EXPECTED.keys() - {n for n, s in before.items() if s.done}
    assert scores(course) == EXPECTED
    after = known(course)
    assert {n: s.state for n, s in after.items()} == dict.fromkeys(
        EXPECTED, states.GRADED
    ) | {"broken": states.UNREADABLE}  # fmt: skip
    assert all(feedback(course, state) for state in after.values())
    assert not list(course.root.rglob("*.partial")) and graded(course) == {}


def children(pid: int) -> set[int]:
    """The processes that one has started, and those that they have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def test_nothing_of_a_killed_run_goes_on(course: Course, hand_in: HandIn) -> None:
    hand_in("endless", submission(write("double", "while True:\n    pass")))
    run = subprocess.Popen([sys.executable, "-m", "tito", "course", "grade", ASSIGNMENT],
                           cwd=course.root, stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while "endless" not in known(course):
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1.0)  # the sandbox is there, and in the loop
        started = children(run.pid)
        assert started
    finally:
        run.kill()
        run.wait()
    assert not [pid for pid in started if alive(pid)]
    assert known(course)["endless"].state == states.RUNNING
    assert os.listdir(course.root / "submitted") == ["endless"]
