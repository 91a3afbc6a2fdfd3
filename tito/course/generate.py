"""Lessons to assignments: the instructor's notebook to `source/`, the student's to `release/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tito.course.config import Course, CourseError, quiet
from tito.course.grade import exam
from tito.course.key import Key


@dataclass(frozen=True)
class Generated:
    """An assignment that can be handed out."""

    name: str
    points: float
    tests: int
    release: Path


def generate(course: Course, name: str, *, confined: bool = True, check: bool = True) -> Generated:
    """Make the assignment for a lesson, or for a notebook that lies in `source/` already.

    Args:
        name: number, slug or folder of a lesson, or a folder in `source/`.
        check: run the reference, which has to pass its own tests.

    Raises:
        CourseError: there is no such lesson, or nbgrader refuses it.
        LessonError: the lesson is not well formed.
        InstrumentError: the reference does not pass.
    """
    assignment = _write_source(course, name)
    sources = sorted(course.folder("source", ".", assignment).glob("*.ipynb"))
    keys: list[Key] = (
        [exam(course, p, assignment=assignment, confined=confined).key for p in sources]
        if check
        else []
    )
    directory = course.directory(assignment)
    with quiet() as said:
        from nbgrader.converters import GenerateAssignment

        step = GenerateAssignment(coursedir=directory, config=course.config)
        step.force = True
        try:
            step.start()
        except Exception as error:
            raise CourseError(f"nbgrader does not take {assignment}: {said() or error}") from error
    with course.gradebook() as gradebook:
        points = gradebook.find_assignment(assignment).max_score
    count = sum(len(key.tests) for key in keys)
    return Generated(assignment, points, count, course.folder("release", ".", assignment))


def _write_source(course: Course, name: str) -> str:
    """Build the instructor's notebook of a lesson; the name of the assignment."""
    if sorted(course.folder("source", ".", name).glob("*.ipynb")) and not _lesson(name):
        return name
    found = _lesson(name)
    if found is None:
        raise CourseError(_no_such(name))
    from tito.lessons.notebook import notebook_text

    lessons, lesson = found
    folder = course.folder("source", ".", lesson.folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = notebook_text(lessons.cells(lesson), student=False)
    (folder / f"{lesson.folder}.ipynb").write_text(text, encoding="utf-8")
    return str(lesson.folder)


def _lesson(name: str) -> tuple[Any, Any] | None:
    """The lessons of the repository and the one of this name; None if there is none."""
    from tito import scripts
    from tito.lessons.build import Course as Lessons

    if not (scripts.ROOT / "modules").is_dir():
        return None
    lessons = Lessons.load(scripts.ROOT)
    lesson = lessons.find(name)
    return None if lesson is None else (lessons, lesson)


def _no_such(name: str) -> str:
    from tito import console, scripts
    from tito.lessons.build import Course as Lessons

    known = [x.slug for x in Lessons.load(scripts.folder("modules").parent).lessons]
    return console.unknown("lesson", name, known)


def lesson_names() -> list[str]:
    """The folders of all lessons."""
    from tito import scripts
    from tito.lessons.build import Course as Lessons

    return [x.folder for x in Lessons.load(scripts.folder("modules").parent).lessons]
