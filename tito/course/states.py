"""How far each submission is: a table of our own beside nbgrader's, in the same database.

A grade says what a student has earned; a state says what the grader knows. Where the machine has
failed there is a state and no grade, so that it can never be taken for a zero.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Connection, Engine

from tito.course.tables import SUBMISSION, plain

RUNNING, GRADED, UNREADABLE, FAILED = "running", "graded", "unreadable", "infrastructure"
TO_DO = ""  # a digest that no submission has: it is graded again


@dataclass(frozen=True)
class State:
    """What is known of the notebook that a student has submitted.

    Attributes:
        state: "running" also means: a run of the grader ended before it was done.
        digest: of all that the grade depends on.
        level: what was around the student's process.
        attempts: processes that it took.
    """

    assignment: str
    student: str
    notebook: str
    state: str
    digest: str
    detail: str = ""
    level: str = ""
    seconds: float = 0.0
    attempts: int = 0

    @property
    def done(self) -> bool:
        return self.state in (GRADED, UNREADABLE)


class States:
    """The table; every change is a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def put(self, state: State) -> None:
        """Store a state in place of the one before."""
        same = (
            (SUBMISSION.c.assignment == state.assignment)
            & (SUBMISSION.c.student == state.student)
            & (SUBMISSION.c.notebook == state.notebook)
        )
        values = {**vars(state), "detail": plain(state.detail)}
        with self.engine.begin() as connection:
            connection.execute(delete(SUBMISSION).where(same))
            connection.execute(insert(SUBMISSION).values(**values))

    def delete(self, assignment: str, students: Collection[str], connection: Connection) -> None:
        """Have submissions graded again, in a transaction of somebody else's."""
        same = SUBMISSION.c.assignment == assignment
        if students:
            same &= SUBMISSION.c.student.in_(list(students))
        connection.execute(update(SUBMISSION).where(same).values(digest=TO_DO))

    def all(self, assignment: str | None = None) -> dict[tuple[str, str, str], State]:
        """States by assignment, student and notebook."""
        query = select(SUBMISSION).order_by(SUBMISSION.c.assignment, SUBMISSION.c.student)
        if assignment is not None:
            query = query.where(SUBMISSION.c.assignment == assignment)
        with self.engine.connect() as connection:
            rows: list[Any] = list(connection.execute(query).mappings())
        states = [State(**row) for row in rows]
        return {(s.assignment, s.student, s.notebook): s for s in states}
