"""How far each submission is: a table of our own beside nbgrader's, in the same database.

A grade says what a student has earned; a state says what the grader knows. Where the machine has
failed there is a state and no grade, so that it can never be taken for a zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Float, Integer, MetaData, String, Table, Text, delete, insert, select
from sqlalchemy.engine import Engine

RUNNING, GRADED, UNREADABLE, FAILED = "running", "graded", "unreadable", "infrastructure"

_metadata = MetaData()
_table = Table(
    "tito_submission",
    _metadata,
    Column("assignment", String(255), primary_key=True),
    Column("student", String(128), primary_key=True),
    Column("notebook", String(255), primary_key=True),
    Column("state", String(32), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("detail", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("attempts", Integer, nullable=False),
)


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

    def create(self) -> None:
        _metadata.create_all(self.engine)

    def put(self, state: State) -> None:
        """Store a state in place of the one before."""
        same = (
            (_table.c.assignment == state.assignment)
            & (_table.c.student == state.student)
            & (_table.c.notebook == state.notebook)
        )
        values = {**vars(state), "detail": state.detail.replace("\0", "")}  # PostgreSQL takes none
        with self.engine.begin() as connection:
            connection.execute(delete(_table).where(same))
            connection.execute(insert(_table).values(**values))

    def all(self, assignment: str | None = None) -> dict[tuple[str, str, str], State]:
        """States by assignment, student and notebook."""
        query = select(_table).order_by(_table.c.assignment, _table.c.student)
        if assignment is not None:
            query = query.where(_table.c.assignment == assignment)
        with self.engine.connect() as connection:
            rows: list[Any] = list(connection.execute(query).mappings())
        states = [State(**row) for row in rows]
        return {(s.assignment, s.student, s.notebook): s for s in states}
