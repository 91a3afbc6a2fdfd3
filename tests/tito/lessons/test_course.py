"""The course itself: every lesson is proved, and one runs in a real kernel."""

from __future__ import annotations

import ast
import math
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tito.lessons import proof
from tito.lessons.build import Course, build_lesson
from tito.lessons.cells import context_of
from tito.lessons.check import check_course
from tito.lessons.mistake import load_equivalents, load_mistakes
from tito.lessons.parse import lesson_files
from tito.lessons.prove import prove_all
from tito.lessons.source import SourceError, Target, find_definition
from tito.lessons.splice import splice
from tito.scripts import ROOT

nbformat = pytest.importorskip("nbformat")
FOLDERS = [path.parent.name for path in lesson_files(ROOT)]


@pytest.mark.slow
def test_nothing_is_wrong_with_any_lesson() -> None:
    lessons, problems = check_course(ROOT)
    assert [str(problem) for problem in problems] == []
    assert [lesson.folder for lesson in lessons] == FOLDERS != []


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("folder", FOLDERS)
def test_right_and_wrong_solutions_can_be_spliced(folder: str) -> None:
    """The reference's own changes nothing; a mistake, being what students write, is taken."""
    course = Course.load(ROOT)
    lesson = course.find(folder)
    assert lesson is not None
    cells = course.cells(lesson)
    sources = {cell.id: cell.source for cell in cells}
    mistakes = load_mistakes(lesson.path.with_name("mistakes.py"))
    for exercise in lesson.exercises:
        context = context_of(cells, exercise, lesson)
        files = {target.path: course.package.text(target.path) for target in exercise.targets}
        for path, text in splice(files, exercise.targets, sources[exercise.id], context).items():
            assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(files[path]))
        for mistake in mistakes:
            if mistake.exercise == exercise.id:
                targets = [t for t in exercise.targets if _defines(mistake.source, t)]
                changed = splice(files, targets, mistake.source, context)
                assert changed and changed != files


def test_what_is_listed_as_equivalent_changes_what_the_reference_has() -> None:
    """A reference that was changed is seen here, before its whole proof is run."""
    course = Course.load(ROOT)
    for lesson in course.lessons:
        for id, listed in groupby(
            load_equivalents(lesson.path.with_name("mistakes.py")), lambda each: each.exercise
        ):
            exercise = next(e for e in lesson.exercises if e.id == id)
            texts = [course.package.text(path) for path in {t.path for t in exercise.targets}]
            reference = "\n".join(ast.unparse(ast.parse(text)) for text in texts)
            changed = [each.change.partition(": ")[2].partition(" -> ")[0] for each in listed]
            assert [code for code in changed if code not in reference] == []


def _defines(source: str, target: Target) -> bool:
    try:
        find_definition(source, target)
    except SourceError:
        return False
    return True


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("folder", FOLDERS)
def test_grading_grades(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "LESSON_SECONDS", math.inf)  # a slow machine is no fault
    course = Course.load(ROOT)
    lesson = course.find(folder)
    assert lesson is not None
    assert prove_all(course, lesson).findings == ()


def run_in_kernel(path: Path) -> Any:
    """The notebook as Jupyter leaves it, errors of its cells included."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace"]
    subprocess.run(
        [*command, "--allow-errors", str(path)],
        env={**environment, "HOME": str(path.parent), "IPYTHONDIR": str(path.parent)},
        cwd=path.parent,
        check=True,
        capture_output=True,
        timeout=1800,
    )
    return nbformat.read(path, as_version=4)


def failed_cells(executed: Any) -> list[str]:
    return [
        cell.id
        for cell in executed.cells
        if any(output.output_type == "error" for output in cell.get("outputs", []))
    ]


@pytest.mark.slow
def test_a_real_kernel_agrees(tmp_path: Path) -> None:
    """The solved lesson runs without an error. Of the unsolved one every test cell fails, and for
    a wrong solution the message shows the call as it is in the cell."""
    course = Course.load(ROOT)
    lesson = course.find("setup")
    assert lesson is not None
    instructor, student, _ = build_lesson(course, lesson, tmp_path)
    assert failed_cells(run_in_kernel(instructor)) == []

    wrong = "def normalize_dim(dim, ndim, what='dim'):\n    return dim"
    notebook = nbformat.read(student, as_version=4)
    solution = next(cell for cell in notebook.cells if cell.id == "count-from-the-end")
    solution.source = wrong
    nbformat.write(notebook, student)
    executed = run_in_kernel(student)
    failed = failed_cells(executed)
    hidden = {test.id for test in lesson.tests if not test.visible}
    assert {test.id for test in lesson.tests} - hidden <= set(failed)
    assert not hidden & set(failed)  # in the student version they are empty
    graded = next(cell for cell in executed.cells if cell.id == "count-from-the-end-values")
    message = graded.outputs[-1].evalue
    assert message.startswith("[normalize_dim(d, 3) for d in (-3, -2, -1, 0, 1, 2)]\n  expected: [")
