"""Read what a student handed in, and put back what was not theirs to change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from tito.course.config import quiet
from tito.course.exam.instrument import Source
from tito.course.sanitize import pictures, sanitize_markdown

LARGEST_BYTES = 20 << 20
HIDDEN = "BEGIN HIDDEN TESTS"
TAG = re.compile(r"<(?=[A-Za-z/!?])")


class UnreadableError(ValueError):
    """A submission is no notebook; the text says why."""


def read_notebook(path: Path) -> Any:
    """A notebook as a node of nbformat, version 4.

    Raises:
        UnreadableError: it is none.
    """
    import nbformat

    if path.stat().st_size > LARGEST_BYTES:
        raise UnreadableError(f"it is larger than {LARGEST_BYTES >> 20} MiB")
    try:
        with quiet():
            data = json.loads(path.read_bytes().decode("utf-8-sig"))
            whole = json.dumps(data, ensure_ascii=False).encode(errors="replace").decode()
            notebook = nbformat.reads(whole, as_version=4)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"it is not JSON: {error}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"it is not JSON: {type(error).__name__}") from None
    except Exception as error:  # nbformat raises whatever its walk runs into
        raise UnreadableError(f"it is no notebook: {type(error).__name__}: {error}") from None
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not all(map(_is_cell, cells)):
        raise UnreadableError("it is no notebook: its cells are not cells")
    return notebook


def _is_cell(cell: Any) -> bool:
    return (
        isinstance(cell, dict)
        and cell.get("cell_type") in ("code", "markdown", "raw")
        and isinstance(cell.get("source"), str)
    )


def grade_id(cell: Mapping[str, Any]) -> str | None:
    """The name by which nbgrader knows a cell; None if it has none."""
    metadata = cell.get("metadata")
    mine = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = mine.get("grade_id") if isinstance(mine, dict) else None
    return name if isinstance(name, str) else None


def restore(submitted: Any, source: Any) -> Any:
    """The submitted notebook with the course's own cells as the course has them.

    Cells are known by their grade_id, and nothing else of their metadata is believed. Tests and
    given cells that were deleted are back, after the cell that they followed; of a cell that is
    there twice the last counts, and the others run as cells of the student's own. Text that a
    student has written only shows: instructors open the result in a browser. Pasted pictures stay.
    """
    theirs = {name: cell for cell in source.cells if (name := grade_id(cell)) is not None}
    texts = {cell.source for cell in source.cells if cell.cell_type != "code"}
    last = {grade_id(cell): i for i, cell in enumerate(submitted.cells)}
    cells = []
    for i, cell in enumerate(submitted.cells):
        name = grade_id(cell)
        if name in theirs and last[name] == i:
            cells.append(_as_in_source(cell, theirs[name]))
        else:
            cells.append(_plain(cell))
    for missing in (c for n, c in theirs.items() if n not in last and _is_locked(c)):
        cells.insert(_place(missing, source.cells, cells), deepcopy(missing))
    for cell in cells:
        if cell.cell_type != "code" and cell.source not in texts:
            cell.source = TAG.sub("&lt;", cell.source)
            if cell.cell_type == "markdown":
                cell.source = sanitize_markdown(cell.source, cell.get("attachments", {}))
    notebook = deepcopy(source)
    notebook.cells = cells
    used: set[str] = set()
    for number, cell in enumerate(cells):
        if not isinstance(cell.get("id"), str) or cell["id"] in used or not cell["id"].isascii():
            cell["id"] = f"cell-{number}"
        used.add(cell["id"])
    return notebook


def missing_exercises(restored: Any, source: Any) -> list[str]:
    """Exercises of the course whose cell is not in a restored notebook, whatever else may be: it
    was deleted, or a program has saved the notebook without the metadata that names its cells."""
    there = {grade_id(cell) for cell in restored.cells}
    return [c.id for c in course_cells(source) if c.kind == "solution" and c.id not in there]


def _is_locked(cell: Any) -> bool:
    mine = cell.metadata.nbgrader
    return bool(mine.get("locked") or (mine.get("grade") and not mine.get("solution")))


def _as_in_source(cell: Any, source: Any) -> Any:
    """A cell of the course's: the student's text where it is theirs to write, all else ours."""
    restored = deepcopy(source)
    if not _is_locked(source):
        restored.source = cell.source
        _attach(restored, cell)
    return restored


def _plain(cell: Any) -> Any:
    """A cell of the student's own: its text, and nothing that nbgrader would act on."""
    import nbformat

    make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    made = make.get(cell.cell_type, nbformat.v4.new_raw_cell)(cell.source)
    _attach(made, cell)
    return made


def _attach(made: Any, cell: Any) -> None:
    """Give a text the pictures that were pasted into it."""
    kept = pictures(cell.get("attachments")) if made.cell_type == "markdown" else {}
    if kept:
        made["attachments"] = kept


def _place(missing: Any, source: Sequence[Any], cells: Sequence[Any]) -> int:
    """Behind the nearest cell above it in the source that is still there. A test whose exercise is
    not comes last: what it asks for may be in a cell of the student's own."""
    places = {name: i for i, cell in enumerate(cells) if (name := grade_id(cell)) is not None}
    exercise = missing.metadata.get("tinytorch", {}).get("for")
    if exercise is not None and exercise not in places:
        return len(cells)
    place = 0
    for cell in source:
        if cell is missing or grade_id(cell) == grade_id(missing):
            return place
        place = places.get(grade_id(cell) or "", place - 1) + 1
    return place


def course_cells(source: Any) -> list[Source]:
    """Given, solution and test cells of the instructor's notebook, in order."""
    cells = []
    for cell in source.cells:
        name = grade_id(cell)
        if name is None or cell.cell_type != "code":
            continue
        mine = cell.metadata.nbgrader
        kind = "solution" if mine.get("solution") else "test" if mine.get("grade") else "given"
        cells.append(Source(name, kind, cell.source, seconds_of(cell)))
    return cells


def seconds_of(cell: Any) -> float | None:
    """The limit that a cell of the course's has of its own: metadata.tinytorch.seconds."""
    seconds = cell.metadata.get("tinytorch", {}).get("seconds")
    return float(seconds) if isinstance(seconds, (int, float)) else None


def hidden_tests(source: Any) -> list[str]:
    """The tests that students do not see, in part or at all, by grade_id."""
    return [name for c in source.cells if (name := grade_id(c)) is not None and HIDDEN in c.source]


def without_hidden(text: str) -> str:
    """The part of a test cell that students see."""
    kept, inside = [], False
    for line in text.split("\n"):
        if HIDDEN in line:
            inside = True
        elif "END HIDDEN TESTS" in line:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)
