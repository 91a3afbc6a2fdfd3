"""Watch mode for authors: build again whenever a lesson or the package changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

try:
    import watchfiles
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "watch needs watchfiles, which is not installed: pip install 'tinytorch[course]'"
    ) from error

from tito.lessons.build import Course, build_lesson
from tito.lessons.check import check_course
from tito.lessons.model import Problem
from tito.lessons.source import Package

WATCHED = ("modules", "tinytorch")


def changes(root: Path) -> Iterator[object]:
    """One item for each burst of changes below the watched folders, until interrupted."""
    folders = [root / name for name in WATCHED]
    wanted = watchfiles.PythonFilter(extra_extensions=(".md",))
    yield from watchfiles.watch(*folders, watch_filter=wanted, raise_interrupt=True)


def watch_lessons(
    root: Path,
    output: Path,
    bursts: Iterable[object],
    built: Callable[[list[Path]], None],
    wrong: Callable[[list[Problem]], None],
) -> None:
    """Build all lessons, then again after each burst of changes.

    Args:
        built: is told the files that were written, which are those that changed.
        wrong: is told what is wrong; lessons that are not wrong are built all the same.
    """
    _build(root, output, built, wrong)
    for _ in bursts:
        _build(root, output, built, wrong)


def _build(
    root: Path,
    output: Path,
    built: Callable[[list[Path]], None],
    wrong: Callable[[list[Problem]], None],
) -> None:
    lessons, problems = check_course(root)
    course = Course(root, tuple(lessons), Package(root))
    bad = {problem.path for problem in problems}
    files = [
        path
        for lesson in lessons
        if lesson.path not in bad
        for path in build_lesson(course, lesson, output)
    ]
    built(files)
    wrong(problems)
