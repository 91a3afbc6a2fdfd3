"""`tito update`: a lesson's new text and tests around what a student has written.

Cells are known again by the name in their metadata, and whether a student has changed one by the
mark beside it, a digest of the text that tito wrote. What a student has written or changed stays:
answers in their place, changed text and code too, cells of their own behind the cell that they
followed. Locked cells are the lesson's. The file as it was is in the backups.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tito import lessons, scripts
from tito.lessons.cells import mark_of
from tito.lessons.model import Lesson
from tito.lessons.notebook import notebook as build
from tito.workspace import course, notebook, state
from tito.workspace.folder import Workspace

Json = dict[str, Any]
CHANGED = "-changed"  # the end of the name of a cell that shows a new statement


@dataclass
class Update:
    """What became of a lesson's file.

    Attributes:
        answers: exercises whose cells hold something of the student's, which is as it was.
        new, changed, gone: of the lesson's cells, by name; text without a name as "text".
        statements: exercises whose statement is another now, while an answer is there.
        backup: the file as it was; None if nothing had to change.
    """

    path: Path
    answers: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    backup: Path | None = None


def update(workspace: Workspace, lesson: Lesson) -> Update | None:
    """Bring a lesson's file up to date; None if the workspace has none.

    Raises:
        WorkspaceError: it cannot be read.
    """
    path = notebook.find(workspace.root, lesson.folder)
    if path is None:
        return None
    form = path.suffix.removeprefix(".")
    old = notebook.read_json(path)
    fresh = build(course.cells(lesson), student=True)
    report = Update(path)
    merged = {**old, "cells": list(_merged(old["cells"], fresh["cells"], report))}
    text = notebook.render(merged, form)
    if [_plain(c) for c in merged["cells"]] != [_plain(c) for c in old["cells"]]:
        report.backup = workspace.keep(path)
        state.write(path, text)
    with state.edit(workspace) as remembered:
        module = remembered.module(lesson.slug)
        module.lesson, module.sources = digest_of(fresh), sources_of(lesson)
        if merged["cells"] == fresh["cells"]:
            module.written = notebook.digest(path.read_bytes())
    return report


def is_older(workspace: Workspace, lesson: Lesson) -> bool:
    """Whether a lesson's file lacks what its lesson says today."""
    if notebook.find(workspace.root, lesson.folder) is None:
        return False
    known = state.load(workspace).modules.get(lesson.slug)
    if known is None or known.lesson == "":
        return True
    if known.sources == sources_of(lesson):
        return False  # a lesson is built in a fifth of a second, and read in none
    return known.lesson != digest_of(build(course.cells(lesson), student=True))


def digest_of(fresh: Json) -> str:
    """By which a lesson's cells are known again."""
    return notebook.digest(json.dumps(fresh["cells"], sort_keys=True).encode())


def sources_of(lesson: Lesson) -> str:
    """A digest of what a lesson's cells are made of: its text, the files of its definitions, the
    builder, and which lessons there are."""
    places = sorted({target.path for each in lesson.exercises for target in each.targets})
    files = [lesson.path, *(scripts.ROOT / place for place in places)]
    files += sorted(Path(inspect.getfile(lessons)).parent.glob("*.py"))
    parts = [path.read_bytes() if path.is_file() else b"" for path in files]
    parts.append(" ".join(path.name for path in course.folders()).encode())
    return notebook.digest(b"\0".join(parts))


def _merged(old: list[Json], fresh: list[Json], report: Update) -> Iterator[Json]:
    names = {_name(cell) for cell in fresh}
    theirs: dict[str, Json] = {}
    own: dict[str, list[Json]] = {}
    above = ""  # the name of the lesson's cell above
    for cell in old:
        name = _name(cell)
        if name.endswith(CHANGED) and _is_ours(cell):
            continue
        if name and name in names and name not in theirs:
            theirs[name] = cell
            above = name
        elif name and _is_ours(cell):
            report.gone.append(_shown(cell))
        else:
            own.setdefault(above, []).append(_as_own(cell) if name else cell)
    yield from own.get("", [])
    for cell in fresh:
        name = _name(cell)
        kept = theirs.get(name)
        if kept is None:
            report.new.append(_shown(cell))
            yield cell
        elif not _locked(cell) and not _is_ours(kept):
            yield from _answered(kept, cell, report)
        elif mark_of(_source(kept)) == mark_of(_source(cell)):
            yield {**kept, "metadata": cell["metadata"]}  # with the outputs that it has
        else:
            report.changed.append(_shown(cell))
            yield cell
        yield from own.get(name, [])


def _answered(kept: Json, fresh: Json, report: Update) -> Iterator[Json]:
    """A cell with something of the student's; if the lesson's is another now, that above it."""
    name = _name(fresh)
    is_answer = _graded(fresh) is not None
    if is_answer:
        report.answers.append(name)
    if _marks(kept).get("mark") != _marks(fresh)["mark"]:
        (report.statements if is_answer else report.changed).append(_shown(fresh))
        said = _source(fresh)
        if fresh["cell_type"] == "code":
            said = f"In the lesson this cell is now:\n\n```python\n{said}\n```"
        marks = {"id": name + CHANGED, "mark": mark_of(said)}
        yield {
            "cell_type": "markdown", "id": (name + CHANGED)[:64],
            "metadata": {"tinytorch": marks}, "source": said.splitlines(keepends=True),
        }  # fmt: skip
    yield {**kept, "metadata": {**kept["metadata"], "tinytorch": _own_mark(kept, fresh)}}


def _own_mark(kept: Json, fresh: Json) -> Json:
    """The lesson's own words about the cell, and the mark of the text that the student began with:
    so a new statement is shown until the answer is begun anew."""
    return {**_marks(fresh), "mark": _marks(kept).get("mark", _marks(fresh)["mark"])}


def _as_own(cell: Json) -> Json:
    """A cell of the student's that the lesson has no place for any more."""
    metadata = {k: v for k, v in cell["metadata"].items() if k not in ("nbgrader", "tinytorch")}
    return {**cell, "metadata": metadata}


def _plain(cell: Json) -> tuple[str, str, Json]:
    return cell["cell_type"], _source(cell), cell.get("metadata", {})


def _source(cell: Json) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _marks(cell: Json) -> Json:
    found = cell.get("metadata", {}).get("tinytorch", {})
    return found if isinstance(found, dict) else {}


def _graded(cell: Json) -> Json | None:
    found = cell.get("metadata", {}).get("nbgrader")
    return found if isinstance(found, dict) else None


def _name(cell: Json) -> str:
    """The name of a cell of the lesson; "" for one of the student's own."""
    return str((_graded(cell) or {}).get("grade_id") or _marks(cell).get("id", ""))


def _is_ours(cell: Json) -> bool:
    """The cell is as tito wrote it, or not the student's to write."""
    return _locked(cell) or mark_of(_source(cell)) == _marks(cell).get("mark")


def _locked(cell: Json) -> bool:
    return bool((_graded(cell) or {}).get("locked"))


def _shown(cell: Json) -> str:
    name = _name(cell)
    return {"markdown": "text", "code": "code"}.get(name.partition("-")[0], name)
