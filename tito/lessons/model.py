"""What a lesson consists of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tito.lessons.source import Target


@dataclass(frozen=True)
class Problem:
    """Something wrong in a lesson, and where."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class LessonError(Exception):
    """A lesson cannot be built; `problems` has everything that is wrong with it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True)
class Text:
    """Markdown between two directives."""

    source: str
    line: int


@dataclass(frozen=True)
class Code:
    """A code cell, run as written; the student may change it."""

    source: str
    line: int


@dataclass(frozen=True)
class Exercise:
    """Definitions of the package that the student writes, together in one cell.

    Attributes:
        id: names the cell, in the notebook and in the gradebook.
        targets: the definitions.
        given: code that is in a locked cell above.
        tools: what its code may call and no import above it brings, a line of Markdown each.
        statement: Markdown above it; the docstrings of the definitions say the rest.
        lines: the line of each option in lesson.md.
    """

    id: str
    targets: tuple[Target, ...]
    points: int
    given: str
    hints: tuple[str, ...]
    tools: tuple[str, ...]
    statement: str
    line: int
    lines: dict[str, int]


@dataclass(frozen=True)
class Test:
    """A test cell: full points if it runs without an error, else none.

    Attributes:
        exercise: the id of the exercise that it grades.
        visible: False for a hidden test, which only the instructor version shows.
        code_line: where its code begins in lesson.md.
        seconds: that it may take when it is graded, if that is not what the course gives.
    """

    __test__ = False  # pytest: not a class of tests

    id: str
    exercise: str
    points: int
    visible: bool
    checks: str
    why: str
    source: str
    line: int
    code_line: int
    seconds: float | None = None


@dataclass(frozen=True)
class Predict:
    """A question that the reader answers before the cell below it is run.

    Attributes:
        source: code that binds `measured`: a number, or one of the choices.
        within: how far a right number may be off, relative to what is measured; None with choices.
        choices: () if a number is asked for.
        lines, code_line: as in `Exercise` and `Test`.
    """

    id: str
    question: str
    source: str
    within: float | None
    choices: tuple[str, ...]
    line: int
    lines: dict[str, int]
    code_line: int


@dataclass(frozen=True)
class FindTheBug:
    """Definitions with a mistake in them, which the reader finds and mends in their own cell."""

    id: str
    question: str
    hints: tuple[str, ...]
    source: str
    line: int
    code_line: int


@dataclass(frozen=True)
class ShownTest:
    """A test without points that fails until a bug is mended; `bug` is its id."""

    bug: str
    source: str
    line: int
    code_line: int


@dataclass(frozen=True)
class Mended:
    """The code of a bug without the bug: the proof runs it, and only instructors see it."""

    bug: str
    source: str
    line: int
    code_line: int


Practice = Predict | FindTheBug | ShownTest | Mended  # things to do without points
Block = Text | Code | Exercise | Test | Practice


@dataclass(frozen=True)
class Lesson:
    """A lesson as its author wrote it.

    Attributes:
        folder: `02_tensor`; number and slug come from it.
        path: of the lesson.md.
        needs: slugs of the lessons that come before.
        lines: the line of each entry at the top of lesson.md.
    """

    folder: str
    number: int
    slug: str
    title: str
    part: str
    needs: tuple[str, ...]
    makes_possible: str
    hours: float
    points: int
    blocks: tuple[Block, ...]
    path: Path
    lines: dict[str, int]

    @property
    def exercises(self) -> list[Exercise]:
        return [block for block in self.blocks if isinstance(block, Exercise)]

    @property
    def tests(self) -> list[Test]:
        return [block for block in self.blocks if isinstance(block, Test)]

    @property
    def practice(self) -> list[Practice]:
        return [b for b in self.blocks if isinstance(b, Practice)]

    @property
    def names(self) -> tuple[str, ...]:
        """What it answers to on the command line."""
        return (f"{self.number:02}", str(self.number), self.slug, self.folder)
