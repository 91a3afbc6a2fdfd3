"""A term: every lesson in order, solved in another way than ours, and the milestones on that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.test_student import MINE, ROOT, Student, right_answers
from tito.lessons.build import Course
from tito.lessons.mistake import Alternative, load_alternatives
from tito.lessons.model import Exercise, Lesson

MILESTONES = ("1958", "1969", "1986", "1998")  # what a course of these lessons can run


def whole_alternative(exercise: Exercise, alternatives: list[Alternative]) -> Alternative | None:
    """The first that defines all of an exercise; one that defines a part comes beside ours."""
    for alternative in alternatives:
        names = {target.name.rpartition(".")[2] for target in exercise.targets}
        defined = {line.split("(")[0].split()[-1] for line in alternative.source.splitlines()
                   if line.lstrip().startswith(("def ", "class "))}  # fmt: skip
        if alternative.exercise == exercise.id and names <= {d.rstrip(":") for d in defined}:
            return alternative
    return None


def answers(course: Course, lesson: Lesson) -> tuple[dict[str, str], int]:
    """The cells of a student who went their own way wherever there is one, and how often."""
    found = right_answers(course, lesson)
    alternatives = load_alternatives(lesson.path.with_name("mistakes.py"))
    own = 0
    for exercise in lesson.exercises:
        other = whole_alternative(exercise, alternatives)
        if other is not None:
            found[exercise.id] = f"{other.source.strip()}\n\n{MINE}\n"
            own += 1
    return found, own


@pytest.mark.exhaustive  # test_student.py and test_competitor.py complete half of the lessons
def test_a_term(tmp_path: Path) -> None:
    course = Course.load(ROOT)
    student = Student(tmp_path / "mine")
    student.tito("init", str(student.root), cwd=tmp_path)
    for lesson in course.lessons:
        number = f"{lesson.number:02}"
        student.tito("module", "start", number)
        cells, own = answers(course, lesson)
        assert own, f"lesson {lesson.slug} has no alternative that is a whole answer"
        student.write(lesson, cells)
        done = student.tito("module", "complete", number, timeout=900)
        assert f"it now powers: {lesson.makes_possible}" in done
    status = json.loads(student.tito("status", "--json"))
    assert all(m["status"] == "completed" for m in status["modules"])
    for year in MILESTONES:
        said = student.tito("milestone", "run", year, "--require-all-mine", timeout=900)
        assert "all gates hold" in said and "all yours" in said, said
