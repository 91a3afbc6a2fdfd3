"""Attempts: each file, its time, and what it got each time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import delete

from tests.tito.course.conftest import ASSIGNMENT
from tito.course.collect import collect
from tito.course.config import Course
from tito.course.history.attempts import attempts, digest_of, graded, keep
from tito.course.tables import ATTEMPT, database

NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)
FILE = f"{ASSIGNMENT}.ipynb"


@pytest.mark.slow
def test_each_content_is_kept_with_its_time_and_its_results(course: Course) -> None:
    with database(course) as engine:
        numbers = [
            keep(course, engine, ASSIGNMENT, "ada", FILE, content, NOON)
            for content in (b"first", b"second", b"second", b"first")
        ]
        assert numbers == [1, 2, 2, 1]
        later = NOON.replace(hour=13)
        assert keep(course, engine, ASSIGNMENT, "ada", FILE, b"first", later) == 3
        for points in (1.0, 2.0):
            tests = {"a": (points, 2.0)}
            digest = digest_of(b"second")
            graded(engine, ASSIGNMENT, "ada", ASSIGNMENT, digest, "graded", tests)
        found = attempts(course, engine, ASSIGNMENT, "ada")
    assert [a.submitted for a in found] == [
        "2026-10-01T12:00:00+00:00", "2026-10-01T12:00:00+00:00", "2026-10-01T13:00:00+00:00",
    ]  # fmt: skip
    assert [(course.root / a.path).read_bytes() for a in found] == [b"first", b"second", b"first"]
    assert [[r.score for r in a.results] for a in found] == [[], [1, 2], []]


@pytest.mark.slow
def test_a_run_that_was_killed_between_file_and_row_is_in_nobodys_way(course: Course) -> None:
    with database(course) as engine:
        keep(course, engine, ASSIGNMENT, "ada", FILE, b"lost", NOON)
        with engine.begin() as connection:
            connection.execute(delete(ATTEMPT))
        assert keep(course, engine, ASSIGNMENT, "ada", FILE, b"next", NOON) == 1
        (found,) = attempts(course, engine)
    assert (course.root / found.path).read_bytes() == b"next"


def test_collect_keeps_what_it_replaces(course: Course, tmp_path: Path) -> None:
    box = tmp_path / "box" / "ada"
    box.mkdir(parents=True)
    folder = course.folder("submitted", "ada", ASSIGNMENT)
    folder.mkdir(parents=True)
    (folder / FILE).write_text("by hand")
    for text in ("one", "two"):
        (box / FILE).write_text(text)
        collect(course, ASSIGNMENT, box.parent)
    with database(course) as engine:
        found = attempts(course, engine, student="ada")
    texts = [(course.root / a.path).read_text() for a in found]
    assert texts == ["by hand", "one", "two"]
    assert (folder / FILE).read_text() == "two"
