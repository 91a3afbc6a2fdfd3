"""Who is meant by what platforms write: their numbers, addresses and logins for a student."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import Connection, Engine

from tito.course.tables import IDENTITY

ANYWHERE = ""  # a scope: everything but numbers that are another in each assignment


def identities(engine: Engine) -> dict[tuple[str, str, str], str]:
    with engine.connect() as connection:
        rows: list[Any] = list(connection.execute(select(IDENTITY)).mappings())
    return {(row["kind"], row["scope"], row["key"]): row["student"] for row in rows}


def store(connection: Connection, known: Mapping[tuple[str, str, str], str]) -> None:
    rows = [
        {"kind": kind, "scope": scope, "key": key, "student": student}
        for (kind, scope, key), student in known.items()
    ]
    if rows:
        connection.execute(insert(IDENTITY), rows)


def student_of(engine: Engine, assignment: str) -> dict[tuple[str, str], str]:
    """Students by a platform's name and its number for them, in an assignment's archive."""
    return {
        (kind, key): student
        for (kind, scope, key), student in identities(engine).items()
        if scope in (ANYWHERE, assignment)
    }
