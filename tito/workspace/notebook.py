"""The student's file of a lesson: a notebook, or the same cells as plain Python.

The plain form is jupytext's percent format (`# %%` begins a cell), which VS Code, PyCharm, Spyder
and JupyterLab run cell by cell. A file is only ever read as text.

Source: https://jupytext.readthedocs.io/en/latest/formats-scripts.html#the-percent-format
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tito.workspace.folder import WorkspaceError

FORMATS = ("ipynb", "py")
HALF = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class FileCell:
    """A cell of a student's file.

    Attributes:
        kind: "code", "markdown" or "raw".
        id: its nbgrader `grade_id`; "" for a cell without one.
        number: counted from 1, as a reader of the notebook counts.
    """

    kind: str
    source: str
    id: str
    number: int


def files(folder: Path, stem: str) -> list[Path]:
    """The files of a lesson in a workspace, a notebook and a .py file: the one changed last comes
    last."""
    there = [p for suffix in FORMATS if (p := folder / f"{stem}.{suffix}").is_file()]
    return sorted(there, key=lambda path: path.stat().st_mtime_ns)


def find(folder: Path, stem: str) -> Path | None:
    """The file of a lesson in a workspace; of several the one changed last."""
    return next(reversed(files(folder, stem)), None)


def digest(data: bytes) -> str:
    """By which the content of a file is known again."""
    return hashlib.sha256(data).hexdigest()


def render(notebook: dict[str, Any], form: str) -> str:
    """The text of a file that holds a notebook's cells.

    Args:
        notebook: in nbformat's JSON.
        form: "ipynb" or "py".
    """
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if form == "ipynb":
        return text
    jupytext = _jupytext()
    return str(jupytext.writes(jupytext.reads(text, fmt="ipynb"), fmt="py:percent"))


def read(path: Path) -> list[FileCell]:
    """The cells of a student's file.

    Raises:
        WorkspaceError: it is gone, or no notebook, or two cells have the same id.
    """
    raw = [_cell(cell) for cell in read_json(path)["cells"]]
    cells = [FileCell(kind, source, id, n) for n, (kind, source, id) in enumerate(raw, 1)]
    seen: dict[str, int] = {}
    for cell in cells:
        if cell.id and cell.id in seen:
            raise WorkspaceError(
                f"{path.name} has the cell {cell.id!r} twice (cells {seen[cell.id]} and "
                f"{cell.number}), by a copy perhaps: keep your answer in one and delete the other"
            )
        seen[cell.id] = cell.number
    return cells


def read_json(path: Path) -> dict[str, Any]:
    """A student's file as a notebook in nbformat's JSON, whose cells are cells.

    Raises:
        WorkspaceError: it is gone, or no notebook.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WorkspaceError(f"{path.name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WorkspaceError(
            f"{path.name} is no text in UTF-8 (byte {error.start}): save it so again"
        ) from None
    return _from_notebook(path, text) if path.suffix == ".ipynb" else _from_python(path, text)


def _from_notebook(path: Path, text: str) -> dict[str, Any]:
    try:
        notebook: dict[str, Any] = json.loads(text)
        if HALF.search(text):  # of a pair of surrogates, which no file can hold as text
            whole = json.dumps(notebook, ensure_ascii=False)
            notebook = json.loads(whole.encode(errors="replace"))
        for cell in notebook["cells"]:
            _cell(cell)
        return notebook
    except json.JSONDecodeError as error:
        problem = f"it is not JSON (line {error.lineno}: {error.msg})"
    except RecursionError:
        problem = "it is not JSON (lists in lists without end)"
    except (KeyError, TypeError, AttributeError):
        problem = "it has no list of cells as notebooks have"
    raise WorkspaceError(
        f"{path.name} is no notebook: {problem}. Restore it from your editor's history, or start "
        f"anew with `tito module reset`, which keeps this file as a backup"
    )


def _from_python(path: Path, text: str) -> dict[str, Any]:
    jupytext = _jupytext()
    try:
        notebook: dict[str, Any] = json.loads(
            jupytext.writes(jupytext.reads(text, fmt="py:percent"), fmt="ipynb")
        )
        for cell in notebook["cells"]:
            _cell(cell)
        return notebook
    except Exception as error:  # of jupytext or a YAML parser: a broken file must not break tito
        raise WorkspaceError(
            f"{path.name} cannot be read as cells: {error}. Each begins with a line `# %%`; start "
            f"anew with `tito module reset`, which keeps this file as a backup"
        ) from None


def _cell(cell: Any) -> tuple[str, str, str]:
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    metadata = cell.get("metadata", {}).get("nbgrader", {})
    return str(cell["cell_type"]), text, str(metadata.get("grade_id", ""))


def _jupytext() -> Any:
    """jupytext, which takes a while to load.

    Raises:
        WorkspaceError: it is not installed.
    """
    try:
        import jupytext  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise WorkspaceError(
            f"lessons as .py files need {error.name}, which is not installed: "
            f"pip install 'tinytorch[course]'"
        ) from None
    return jupytext
