"""Where a workspace is, and where things are in it."""

from __future__ import annotations

import datetime
import itertools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

MARK = ".tito"


class WorkspaceError(Exception):
    """What a student can mend; the text says how."""


@dataclass(frozen=True)
class Workspace:
    """A student's folder."""

    root: Path

    @property
    def package(self) -> Path:
        return self.root / "tinytorch"

    @property
    def state(self) -> Path:
        return self.root / MARK / "state.json"

    @property
    def line_counts(self) -> Path:
        return self.root / MARK / "line-counts.json"

    @property
    def completed(self) -> Path:
        return self.root / MARK / "completed"

    @property
    def backups(self) -> Path:
        return self.root / MARK / "backups"

    def keep(self, path: Path, *, move: bool = False) -> Path:
        """Copy (or move) a file of the workspace to the backups; returns where it is now."""
        moment = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
        names = (moment if n == 0 else f"{moment}-{n}" for n in itertools.count())
        relative = path.relative_to(self.root)
        target = next(t for name in names if not (t := self.backups / name / relative).exists())
        target.parent.mkdir(parents=True, exist_ok=True)
        if move:
            shutil.move(path, target)
        else:
            shutil.copy2(path, target)
        return target


def find(start: Path | None = None) -> Workspace | None:
    """The workspace that a folder, by default the current one, is in."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / MARK).is_dir():
            return Workspace(folder)
    return None


def require(start: Path | None = None) -> Workspace:
    """The workspace here.

    Raises:
        WorkspaceError: this is none.
    """
    if (workspace := find(start)) is None:
        raise WorkspaceError(
            f"{start or Path.cwd()} is not in a workspace: go to yours (cd DIR), or make one with "
            f"`tito init DIR`"
        )
    check(workspace)
    return workspace


def check(workspace: Workspace) -> None:
    """Refuse a folder that `PYTHONPATH` cannot name: the reference would run in place of it.

    Raises:
        WorkspaceError: there is a colon in its path.
    """
    if os.pathsep in str(workspace.root):
        raise WorkspaceError(
            f"Python imports nothing from {workspace.root}, for the {os.pathsep!r} in its path: "
            "choose another name"
        )
