"""Who did what, when: a table that is only added to.

A trigger in the database refuses to change or remove an entry. Who owns the database can remove
the trigger; nobody does by accident.
"""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import Connection, Engine

from tito.course.tables import AUDIT, plain, stamp


@dataclass(frozen=True)
class Entry:
    """Something that was done.

    Attributes:
        details: what the action says of itself.
    """

    id: int
    time: str
    who: str
    action: str
    assignment: str
    student: str
    details: dict[str, Any]


def who() -> str:
    """The user who runs this: the one behind sudo, where it is used."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container may have a number for which there is no name
        return f"uid {os.getuid()}"


def note(
    at: Engine | Connection,
    action: str,
    assignment: str = "",
    student: str = "",
    /,
    **details: Any,
) -> None:
    """Add an entry.

    Args:
        at: a connection, so that the entry and what it is about are one transaction; or the
            database, where the action has its own.
    """
    if isinstance(at, Engine):
        with at.begin() as connection:
            note(connection, action, assignment, student, **details)
        return
    at.execute(
        insert(AUDIT).values(
            time=stamp(),
            who=who()[:128],
            action=action,
            assignment=assignment,
            student=student,
            details=plain(json.dumps(details, sort_keys=True, default=str)),
        )
    )


def entries(engine: Engine, assignment: str = "", student: str = "") -> list[Entry]:
    """All entries, or those about an assignment or a student, in order."""
    query = select(AUDIT).order_by(AUDIT.c.id)
    if assignment:
        query = query.where(AUDIT.c.assignment == assignment)
    if student:
        query = query.where(AUDIT.c.student == student)
    with engine.connect() as connection:
        rows: list[Any] = list(connection.execute(query).mappings())
    return [Entry(**{**row, "details": json.loads(row["details"])}) for row in rows]
