"""The audit log: who did what, and nobody changes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.system_tools import postgres_server
from tito.course.config import Course, create
from tito.course.history.audit import entries, note
from tito.course.tables import database


def check_only_added_to(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "grace")
    with database(course) as engine:
        note(engine, "grade", "small", "ada", points=3)
        for statement in ("UPDATE tito_audit SET who = 'x'", "DELETE FROM tito_audit"):
            with (
                pytest.raises(DBAPIError, match="the audit log is only added to"),
                engine.begin() as connection,
            ):
                connection.execute(text(statement))
        (entry,) = entries(engine, "small", "ada")
        assert entries(engine, "other") == []
    assert (entry.who, entry.action, entry.details) == ("grace", "grade", {"points": 3})


def test_sqlite_refuses_to_change_it(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    check_only_added_to(course, monkeypatch)


@pytest.mark.slow
def test_postgresql_refuses_to_change_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server() as server:
        check_only_added_to(create(tmp_path / "course", db_url=server.url), monkeypatch)


def test_what_fails_leaves_no_entry(course: Course) -> None:
    with database(course) as engine:
        with pytest.raises(ZeroDivisionError), engine.begin() as connection:
            note(connection, "extend", "small", "ada")
            raise ZeroDivisionError
        assert entries(engine) == []
