"""What every lesson promises its reader, beyond what the builder checks."""

from __future__ import annotations

import re

import pytest

from tito.lessons.build import Course
from tito.lessons.cells import Cell
from tito.lessons.exercise import written_lines
from tito.lessons.model import Code, Exercise, Lesson, Test, Text
from tito.scripts import ROOT

COURSE = Course.load(ROOT)
each_lesson = pytest.mark.parametrize("lesson", COURSE.lessons, ids=lambda lesson: lesson.slug)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def words(text: str) -> int:
    """Words to read: what a drawing is made of does not count."""
    return len(FENCED.sub("", text).split())


def prose(lesson: Lesson) -> str:
    return "\n".join(block.source for block in lesson.blocks if isinstance(block, Text))


@each_lesson
def test_there_is_never_much_to_read_before_the_next_thing_to_do(lesson: Lesson) -> None:
    stretches = [0]
    for block in lesson.blocks:
        if isinstance(block, Text):
            # the questions are something to do
            before, *_ = block.source.partition("## Questions\n")
            stretches[-1] += words(before)
        else:
            stretches.append(0)
    assert max(stretches) <= words(prose(lesson)) / 3


@each_lesson
def test_it_has_the_parts_that_a_lesson_has(lesson: Lesson) -> None:
    text = prose(lesson)
    headings = re.findall(r"^## (\w+)", text, re.MULTILINE)
    assert headings[-3:] == ["Systems", "Questions", "Further"]
    _, _, end = text.partition("\n## Questions\n")
    questions, _, reading = end.partition("\n## Further reading\n")
    assert questions.count("<details><summary>") == questions.count("</details>") == 3
    sources = re.split(r"^- ", reading, flags=re.MULTILINE)[1:]
    assert len(sources) >= 3


@each_lesson
def test_it_draws_and_measures(lesson: Lesson) -> None:
    code = "\n".join(block.source for block in lesson.blocks if isinstance(block, Code))
    assert "```mermaid" in prose(lesson)
    assert "tito.figure" in code
    assert "perf_counter" in code
    assert "assert " in code, "no cell checks a claim"


@each_lesson
def test_each_exercise_has_hints_and_a_size_that_fits(lesson: Lesson) -> None:
    solutions = {c.id: c for c in COURSE.cells(lesson) if c.kind == "solution"}
    for exercise in lesson.exercises:
        cell: Cell = solutions[exercise.id]
        assert len(exercise.hints) == 3, exercise.id
        assert 3 <= written_lines(cell.source) <= 25, exercise.id


@each_lesson
def test_it_has_visible_and_hidden_tests_right_behind_their_exercises(lesson: Lesson) -> None:
    assert {test.visible for test in lesson.tests} == {True, False}
    last = ""
    for block in lesson.blocks:
        if isinstance(block, Exercise):
            last = block.id
        elif isinstance(block, Test):
            assert block.exercise == last
