"""Regrades: who gained and lost what, also after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from tests.tito.course.conftest import ASSIGNMENT, give
from tito.cli import app
from tito.course.config import Course
from tito.course.grade import Grader
from tito.course.history import commands
from tito.course.history.audit import entries
from tito.course.history.regrade import Change, changes, regrade
from tito.course.states import FAILED, GRADED, TO_DO, State, States
from tito.course.tables import database


def test_what_differs_by_student_and_test() -> None:
    before = {"ada": {"a": 2.0, "b": 3.0}, "bob": {"a": 1.0}}
    after = {"ada": {"a": 2.0, "b": 1.0}, "bob": {"a": 2.0, "c": 4.0}}
    found = changes(before, after)
    assert found == [
        Change("ada", "b", 3, 1), Change("bob", "a", 1, 2), Change("bob", "c", None, 4),
    ]  # fmt: skip
    assert [change.gained for change in found] == [-2, 1, 4]


def test_a_regrade_that_was_killed_goes_on_and_reports_the_whole(course: Course) -> None:
    time = "2026-10-01 11:59"
    give(course, "ada", submitted=time, double_values=2)
    give(course, "bob", submitted=time, double_values=2)

    def killed() -> list[State]:
        with database(course) as engine:
            assert {s.digest for s in States(engine).all().values()} == {""}  # all are to do
        give(course, "ada", submitted=time, double_values=1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regrade(course, ASSIGNMENT, killed)

    def finished() -> list[State]:
        give(course, "bob", submitted=time, double_values=2, clamp_values=3)
        return [State(ASSIGNMENT, "bob", ASSIGNMENT, GRADED, "digest")]

    found, reached = regrade(course, ASSIGNMENT, finished)
    assert found == [
        Change("ada", "small/double-values", 2, 1), Change("bob", "small/clamp-values", 0, 3),
    ]  # fmt: skip
    assert [state.student for state in reached] == ["bob"]
    again, _ = regrade(course, ASSIGNMENT, list)
    assert again == []  # a new one, from what is now
    with database(course) as engine:
        told = [(e.action, e.details.get("changes")) for e in entries(engine)]
    assert told[0] == ("regrade", None)
    assert told[1][1] == [
        "ada small/double-values: 2.0 -> 1.0", "bob small/clamp-values: 0.0 -> 3.0",
    ]  # fmt: skip


def hand_in(course: Course, student: str) -> None:
    folder = course.folder("submitted", student, ASSIGNMENT)
    folder.mkdir(parents=True)
    (folder / f"{ASSIGNMENT}.ipynb").write_text("{}", "utf-8")


def to_do(course: Course) -> set[str]:
    with database(course) as engine:
        return {s.student for s in States(engine).all().values() if s.digest == TO_DO}


def interrupted() -> list[State]:
    raise KeyboardInterrupt


def test_one_of_a_student_that_goes_on_for_the_class_is_of_the_class(course: Course) -> None:
    """Or the class would have been told that nothing changed, and nobody graded again."""
    for student in ("ada", "bob"):
        hand_in(course, student)
        give(course, student, submitted="2026-10-01 11:59", double_values=2)
    with pytest.raises(KeyboardInterrupt):
        regrade(course, ASSIGNMENT, interrupted, ["ada"])
    assert to_do(course) == {"ada"}

    def run() -> list[State]:
        assert to_do(course) == {"ada", "bob"}
        for student in ("ada", "bob"):
            give(course, student, submitted="2026-10-01 11:59", double_values=1)
        return []

    found, _ = regrade(course, ASSIGNMENT, run)
    assert [change.student for change in found] == ["ada", "bob"]


def test_one_of_the_class_that_goes_on_for_a_student_is_not_finished(course: Course) -> None:
    for student in ("ada", "bob"):
        hand_in(course, student)
        give(course, student, submitted="2026-10-01 11:59", double_values=2)
    with pytest.raises(KeyboardInterrupt):
        regrade(course, ASSIGNMENT, interrupted)

    def run(student: str) -> list[State]:
        give(course, student, submitted="2026-10-01 11:59", double_values=1)
        return []

    assert len(regrade(course, ASSIGNMENT, lambda: run("ada"), ["ada"])[0]) == 1
    assert to_do(course) == {"bob"}
    found, _ = regrade(course, ASSIGNMENT, lambda: run("bob"))
    assert [change.student for change in found] == ["ada", "bob"]


def test_whom_the_machine_failed_before_holds_no_other_regrade_open(course: Course) -> None:
    for student in ("ada", "bob"):
        hand_in(course, student)
        give(course, student, submitted="2026-10-01 11:59", double_values=2)
    with database(course) as engine:
        States(engine).put(State(ASSIGNMENT, "bob", ASSIGNMENT, FAILED, "digest"))

    def run() -> list[State]:
        assert to_do(course) == {"ada"}
        give(course, "ada", submitted="2026-10-01 11:59", double_values=2)
        return []

    for _ in range(2):  # the second is a new one, and not what is left of the first
        regrade(course, ASSIGNMENT, run, ["ada"])


@pytest.mark.parametrize("to", ["missing/changes.csv", "source"])
def test_a_list_that_cannot_be_written_is_said_before_anything_is_graded(
    course: Course, to: str
) -> None:
    arguments = ["course", "regrade", ASSIGNMENT, "--course", course.root, "--to", course.root / to]
    answer = CliRunner().invoke(app, [str(each) for each in arguments])
    assert answer.exit_code == 1 and "no file can be at" in answer.stderr
    with database(course) as engine:
        assert "regrade" not in {entry.action for entry in entries(engine)}


def test_a_regrade_shows_how_far_it_is(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    @contextmanager
    def telling(wanted: bool) -> Iterator[object]:
        yield lambda state, total: told.append(total)

    monkeypatch.setattr(commands, "progress", telling)
    monkeypatch.setattr(Grader, "run", lambda self, pool, tell: tell(None, 7) or [])
    arguments = ["course", "regrade", ASSIGNMENT, "--course", str(course.root)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert told == [7]
