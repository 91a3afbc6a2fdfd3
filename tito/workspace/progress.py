"""What of the framework is the student's, per module and as a share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tito.workspace import completed, course, package, state
from tito.workspace.folder import Workspace
from tito.workspace.lines import all_lines
from tito.workspace.update import is_older


@dataclass(frozen=True)
class ModuleProgress:
    """A module.

    Attributes:
        status: "completed", "begun" or "not begun".
        points, of_points: of the last run of the tests, and of the lesson.
        definitions, of_definitions: the student's in the package, and those of its exercises.
        lines: of code of the student's.
        older: the file lacks what the lesson says today.
    """

    number: int
    slug: str
    title: str
    status: str
    points: int
    of_points: int
    definitions: int
    of_definitions: int
    lines: int
    older: bool


@dataclass(frozen=True)
class Progress:
    """All modules, and the whole: definitions of the course, lines of code of the framework."""

    modules: tuple[ModuleProgress, ...]
    definitions: int
    of_definitions: int
    lines: int
    of_lines: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def progress(workspace: Workspace) -> Progress:
    """How far a student is."""
    done = {c.slug: c for c in completed.load(workspace)}
    counts = package.lines_of_code(workspace.root, completed.definitions(list(done.values())))
    remembered = state.load(workspace)
    wanted: set[str] = set()
    rows = []
    for lesson in course.lessons():
        ours = course.definitions(lesson)
        wanted |= set(ours)
        mine = done[lesson.slug].definitions if lesson.slug in done else []
        known = remembered.module(lesson.slug)
        status = "completed" if mine else "begun" if known.started else "not begun"
        rows.append(
            ModuleProgress(
                lesson.number, lesson.slug, lesson.title, status,
                max(known.points, done[lesson.slug].points if mine else 0), lesson.points,
                len(mine), len(ours), sum(counts.get(d, 0) for d in mine),
                is_older(workspace, lesson),
            )
        )  # fmt: skip
    return Progress(
        tuple(rows), len(counts), len(wanted | counts.keys()), sum(counts.values()),
        all_lines(workspace.package, workspace.line_counts),
    )  # fmt: skip
