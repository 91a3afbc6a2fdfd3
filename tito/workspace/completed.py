"""What a student has completed: their cells, one file a module. The package is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tito.lessons.source import Target
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.state import write


@dataclass(frozen=True)
class Piece:
    """An exercise's cell as the student wrote it.

    Attributes:
        exercise: its id.
        definitions: what it defines, as `tinytorch/shapes.py::broadcast_shapes`.
        cell: the source.
        context: imports that the notebook gave it.
    """

    exercise: str
    definitions: tuple[str, ...]
    cell: str
    context: str

    @property
    def targets(self) -> list[Target]:
        return [Target.parse(text) for text in self.definitions]


@dataclass(frozen=True)
class Completed:
    """A completed module.

    Attributes:
        moment: when, in ISO 8601 with the time zone; of two cells for one definition the later
            one counts.
    """

    slug: str
    moment: str
    points: int
    pieces: tuple[Piece, ...]

    @property
    def definitions(self) -> list[str]:
        return [text for piece in self.pieces for text in piece.definitions]


def path_of(workspace: Workspace, slug: str) -> Path:
    """Where a completed module is kept."""
    return workspace.completed / f"{slug}.json"


def save(workspace: Workspace, completed: Completed) -> None:
    """Keep a completed module; what it replaces becomes a backup."""
    path = path_of(workspace, completed.slug)
    if path.exists():
        workspace.keep(path)
    write(path, json.dumps(asdict(completed), indent=1) + "\n")


def load(workspace: Workspace) -> list[Completed]:
    """All completed modules, oldest first.

    Raises:
        WorkspaceError: a file is not as tito wrote it.
    """
    found = [_read(path) for path in sorted(workspace.completed.glob("*.json"))]
    return sorted(found, key=lambda completed: completed.moment)


def definitions(modules: Sequence[Completed]) -> set[str]:
    """All definitions that are the student's."""
    return {text for completed in modules for text in completed.definitions}


def _read(path: Path) -> Completed:
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        pieces = tuple(
            Piece(p["exercise"], tuple(p["definitions"]), p["cell"], p["context"])
            for p in value["pieces"]
        )
        return Completed(path.stem, value["moment"], int(value["points"]), pieces)
    except (ValueError, TypeError, KeyError) as error:
        raise WorkspaceError(
            f"{path} is damaged ({error}): move it away and run "
            f"`tito module complete {path.stem}` again; your notebook has the code"
        ) from None
