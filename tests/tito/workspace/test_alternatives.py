"""Right solutions complete a module; an integration test that asks for more is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tito.lessons.build import Course
from tito.lessons.mistake import Alternative, load_alternatives
from tito.scripts import ROOT
from tito.workspace.alternatives import integrate

ASKS_FOR_WORDS = """
import tinytorch
from tito.checks import raises

def test_words():
    "the message has our words"
    raises(IndexError, tinytorch.argmax, tinytorch.zeros(2, 3), 2, match="-2 to 1")
"""


@pytest.mark.slow
def test_words_that_no_statement_promises_are_found(tmp_path: Path) -> None:
    course = Course.load(ROOT)
    lesson = course.find("setup")
    assert lesson is not None
    right = load_alternatives(lesson.path.with_name("mistakes.py"))
    second = [a for a in right if a.exercise == "count-from-the-end"][1]
    (tmp_path / "integration.py").write_text(ASKS_FOR_WORDS, encoding="utf-8")
    asking = replace(lesson, path=tmp_path / "lesson.md")
    (finding,) = integrate(course, asking, [second])
    assert "it does not hold: the message has our words" in finding


@pytest.mark.slow
def test_a_solution_that_has_no_place_is_found() -> None:
    course = Course.load(ROOT)
    lesson = course.find("setup")
    assert lesson is not None
    source = "def shape_arguments(sizes):\n    return nowhere(sizes)"
    odd = Alternative("two-spellings", "asks elsewhere", source)
    finding = integrate(course, lesson, [odd])[0]
    assert "'asks elsewhere' has no place: shape_arguments uses nowhere" in finding
