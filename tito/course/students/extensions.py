"""Another deadline for one student; the change and its entry in the log are one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.engine import Engine

from tito.course.config import CourseError
from tito.course.history import audit
from tito.course.students.policy import Policy
from tito.course.tables import EXTENSION, plain, stamp


def extend(
    engine: Engine,
    policy: Policy,
    assignment: str,
    student: str,
    *,
    until: datetime | None = None,
    days: float = 0.0,
    reason: str = "",
) -> datetime:
    """Give a student another deadline, in place of the one before; the deadline.

    Args:
        until: the new deadline; if not given, the class's deadline and `days`.

    Raises:
        CourseError: the assignment has no deadline to count from, or an earlier one is asked for.
    """
    due = policy.deadlines.get(assignment)
    if until is None:
        if due is None:
            raise CourseError(
                f"{assignment} has no deadline to count {days:g} days from: add one to "
                f"c.TinyTorch.deadlines, or say --until"
            )
        try:
            until = due + timedelta(days=days)
        except (ValueError, OverflowError):
            raise CourseError(f"{days:g} days later is no time") from None
    if due is not None and until < due:
        raise CourseError(f"{stamp(until)} is before the class's deadline, {stamp(due)}")
    row = {
        "assignment": assignment,
        "student": student,
        "until": stamp(until),
        "reason": plain(reason),
    }
    with engine.begin() as connection:
        connection.execute(delete(EXTENSION).where(_is(assignment, student)))
        connection.execute(insert(EXTENSION).values(**row))
        audit.note(connection, "extend", assignment, student, until=stamp(until), reason=reason)
    return until


def withdraw(engine: Engine, assignment: str, student: str) -> bool:
    """Take an extension back; False if there was none."""
    with engine.begin() as connection:
        gone = connection.execute(delete(EXTENSION).where(_is(assignment, student))).rowcount > 0
        if gone:
            audit.note(connection, "extend", assignment, student, until=None)
    return gone


def _is(assignment: str, student: str) -> Any:
    return (EXTENSION.c.assignment == assignment) & (EXTENSION.c.student == student)


def extensions(engine: Engine) -> dict[tuple[str, str], datetime]:
    """All of them, by assignment and student."""
    with engine.connect() as connection:
        rows: list[Any] = list(connection.execute(select(EXTENSION)).mappings())
    return {
        (row["assignment"], row["student"]): datetime.fromisoformat(row["until"]) for row in rows
    }


def hidden_until(
    policy: Policy, extended: Mapping[tuple[str, str], datetime], assignment: str
) -> datetime | None:
    """When the last student's deadline for an assignment is: nobody with an extension can be told
    before it what hidden tests found. None if there is no deadline."""
    if assignment not in policy.deadlines:
        return None
    others = [until for (name, _), until in extended.items() if name == assignment]
    return max([policy.deadlines[assignment], *others])


def concealed(
    policy: Policy,
    extended: Mapping[tuple[str, str], datetime],
    assignment: str,
    now: datetime | None = None,
) -> datetime | None:
    """Until when results of hidden tests are not shown; None if they are."""
    until = hidden_until(policy, extended, assignment)
    return until if until is not None and (now or datetime.now(UTC)) < until else None
