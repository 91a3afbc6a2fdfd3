"""Lessons to files: instructor notebook, student notebook, page. Built, never edited."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tito.lessons.cells import Cell, lesson_cells
from tito.lessons.check import check_lesson, load_lessons
from tito.lessons.model import Lesson, LessonError
from tito.lessons.notebook import notebook_text
from tito.lessons.pages import page
from tito.lessons.source import Package


@dataclass(frozen=True)
class Course:
    """All lessons of a repository and the package that they are built from."""

    root: Path
    lessons: tuple[Lesson, ...]
    package: Package

    @classmethod
    def load(cls, root: Path) -> Course:
        """Read the lessons below `root/modules`.

        Raises:
            LessonError: one is not well formed.
        """
        lessons, problems = load_lessons(root)
        if problems:
            raise LessonError(problems)
        return cls(root, tuple(lessons), Package(root))

    def find(self, name: str) -> Lesson | None:
        """The lesson with this number, slug or folder."""
        return next((x for x in self.lessons if name.lower() in x.names), None)

    def cells(self, lesson: Lesson) -> list[Cell]:
        """The cells of a lesson, checked.

        Raises:
            LessonError: something is wrong with it.
        """
        problems = check_lesson(lesson, self.lessons, self.package)
        if problems:
            raise LessonError(problems)
        return lesson_cells(lesson, self.package)


def build_lesson(course: Course, lesson: Lesson, output: Path) -> list[Path]:
    """Write the three versions of a lesson:

        output/instructor/02_tensor/02_tensor.ipynb
        output/student/02_tensor/02_tensor.ipynb
        output/pages/02_tensor.md

    Returns:
        The files that were written: those whose text has changed.

    Raises:
        LessonError: something is wrong with it; nothing is written.
    """
    cells = course.cells(lesson)
    name = lesson.folder
    files = {
        output / "instructor" / name / f"{name}.ipynb": notebook_text(cells, student=False),
        output / "student" / name / f"{name}.ipynb": notebook_text(cells, student=True),
        output / "pages" / f"{name}.md": page(lesson, course.package),
    }
    changed = [p for p, t in files.items() if not p.is_file() or p.read_text("utf-8") != t]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return changed
