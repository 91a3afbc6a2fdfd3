"""Wrong and right solutions beside a lesson, in `modules/NN_slug/mistakes.py`."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Mistake:
    """What a student would plausibly write, and what it costs.

    Attributes:
        exercise: the id of the exercise.
        name: the mistake in a few words.
        source: the wrong definitions as they would be in the solution cell (methods inside their
            class). Definitions of the exercise that are not in it are right.
        loses: the points lost, by test cell; every other test cell still passes.
    """

    exercise: str
    name: str
    source: str
    loses: dict[str, int]


@dataclass(frozen=True)
class Alternative:
    """A right solution of another structure, with other words where the statement leaves them free.

    Attributes:
        exercise, source: as in `Mistake`.
        name: the way that it takes, in a few words.
    """

    exercise: str
    name: str
    source: str


@dataclass(frozen=True)
class Equivalent:
    """A mutant that is right too, so that no test may refuse it.

    Attributes:
        exercise: the id of the exercise.
        change: the mutant, as `tito lessons prove` prints it.
        reason: why it does what the statement says.
    """

    exercise: str
    change: str
    reason: str


def load_mistakes(path: Path) -> list[Mistake]:
    """The list `MISTAKES` of a mistakes.py; [] if there is no such file.

    The file is run: it is its author's, as the package is.

    Raises:
        TypeError: MISTAKES is no list of `Mistake`.
    """
    return _listed(path, "MISTAKES", Mistake, None)


def load_alternatives(path: Path) -> list[Alternative]:
    """The list `ALTERNATIVES` of a mistakes.py; [] if there is none.

    Raises:
        TypeError: ALTERNATIVES is no list of `Alternative`.
    """
    return _listed(path, "ALTERNATIVES", Alternative, [])


def load_equivalents(path: Path) -> list[Equivalent]:
    """The list `EQUIVALENT` of a mistakes.py; [] if there is none.

    Raises:
        TypeError: EQUIVALENT is no list of `Equivalent`.
    """
    return _listed(path, "EQUIVALENT", Equivalent, [])


def _listed(path: Path, name: str, kind: type[Kind], without: list[Kind] | None) -> list[Kind]:
    if not path.is_file():
        return []
    found = runpy.run_path(str(path)).get(name, without)
    if not (isinstance(found, list) and all(isinstance(each, kind) for each in found)):
        raise TypeError(f"{path}: {name} must be a list of {kind.__name__}")
    return found
