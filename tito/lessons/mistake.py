"""`Mistake`: a wrong solution beside a lesson, in `modules/NN_slug/mistakes.py`."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path


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


def load_mistakes(path: Path) -> list[Mistake]:
    """The list `MISTAKES` of a mistakes.py; [] if there is no such file.

    The file is run: it is its author's, as the package is.

    Raises:
        TypeError: MISTAKES is no list of `Mistake`.
    """
    if not path.is_file():
        return []
    mistakes = runpy.run_path(str(path)).get("MISTAKES")
    if not (isinstance(mistakes, list) and all(isinstance(m, Mistake) for m in mistakes)):
        raise TypeError(f"{path}: MISTAKES must be a list of Mistake")
    return mistakes
