"""What every lesson promises its reader holds, and a lesson that breaks a promise is told so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tito.cli import app
from tito.lessons.build import Course
from tito.lessons.form import check_form
from tito.lessons.model import Lesson, Test
from tito.lessons.parse import parse_lesson
from tito.scripts import ROOT

COURSE = Course.load(ROOT)
each_lesson = pytest.mark.parametrize("lesson", COURSE.lessons, ids=lambda lesson: lesson.slug)


@pytest.mark.slow_beyond(2)
@each_lesson
def test_it_keeps_its_form(lesson: Lesson) -> None:
    assert [str(problem) for problem in check_form(lesson, COURSE.cells(lesson))] == []


def test_the_command_says_the_same() -> None:
    result = CliRunner().invoke(app, ["lessons", "check", "setup", "--root", str(ROOT)])
    assert (result.exit_code, result.stdout) == (0, "1 lessons, nothing wrong\n")


def told(lesson: Lesson) -> list[str]:
    original = COURSE.find("setup")
    assert original is not None
    return [problem.message for problem in check_form(lesson, COURSE.cells(original))]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## Systems", "## System", "the last parts must be Systems, Questions and Further"),
        ("```mermaid", "```text", "there is no drawing in Mermaid"),
        ("tito.figure", "tito.figures", ""),
        ("from tito.figure", "from tito.pictures", "no cell draws with tito.figure"),
        ("perf_counter", "process_time", "no cell measures time (perf_counter)"),
        ("assert ", "# ", "no cell checks a claim (assert)"),
        ("<details><summary>", "<details>", "0 questions begin to unfold and 3 end; 3 belong"),
        ("\n- ", "\n", "0 sources under Further reading; 3 are the least"),
        ("visible: false", "visible: true", "it needs visible tests and hidden ones"),
        ("\n## Systems", "\n" + "word " * 3_000 + "\n\n## Systems", "to read before there is"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (ROOT / "modules/01_setup/lesson.md").read_text("utf-8")
    top, mark, below = text.partition("\n---\n")
    assert old in below
    path = tmp_path / "01_setup" / "lesson.md"
    path.parent.mkdir()
    path.write_text(top + mark + below.replace(old, new), encoding="utf-8")
    found = told(parse_lesson(path))
    assert found == [] if not message else any(message in each for each in found), found


def test_hints_sizes_and_places_of_tests_are_said() -> None:
    lesson = COURSE.find("setup")
    assert lesson is not None
    first, *_ = lesson.exercises
    short = replace(first, hints=first.hints[:2])
    blocks = tuple(short if block is first else block for block in lesson.blocks)
    assert told(replace(lesson, blocks=blocks)) == [f"exercise {first.id} has 2 hints, and needs 3"]
    test = next(block for block in lesson.blocks if isinstance(block, Test))
    (message,) = told(replace(lesson, blocks=(*lesson.blocks, test)))
    assert message.startswith(f"test {test.id} is for {first.id}, and follows ")
    cells = [replace(c, source="") if c.id == first.id else c for c in COURSE.cells(lesson)]
    (problem,) = check_form(lesson, cells)
    assert problem.message == f"exercise {first.id} has 0 lines to write, and should have 3 to 25"
    assert problem.line == first.line
