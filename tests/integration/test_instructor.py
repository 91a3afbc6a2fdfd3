"""An instructor with more than forty submissions of every kind: all get what they deserve."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.integration.submissions import Submission, submissions
from tests.system_tools import needs_sandbox, postgres_server
from tito import scripts
from tito.cli import app
from tito.course import config, export, feedback, grade
from tito.course.exam import pool
from tito.course.notebook import HIDDEN, read_notebook
from tito.course.states import States
from tito.lessons.build import Course as Lessons
from tito.lessons.model import Lesson

pytestmark = [
    pytest.mark.slow,
    needs_sandbox,
]
CELL_SECONDS = 3.0  # what hangs has to hang no longer; imports without bytecode need one


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    found = Lessons.load(scripts.ROOT).find("setup")
    assert found is not None
    return found


def tito(*arguments: str) -> str:
    """Run a command; what it printed."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def prepared(
    root: Path, lesson: Lesson, db: str = "", brief: bool = False, every: int = 1
) -> list[Submission]:
    """A course with the lesson generated, and every n-th of the submissions handed in."""
    tito("course", "init", str(root), "--name", "cs1", *(["--db", db] if db else []))
    settings = root / config.CONFIG
    text = settings.read_text("utf-8")
    assert "cell_seconds = 20.0" in text
    settings.write_text(text.replace("cell_seconds = 20.0", f"cell_seconds = {CELL_SECONDS}"))
    tito("course", "generate", "setup", "--course", str(root))
    handed_in = submissions(lesson, root, brief)[::every]
    box = root.parent / "box"
    for each in handed_in:
        folder = box / each.student / lesson.folder
        folder.mkdir(parents=True)
        (folder / f"{lesson.folder}.ipynb").write_text(each.text, encoding="utf-8")
        for name, content in each.files:
            (folder / name).write_text(content, encoding="utf-8")
    tito("course", "collect", lesson.folder, "--from", str(box), "--course", str(root))
    return handed_in


def check_grades(root: Path, handed_in: list[Submission]) -> None:
    rows = {row.student: row for row in export.rows(config.Course.load(root))}
    found = {student: (row.state, row.score) for student, row in rows.items()}
    assert found == {each.student: (each.state, each.points) for each in handed_in}
    ran = [row for row in rows.values() if row.state == "graded"]
    assert all("bubblewrap" in row.level and "no network" in row.level for row in ran)


def check_nothing_leaks(root: Path, lesson: Lesson) -> None:
    """No line of a hidden test, and no script of a student's, is in what students get."""
    source = read_notebook(root / "source" / lesson.folder / f"{lesson.folder}.ipynb")
    hidden = [
        line.strip()
        for cell in source.cells
        if HIDDEN in cell.source
        for line in cell.source.split("\n")
        if line.startswith(("equal(", "raises(", "close(", "check(")) and len(line) >= 20
    ]
    assert hidden
    pages = [*root.glob("feedback/*/*/*.html"), *root.glob("gradescope/*/*/results.json")]
    assert len(pages) == 2 * len(list(root.glob("submitted/*")))
    for page in pages:
        text = page.read_text("utf-8")
        assert "<script>stolen" not in text, page
        plain = html.unescape(re.sub(r"<[^>]*>", "", text))  # colours are within the lines
        assert not [line for line in hidden if line in plain or json.dumps(line)[1:-1] in plain], (
            page
        )


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_forty_submissions_on_sqlite(every: int, tmp_path: Path, lesson: Lesson) -> None:
    root = tmp_path / "course"
    handed_in = prepared(root, lesson, every=every)
    assert len(handed_in) * every >= 40
    assignment, course = lesson.folder, ["--course", str(root)]

    said = json.loads(tito("course", "grade", assignment, *course, "--json"))
    assert len(said) == len(handed_in)
    check_grades(root, handed_in)
    assert json.loads(tito("course", "grade", assignment, *course, "--json")) == []

    tito("course", "feedback", *course)
    tito("course", "export", *course, "--to", str(tmp_path / "grades.csv"))
    tito("course", "export", *course, "--format", "gradescope", "--to", str(root / "gradescope"))
    check_nothing_leaks(root, lesson)
    with (tmp_path / "grades.csv").open(encoding="utf-8") as file:
        lines = {line["student"]: line for line in csv.DictReader(file)}
    for each in handed_in:
        assert float(lines[each.student]["score"]) == each.points
        results = root / "gradescope" / assignment / each.student / "results.json"
        assert json.loads(results.read_text("utf-8"))["score"] == each.points


@pytest.fixture
def postgres() -> Iterator[str]:
    with postgres_server() as server:
        yield server.url


@pytest.mark.exhaustive  # that a course's database may be PostgreSQL, tests/tito/course checks
def test_forty_submissions_on_postgresql(tmp_path: Path, lesson: Lesson, postgres: str) -> None:
    root = tmp_path / "course"
    handed_in = prepared(root, lesson, postgres, brief=True)
    tito("course", "grade", lesson.folder, "--course", str(root))
    check_grades(root, handed_in)
    assert not (root / "gradebook.db").exists()


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_submissions_on_a_cluster_that_loses_a_worker(
    every: int, tmp_path: Path, lesson: Lesson
) -> None:
    root = tmp_path / "course"
    handed_in = prepared(root, lesson, brief=True, every=every)
    course = config.Course.load(root)
    killed = []
    with pool.dask_pool(None, 2) as workers:

        def kill(state: Any, total: int) -> None:
            """The machine of a worker goes down while it has work."""
            if state is not None and state.state == "graded" and not killed:
                killed.append(next(iter(workers.client.run(os.getpid).values())))
                with suppress(ProcessLookupError):
                    os.kill(killed[0], signal.SIGKILL)

        reached = grade.Grader(course, lesson.folder).run(workers, kill)
    assert killed
    assert len(reached) == len(handed_in)
    check_grades(root, handed_in)
    with course.gradebook() as gradebook:
        states = States(gradebook.engine).all().values()
    assert all(feedback.feedback(course, state) is not None for state in states)
