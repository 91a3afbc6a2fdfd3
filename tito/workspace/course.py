"""The lessons, as the workspace sees them: by number, slug or folder."""

from __future__ import annotations

import re
from pathlib import Path

from tito import console, scripts
from tito.lessons.cells import Cell, lesson_cells
from tito.lessons.model import Exercise, Lesson
from tito.lessons.parse import FOLDER, parse_lesson
from tito.workspace.folder import WorkspaceError
from tito.workspace.package import reference


def folders() -> list[Path]:
    """The folders of all lessons, in order."""
    found = scripts.folder("modules").glob("*/lesson.md")
    return sorted(path.parent for path in found if FOLDER.fullmatch(path.parent.name))


def find(name: str) -> Lesson:
    """The lesson with this number, slug or folder: 2, 02, tensor, 02_tensor.

    Raises:
        WorkspaceError: there is none; the message suggests the nearest.
        LessonError: the lesson itself is wrong.
    """
    wanted = name.lower().rstrip("/")
    known = folders()
    for folder in known:
        number, _, slug = folder.name.partition("_")
        if wanted in (folder.name, slug) or wanted.lstrip("0") == number.lstrip("0"):
            return parse_lesson(folder / "lesson.md")
    raise WorkspaceError(console.unknown("module", name, [folder.name for folder in known]))


def name_of(slug: str) -> str:
    """How a lesson is called where there is little room: "11 backends"; its slug if it is to come.

    >>> name_of("tensor")
    '02 tensor'
    """
    names = (folder.name.replace("_", " ", 1) for folder in folders())
    return next((name for name in names if name.partition(" ")[2] == slug), slug)


def lessons() -> list[Lesson]:
    """All lessons, in order."""
    return [parse_lesson(folder / "lesson.md") for folder in folders()]


def cells(lesson: Lesson) -> list[Cell]:
    """The cells of a lesson, with solutions."""
    return lesson_cells(lesson, reference())


def exercise(lesson: Lesson, name: str) -> Exercise:
    """The exercise with this id.

    Raises:
        WorkspaceError: there is none.
    """
    for each in lesson.exercises:
        if each.id == name.lower():
            return each
    known = [each.id for each in lesson.exercises]
    raise WorkspaceError(console.unknown("exercise", name, known))


def definitions(lesson: Lesson) -> list[str]:
    """All that the exercises of a lesson define, as `tinytorch/shapes.py::broadcast_shapes`."""
    return [str(target) for each in lesson.exercises for target in each.targets]


def integration_file(slug: str) -> Path | None:
    """The integration tests of a module, if it has some."""
    pattern = re.compile(rf"[0-9]{{2}}_{re.escape(slug)}")
    for folder in folders():
        path = folder / "integration.py"
        if pattern.fullmatch(folder.name) and path.is_file():
            return path
    return None
