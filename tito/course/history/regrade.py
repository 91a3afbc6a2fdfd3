"""Grade an assignment again, and say who gained and lost what by it, test by test.

What everybody had is stored before anything is graded, in one transaction with the order to grade
it again. So a regrade that was interrupted goes on where it was, and its report is of the whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Engine

from tito.course.config import Course, quiet
from tito.course.history import audit
from tito.course.states import TO_DO, State, States
from tito.course.tables import REGRADE, database, stamp

Points = Mapping[str, Mapping[str, float]]  # by student and test


@dataclass(frozen=True)
class Change:
    """A test of a student's that has other points now; None where it had or has none."""

    student: str
    test: str
    before: float | None
    after: float | None

    @property
    def gained(self) -> float:
        return (self.after or 0.0) - (self.before or 0.0)


def points(course: Course, assignment: str, students: Collection[str] = ()) -> dict[str, Any]:
    """The points of each test by student, a person's marks counted."""
    with quiet(), course.gradebook() as gradebook:
        return {
            submission.student_id: {
                f"{notebook.name}/{grade.cell.name}": float(grade.score)
                for notebook in submission.notebooks
                for grade in notebook.grades
            }
            for submission in gradebook.assignment_submissions(assignment)
            if not students or submission.student_id in students
        }


def regrade(
    course: Course,
    assignment: str,
    run: Callable[[], list[State]],
    students: Collection[str] = (),
) -> tuple[list[Change], list[State]]:
    """Grade again, or go on with a regrade that was interrupted.

    Args:
        run: grades what is to be graded; what this cannot grade is left for the next call.
        students: who is graded again; everybody if empty. One that goes on has those that it had,
            and these.

    Returns:
        What changed since the regrade began, and the states that were reached.
    """
    with database(course) as engine:
        number, before = _begun(course, engine, assignment, students)
        reached = run()
        after = points(course, assignment, before)
        found = changes(before, after)
        if not _left(course, engine, assignment, before):
            _finish(engine, number, assignment, after, found)
    return found, reached


def _begun(
    course: Course, engine: Engine, assignment: str, students: Collection[str]
) -> tuple[int, dict[str, Any]]:
    """The regrade of an assignment that is not finished, or a new one."""
    mine = (REGRADE.c.assignment == assignment) & REGRADE.c.finished.is_(None)
    with engine.connect() as connection:
        row = connection.execute(select(REGRADE).where(mine)).mappings().first()
    had = points(course, assignment, students)
    if row is not None:
        number, before = int(row["id"]), json.loads(row["before"])
        return number, _widened(engine, number, assignment, before, had)
    values = {"assignment": assignment, "began": stamp(), "before": json.dumps(had)}
    with engine.begin() as connection:
        made = connection.execute(insert(REGRADE).values(**values))
        States(engine).delete(assignment, students, connection)
        audit.note(connection, "regrade", assignment, students=sorted(had))
    return int(made.inserted_primary_key[0]), had  # type: ignore[index]


def _widened(
    engine: Engine, number: int, assignment: str, before: dict[str, Any], had: dict[str, Any]
) -> dict[str, Any]:
    """What everybody had before a regrade that goes on, those who were not in it yet as well."""
    new = {student: points for student, points in had.items() if student not in before}
    if new:
        before |= new
        values = {"before": json.dumps(before)}
        with engine.begin() as connection:
            connection.execute(update(REGRADE).where(REGRADE.c.id == number).values(**values))
            States(engine).delete(assignment, list(new), connection)
            audit.note(connection, "regrade", assignment, students=sorted(new))
    return before


def _left(course: Course, engine: Engine, assignment: str, before: Points) -> list[str]:
    """Of whose in a regrade a file is still to be graded; another's is no matter of it."""
    return [
        state.student
        for state in States(engine).all(assignment).values()
        if state.student in before
        and (not state.done or state.digest == TO_DO)
        and (
            course.folder("submitted", state.student, assignment) / f"{state.notebook}.ipynb"
        ).exists()
    ]


def _finish(
    engine: Engine, number: int, assignment: str, after: Points, found: list[Change]
) -> None:
    values = {"finished": stamp(), "after": json.dumps(after)}
    with engine.begin() as connection:
        connection.execute(update(REGRADE).where(REGRADE.c.id == number).values(**values))
        told = [f"{c.student} {c.test}: {c.before} -> {c.after}" for c in found]
        audit.note(connection, "regraded", assignment, changes=told)


def changes(before: Points, after: Points) -> list[Change]:
    """What differs, by student and test."""
    found = []
    for student in sorted({*before, *after}):
        had, has = before.get(student, {}), after.get(student, {})
        found += [
            Change(student, test, had.get(test), has.get(test))
            for test in sorted({*had, *has})
            if had.get(test) != has.get(test)
        ]
    return found
