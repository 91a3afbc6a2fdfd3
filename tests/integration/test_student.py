"""A student at work: the first lessons, from a wrong attempt to a milestone on their own code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tito.lessons.build import Course
from tito.lessons.exercise import BEGIN, END
from tito.lessons.mistake import Mistake, load_mistakes
from tito.lessons.model import Lesson

ROOT = Path(__file__).parents[2]
LESSONS = ("setup", "tensor", "activations", "layers", "autograd")
MINE = "# written by the student"


class Student:
    """In a workspace; everything through the command line, each in a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def tito(
        self, *arguments: str, code: int = 0, cwd: Path | None = None, timeout: float = 300
    ) -> str:
        """What a command prints, errors as well; it must exit with `code`."""
        places = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        finished = subprocess.run(
            [sys.executable, "-m", "tito", *arguments],
            cwd=cwd or self.root,
            env={**os.environ, "PYTHONPATH": places},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert finished.returncode == code, finished.stdout + finished.stderr
        return finished.stdout + finished.stderr

    def write(self, lesson: Lesson, answers: dict[str, str]) -> None:
        """Put answers into the cells of the notebook."""
        path = self.root / f"{lesson.folder}.ipynb"
        notebook = json.loads(path.read_text())
        for cell in notebook["cells"]:
            id = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if id in answers:
                cell["source"] = answers[id]
        path.write_text(json.dumps(notebook))


def right_answers(course: Course, lesson: Lesson) -> dict[str, str]:
    """The reference as a student would have it, with a comment that the reference has not."""
    cells = [cell for cell in course.cells(lesson) if cell.kind == "solution"]
    return {c.id: c.source.replace(BEGIN, MINE).replace(END, "# until here") for c in cells}


def wrong_attempt(lesson: Lesson) -> Mistake:
    """A mistake that is a whole answer, and that a visible test finds."""
    visible = {test.id for test in lesson.tests if test.visible}
    whole = {e.id for e in lesson.exercises if len(e.targets) == 1}
    mistakes = load_mistakes(lesson.path.with_name("mistakes.py"))
    return next(m for m in mistakes if m.exercise in whole and visible & m.loses.keys())


@pytest.mark.slow(seconds=120)
def test_a_student_from_the_first_lesson_to_back_propagation(tmp_path: Path) -> None:
    course = Course.load(ROOT)
    student = Student(tmp_path / "mine")
    student.tito("init", str(student.root), cwd=tmp_path)
    for slug in LESSONS:
        lesson = course.find(slug)
        assert lesson is not None, f"there is no lesson {slug}"
        play(student, course, lesson)

    status = json.loads(student.tito("status", "--json"))
    done = [m["slug"] for m in status["modules"] if m["status"] == "completed"]
    assert done == list(LESSONS)
    mine = [str(t) for s in LESSONS for e in course.find(s).exercises for t in e.targets]
    assert status["definitions"] == len(set(mine))
    assert MINE not in (ROOT / "tinytorch/shapes.py").read_text()

    said = student.tito("milestone", "run", "1958", "--json")
    assert "all gates hold" in said
    assert "of the work of one epoch yours were" in said
    report = json.loads(said[: said.rindex("\n}") + 2])
    assert report["passed"] is True
    yours = report["yours"]
    assert not set(yours["missing"]) & set(mine)
    for place in (
        "tinytorch/shapes.py::broadcast",
        "tinytorch/backends/naive/__init__.py::NaiveBackend.matmul",
        "tinytorch/nn/linear.py::Linear",
    ):
        assert yours["own"].get(place, 0) > 10, sorted(yours["own"].items())
    assert 0 < yours["own_flops"] <= yours["flops"]
    assert 0 < yours["own_calls"] <= yours["calls"]


def play(student: Student, course: Course, lesson: Lesson) -> None:
    """One lesson: start, a wrong attempt, the right one, complete."""
    number = f"{lesson.number:02}"
    assert lesson.makes_possible in student.tito("module", "start", number)
    right, wrong = right_answers(course, lesson), wrong_attempt(lesson)

    student.write(lesson, {**right, wrong.exercise: wrong.source})
    said = student.tito("module", "test", number, code=1)
    for test in lesson.tests:
        assert (f": {test.id} (" in said) == (test.id in wrong.loses), said
        if test.id in wrong.loses:
            assert test.checks in said
            assert test.why in said
    assert f"{lesson.points - sum(wrong.loses.values())} of {lesson.points} points" in said
    assert "expected" in said or "in your cell, line" in said or "instead of" in said
    refused = student.tito("module", "complete", number, code=1)
    assert "nothing was changed" in refused
    assert f"hint 1 of {len(lesson.exercises[0].hints)}" in student.tito(
        "module", "hint", number, lesson.exercises[0].id
    )

    student.write(lesson, right)
    assert f"{lesson.points} of {lesson.points} points" in student.tito("module", "test", number)
    done = student.tito("module", "complete", number)
    assert f"it now powers: {lesson.makes_possible}" in done
    assert all(str(target) in done for e in lesson.exercises for target in e.targets)
    places = {target.path for e in lesson.exercises for target in e.targets if target.op is None}
    assert all(MINE in (student.root / place).read_text() for place in places)
    student.tito("module", "diff", number)
