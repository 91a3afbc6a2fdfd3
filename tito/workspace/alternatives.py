"""Right solutions of another structure, put into the package as `complete` would do it.

A solution that has all points must be able to complete its module: the integration tests of the
module ask only for what the statements say.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tito.lessons.build import Course
from tito.lessons.cells import context_of
from tito.lessons.mistake import Alternative
from tito.lessons.model import Lesson
from tito.lessons.needed import SpliceError
from tito.lessons.source import SourceError, Target, find_definition
from tito.lessons.splice import splice
from tito.scratch import Scratch
from tito.workspace import integration
from tito.workspace.folder import WorkspaceError
from tito.workspace.package import NAME


def integrate(course: Course, lesson: Lesson, alternatives: Sequence[Alternative]) -> list[str]:
    """What does not hold with alternatives in the package: the first of each exercise together,
    then the second, and so on."""
    rounds: list[dict[str, Alternative]] = []
    for alternative in alternatives:
        place = next((r for r in rounds if alternative.exercise not in r), None)
        if place is None:
            rounds.append(place := {})
        place[alternative.exercise] = alternative
    return [finding for chosen in rounds for finding in _integrated(course, lesson, chosen)]


def _integrated(course: Course, lesson: Lesson, chosen: dict[str, Alternative]) -> Iterator[str]:
    cells = course.cells(lesson)
    names = ", ".join(repr(alternative.name) for alternative in chosen.values())
    texts: dict[str, str] = {}
    for exercise in lesson.exercises:
        if exercise.id not in chosen:
            continue
        source = chosen[exercise.id].source
        targets = [target for target in exercise.targets if _defines(source, target)]
        files = {t.path: texts.get(t.path) or course.package.text(t.path) for t in targets}
        try:
            texts |= splice(files, targets, source, context_of(cells, exercise, lesson))
        except SpliceError as error:
            yield f"the right solution {chosen[exercise.id].name!r} has no place: {error}"
    with Scratch(prefix="tito-alternatives-") as folder:
        root = Path(folder).resolve()
        stale = (f"{Path(path).stem}.*.pyc" for path in texts)  # byte code of what stays saves time
        shutil.copytree(course.root / NAME, root / NAME, ignore=shutil.ignore_patterns(*stale))
        for path, text in texts.items():
            (root / path).write_text(text, encoding="utf-8")
        tests = lesson.path.with_name("integration.py")
        files_of = [(lesson.slug, tests)] if tests.is_file() else []
        try:
            failed = integration.run(root, files_of, root).failed
        except WorkspaceError as error:
            yield f"the right solutions {names}: {error}"
            return
    for held in failed:
        assert held.failure is not None
        said = f"{held.says}: {held.failure.message}"
        yield f"with the right solutions {names} it does not hold: {said}"


def _defines(source: str, target: Target) -> bool:
    try:
        find_definition(source, target)
    except SourceError:
        return False
    return True
