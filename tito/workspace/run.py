"""A lesson's tests on the student's file: each cell in order, in a fresh process, under limits.

Of the student's file come the answers and the cells that they added or changed; tests and given
code come from the lesson, whatever became of them in the file. Of the lesson's demonstrations only
imports and definitions run, as nothing that is graded may depend on more.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tito import cells as runner, scripts
from tito.cells import CELL_SECONDS, Outcome, run_cells
from tito.lessons.cells import Cell
from tito.lessons.magic import plain
from tito.lessons.model import Exercise, Lesson, Test
from tito.limits import Limits
from tito.workspace import course, notebook
from tito.workspace.folder import Workspace
from tito.workspace.notebook import FileCell

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Graded:
    """A test cell and how it went."""

    test: Test
    outcome: Outcome


@dataclass(frozen=True)
class Answer:
    """An exercise: the student's cell, how it went, and its tests.

    Attributes:
        cell: its source as plain Python; None if the file has no such cell.
    """

    exercise: Exercise
    cell: str | None
    outcome: Outcome
    tests: tuple[Graded, ...]

    @property
    def passed(self) -> bool:
        return all(tested.outcome.ok for tested in self.tests)

    @property
    def points(self) -> int:
        return sum(tested.test.points for tested in self.tests if tested.outcome.ok)

    @property
    def not_written(self) -> bool:
        """The stub is still there."""
        failures = [self.outcome.failure, *(tested.outcome.failure for tested in self.tests)]
        return any(f is not None and f.type == "NotImplementedError" for f in failures)


@dataclass(frozen=True)
class Result:
    """How a lesson's tests went on a student's file.

    Attributes:
        strays: cells of the student's own that raised an error, and the errors.
    """

    lesson: Lesson
    path: Path
    answers: tuple[Answer, ...]
    strays: tuple[tuple[FileCell, Outcome], ...]

    @property
    def passed(self) -> bool:
        return all(answer.passed for answer in self.answers)

    @property
    def points(self) -> int:
        return sum(answer.points for answer in self.answers)

    @property
    def passed_tests(self) -> list[str]:
        return [t.test.id for answer in self.answers for t in answer.tests if t.outcome.ok]


@dataclass(frozen=True)
class _Step:
    """A cell to run: the lesson's with this id, or one of the student's own."""

    id: str
    source: str
    own: FileCell | None = None


def run_tests(
    workspace: Workspace,
    lesson: Lesson,
    path: Path,
    limits: Limits = runner.LIMITS,
    cell_seconds: float = CELL_SECONDS,
) -> Result:
    """Run a lesson's tests on a student's file.

    Raises:
        WorkspaceError: the file cannot be read.
    """
    file = notebook.read(path)
    steps = _steps(course.cells(lesson), lesson, file)
    outcomes = run_cells(
        [runner.Cell(_name(step), step.source, cell_seconds) for step in steps],
        cwd=workspace.root,
        path=[workspace.root, scripts.ROOT],
        limits=limits,
    )
    by_id = {step.id: outcome for step, outcome in zip(steps, outcomes, strict=True) if step.id}
    written = {cell.id: plain(cell.source) for cell in file}
    absent = Outcome(ran=False)
    answers = tuple(
        Answer(
            exercise,
            written.get(exercise.id),
            by_id.get(exercise.id, absent),
            tuple(Graded(t, by_id[t.id]) for t in lesson.tests if t.exercise == exercise.id),
        )
        for exercise in lesson.exercises
    )
    pairs = zip(steps, outcomes, strict=True)
    strays = tuple((s.own, o) for s, o in pairs if s.own is not None and o.failure is not None)
    return Result(lesson, path, answers, strays)


def _name(step: _Step) -> str:
    return step.id or f"cell {step.own.number if step.own else 0}"


def _steps(cells: Sequence[Cell], lesson: Lesson, file: Sequence[FileCell]) -> list[_Step]:
    """What runs: the file's cells in their order; given cells and tests that it lacks as well."""
    known = {cell.id: cell for cell in cells if cell.kind in ("given", "solution", "test")}
    source = {id: cell.source for id, cell in known.items()}
    source |= {test.id: test.source for test in lesson.tests}
    demonstrations = {cell.source.strip() for cell in cells if cell.kind in ("code", "shown")}
    there = {cell.id for cell in file}
    steps = [
        _Step(id, source[id])
        for id, cell in known.items()
        if cell.kind == "given" and id not in there
    ]
    for cell in file:
        if cell.id in known:
            is_answer = known[cell.id].kind == "solution"
            steps.append(_Step(cell.id, plain(cell.source) if is_answer else source[cell.id]))
        elif cell.kind == "code":
            is_ours = cell.source.strip() in demonstrations
            steps.append(
                _Step("", only_definitions(cell.source) if is_ours else plain(cell.source), cell)
            )
    return steps + [
        _Step(test.id, source[test.id]) for test in lesson.tests if test.id not in there
    ]


def only_definitions(source: str) -> str:
    """The imports, functions and classes of a cell."""
    body = ast.parse(source).body
    return "\n".join(ast.unparse(node) for node in body if isinstance(node, DEFINITIONS))
