"""What a workspace remembers: a small JSON file, replaced in one step.

What was *completed* is not here: that is the files in .tito/completed/, so that losing this file
loses no work.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tinytorch.files import atomic_write
from tito.workspace.folder import Workspace
from tito.workspace.notebook import FORMATS

VERSION = 1


@dataclass
class ModuleState:
    """What is remembered of a module.

    Attributes:
        started: when, in ISO 8601; "" if never.
        written: SHA-256 of its file as tito wrote it; another one now means that it was edited.
        lesson: digest of the lesson's cells that the file has, around what is the student's.
        sources: digest of what those cells were made of.
        hints: how many were shown, by exercise.
        passed: ids of the test cells that the last run passed.
        points: of the last run.
    """

    started: str = ""
    written: str = ""
    lesson: str = ""
    sources: str = ""
    hints: dict[str, int] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    points: int = 0


@dataclass
class State:
    """Modules by slug; the format that files of lessons are written in ("ipynb" or "py")."""

    format: str = "ipynb"
    modules: dict[str, ModuleState] = field(default_factory=dict)

    def module(self, slug: str) -> ModuleState:
        """What is remembered of a module, to be changed in place."""
        return self.modules.setdefault(slug, ModuleState())


def load(workspace: Workspace) -> State:
    """The state; an empty one if there is none. A file that cannot be read is kept as a backup."""
    try:
        text = workspace.state.read_text(encoding="utf-8")
    except FileNotFoundError:
        return State()
    except UnicodeDecodeError:
        text = ""
    try:
        return _from_json(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        workspace.keep(workspace.state, move=True)
        return State()


def is_writable(workspace: Workspace) -> bool:
    """Whether tito can remember something here: a folder may be read-only, or someone else's."""
    return os.access(workspace.state.parent, os.W_OK)


@contextmanager
def edit(workspace: Workspace) -> Iterator[State]:
    """The state, written back at the end if there was no error; one process at a time."""
    lock = workspace.state.with_name("lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # let go when the file is closed, also by a crash
        state = load(workspace)
        yield state
        text = json.dumps({"version": VERSION, **asdict(state)}, indent=1, sort_keys=True)
        write(workspace.state, text + "\n")


def write(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    with atomic_write(path) as stream:
        stream.write(text.encode())


def _from_json(value: Any) -> State:
    """The state, if this is one.

    Raises:
        TypeError, KeyError: it is something else.
    """
    modules = {slug: ModuleState(**entry) for slug, entry in value["modules"].items()}
    for module in modules.values():
        for each in fields(module):
            if type(getattr(module, each.name)) is not type(getattr(ModuleState(), each.name)):
                raise TypeError(f"{each.name} is {getattr(module, each.name)!r}")
    if value["format"] not in FORMATS:
        raise KeyError(value["format"])
    return State(value["format"], modules)
