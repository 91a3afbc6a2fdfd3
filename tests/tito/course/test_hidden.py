"""What hidden tests found is shown after the deadline; before it, neither at the test nor in the
sum."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import pytest

from tests.tito.course.conftest import ASSIGNMENT, give, instructor_notebook, settings
from tito.course.config import Course
from tito.course.export import rows, to_gradescope
from tito.course.feedback import all_pages
from tito.course.states import States
from tito.course.tables import database


@pytest.fixture
def course(course: Course) -> Course:
    """Ada's solution passes the visible tests, 5 points of 10, and not the hidden one."""
    give(course, "ada", submitted="2026-01-01 12:00", double_values=2, clamp_values=3)
    folder = course.folder("autograded", "ada", ASSIGNMENT)
    folder.mkdir(parents=True)
    notebook = nbformat.from_dict(instructor_notebook())
    error = nbformat.v4.new_output("error", ename="NotPassed", evalue="", traceback=["told"])
    notebook.cells[-1].outputs = [error]
    nbformat.write(notebook, folder / f"{ASSIGNMENT}.ipynb")
    return course


def due(course: Course, days: float) -> Course:
    time = datetime.now(UTC) + timedelta(days=days)
    told = f"{time:%Y-%m-%d %H:%M} UTC"
    return settings(course, f"c.TinyTorch.deadlines = {{{ASSIGNMENT!r}: {told!r}}}")


def page_of(course: Course) -> str:
    with database(course) as engine:
        (path,), failed = all_pages(course, list(States(engine).all().values()))
    assert failed == {}
    return re.sub(r"<[^>]*>", "", path.read_text("utf-8"))


def results(course: Course, to: Path) -> dict[str, object]:
    (path,) = to_gradescope(course, rows(course), to)
    return json.loads(path.read_text("utf-8"))


def test_before_the_deadline(course: Course, tmp_path: Path) -> None:
    text = page_of(before := due(course, 2))
    assert "(Score: 5.0 / 5.0)" in text
    assert "10.0" not in text
    assert "its result, of 5 points, is shown after 20" in text
    assert "not passed" not in text
    told = results(before, tmp_path)
    shown = {test["name"]: test["visibility"] for test in told["tests"]}
    assert shown == {
        "double-values": "visible", "clamp-values": "visible", "clamp-hidden": "after_due_date",
    }  # fmt: skip
    assert told["visibility"] == "after_due_date"


def test_after_the_deadline_and_without_one(course: Course, tmp_path: Path) -> None:
    for after in (course, due(course, -2)):
        text = page_of(after)
        assert "(Score: 5.0 / 10.0)" in text
        assert "not passed: a hidden test: it checks whole numbers" in text
        told = results(after, tmp_path)
        assert {test["visibility"] for test in told["tests"]} == {"visible"} == {told["visibility"]}
