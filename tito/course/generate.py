"""Lessons to assignments: the instructor's notebook to `source/`, the student's to `release/`."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tito.course.config import Course, CourseError, quiet
from tito.course.exam.key import Key
from tito.course.grade import exam
from tito.lessons.notebook import MENDED

WRITTEN = ".tito/generated.json"  # in the course directory: what was written to source/


@dataclass(frozen=True)
class Generated:
    """An assignment that can be handed out; `notes` say what became of edits in `source/`."""

    name: str
    points: float
    tests: int
    release: Path
    notes: tuple[str, ...] = ()


def generate(
    course: Course,
    name: str,
    *,
    confined: bool = True,
    check: bool = True,
    replace: bool = False,
) -> Generated:
    """Make the assignment for a lesson, or for a notebook that lies in `source/` already.

    Args:
        name: number, slug or folder of a lesson, or a folder in `source/`.
        check: run the reference, which has to pass its own tests.
        replace: write the lesson's notebook over one that was edited, which becomes a backup.

    Raises:
        CourseError: there is no such lesson, or nbgrader refuses it.
        LessonError: the lesson is not well formed.
        InstrumentError: the reference does not pass.
    """
    assignment, notes = _write_source(course, name, replace)
    sources = sorted(course.folder("source", ".", assignment).glob("*.ipynb"))
    keys: list[Key] = (
        [exam(course, p, assignment=assignment, confined=confined).key for p in sources]
        if check
        else []
    )
    for path in sources:
        _check_cells(course, assignment, path.stem, path.read_text(encoding="utf-8"))
    directory = course.directory(assignment)
    with quiet() as said:
        from nbconvert.preprocessors import TagRemovePreprocessor
        from nbgrader.converters import GenerateAssignment

        config = deepcopy(course.config)
        config.TagRemovePreprocessor.update({"enabled": True, "remove_cell_tags": {MENDED}})
        step = GenerateAssignment(coursedir=directory, config=config)
        step.preprocessors = [TagRemovePreprocessor, *step.preprocessors]
        step.force = True
        try:
            step.start()
        except Exception as error:
            raise CourseError(f"nbgrader does not take {assignment}: {said() or error}") from error
    with course.gradebook() as gradebook:
        points = gradebook.find_assignment(assignment).max_score
    count = sum(len(key.tests) for key in keys)
    release = course.folder("release", ".", assignment)
    return Generated(assignment, points, count, release, tuple(notes))


def _write_source(course: Course, name: str, replace: bool) -> tuple[str, list[str]]:
    """Build the instructor's notebook of a lesson; the name of the assignment, and what to say."""
    if sorted(course.folder("source", ".", name).glob("*.ipynb")) and not _lesson(name):
        return name, []
    found = _lesson(name)
    if found is None:
        raise CourseError(_no_such(name))
    from tito.lessons.notebook import notebook_text

    lessons, lesson = found
    folder = course.folder("source", ".", lesson.folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = notebook_text(lessons.cells(lesson), student=False)
    path = folder / f"{lesson.folder}.ipynb"
    edited = _edited(course, path, text)
    if edited and not replace:
        return str(lesson.folder), [
            f"{path} was edited and is kept as it is; --replace writes the lesson's over it"
        ]
    _check_cells(course, lesson.folder, path.stem, text)
    notes = []
    if edited:
        backup = path.with_suffix(f".{datetime.now(UTC):%Y%m%d-%H%M%S}.backup")
        path.replace(backup)
        notes.append(f"{path} was edited; that is now {backup.name}")
    path.write_text(text, encoding="utf-8")
    written = course.root / WRITTEN
    known = _written(written) | {lesson.folder: _meaning(text)}
    written.parent.mkdir(exist_ok=True)
    written.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return str(lesson.folder), notes


def _check_cells(course: Course, assignment: str, notebook: str, text: str) -> None:
    """nbgrader has marks by cell: while there are submissions, no cell may come or go.

    Raises:
        CourseError: one would. Nothing was changed: students' work can be graded as before.
    """
    from nbgrader.api import MissingEntry

    with course.gradebook() as gradebook:
        try:
            known = gradebook.find_notebook(notebook, assignment)
        except MissingEntry:
            return
        before = {cell.name for cell in known.source_cells} if known.submissions else None
    told = [cell["metadata"] for cell in json.loads(text)["cells"]]
    marked = [m["nbgrader"] for m in told if "nbgrader" in m and MENDED not in m.get("tags", ())]
    now = {m["grade_id"] for m in marked if m["grade"] or m["solution"] or m["locked"]}
    if before is not None and now != before:
        new, gone = (", ".join(sorted(x)) or "none" for x in (now - before, before - now))
        raise CourseError(
            f"{assignment} has submissions, so its cells must stay (new: {new}; gone: {gone}). "
            f"Nothing was changed: go on with what students have, or give the new notebook a "
            f"folder of its own in source/"
        )


def _edited(course: Course, path: Path, text: str) -> bool:
    """The notebook is there, and is neither what was written last nor what would be now."""
    if not path.is_file():
        return False
    now = _meaning(path.read_text(encoding="utf-8"))
    return now not in (_written(course.root / WRITTEN).get(path.stem), _meaning(text))


def _written(path: Path) -> dict[str, str]:
    """What was written last, by assignment."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _meaning(text: str) -> str:
    """A digest of the cells; saving in JupyterLab changes layout, outputs and counts only."""
    try:
        cells = json.loads(text)["cells"]
        told = [[c["cell_type"], "".join(c["source"]), c.get("metadata", {})] for c in cells]
    except (ValueError, KeyError, TypeError):
        return hashlib.sha256(text.encode()).hexdigest()  # whatever it is, it is not ours
    for _, _, metadata in told:
        for kept in ("trusted", "collapsed", "execution", "editable", "slideshow", "scrolled"):
            metadata.pop(kept, None)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


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
