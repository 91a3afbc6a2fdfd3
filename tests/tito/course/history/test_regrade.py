"""Regrades: who gained and lost what, also after an interruption."""

from __future__ import annotations

import pytest

from tests.tito.course.conftest import ASSIGNMENT, give
from tito.course.config import Course
from tito.course.history.audit import entries
from tito.course.history.regrade import Change, changes, regrade
from tito.course.states import GRADED, State, States
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
