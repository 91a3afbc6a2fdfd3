"""The gradebook's database: a real PostgreSQL server; what is said when it or the disk fails."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner, Result

from tests.system_tools import postgres_server
from tests.tito.course.conftest import ASSIGNMENT, instructor_notebook
from tito.cli import app
from tito.course import commands, handout
from tito.course.config import Course, create
from tito.course.generate import generate
from tito.course.states import GRADED, State, States


def tito(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["course", *map(str, arguments)])


@pytest.mark.slow
def test_postgresql_as_documented(tmp_path: Path) -> None:
    """A course without a name is generated, and a server that goes away is said in a sentence."""
    with postgres_server() as server:
        course = create(tmp_path / "course", db_url=server.url)
        folder = course.root / "source" / ASSIGNMENT
        folder.mkdir()
        source = json.dumps(instructor_notebook())
        (folder / f"{ASSIGNMENT}.ipynb").write_text(source, encoding="utf-8")
        assert generate(course, ASSIGNMENT, check=False).points == 10
        with course.gradebook() as gradebook:
            States(gradebook.engine).put(State(ASSIGNMENT, "ada", ASSIGNMENT, GRADED, "", "a\0b"))
        assert tito("export", "--course", course.root).exit_code == 0
        server.stop()
        lost = tito("export", "--course", course.root)
        assert lost.exit_code == commands.INCOMPLETE
        assert lost.output.startswith("the gradebook does not answer: ")
        assert "Traceback" not in lost.output


def test_sqlite_holds_references_as_well(course_root: Path) -> None:
    course = Course.load(course_root)
    with course.gradebook() as gradebook:
        assert gradebook.db.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert gradebook.course_id == "default_course"


def test_a_full_disk_and_a_lost_connection_are_sentences(
    course_root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sqlalchemy.exc import OperationalError

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "out.zip")

    monkeypatch.setattr(handout, "release", full)
    command = ("release", ASSIGNMENT, "--course", course_root, "--to", tmp_path)
    result = tito(*command)
    assert result.exit_code == commands.INCOMPLETE
    assert result.output.startswith("out.zip cannot be written: No space left on device; make room")

    def lost(*arguments: object) -> None:
        raise OperationalError("SELECT 1", None, Exception("server closed the connection"))

    monkeypatch.setattr(handout, "release", lost)
    result = tito(*command)
    assert result.exit_code == commands.INCOMPLETE
    assert "database was lost: " in result.output
    assert "server closed the connection" in result.output

    def broken(*arguments: object) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(handout, "release", broken)
    assert isinstance(tito(*command).exception, KeyError)
