"""The package in which a submission runs: the lesson's definitions in it are the student's.

So there is no reference that a solution could call by name, and a right solution is right in the
framework too. What cannot be put into the package (a cell that is no Python, or not written)
leaves bodies there that raise. Cells are read as text here, never run.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tito.course.notebook import grade_id
from tito.lessons.magic import plain
from tito.lessons.needed import SpliceError
from tito.lessons.source import Package, SourceError, Target
from tito.lessons.splice import is_written, splice
from tito.lessons.wrong import with_result

MOST_CHARACTERS = 50_000  # of a cell; a solution has some forty lines
FUTURE = "from __future__ import annotations"
REFUSED = (SpliceError, SourceError, SyntaxError, ValueError, RecursionError, MemoryError)
NOT_WRITTEN = "(_ for _ in ()).throw(NotImplementedError({!r}))"


@dataclass(frozen=True)
class Answer:
    """An exercise and what a student wrote for it.

    Attributes:
        reference: the course's own cell, with its markers.
        context: code that gives the cell the names which the notebook gives it.
        own: the student's own cells above, in which helpers may be.
    """

    id: str
    targets: tuple[Target, ...]
    cell: str
    reference: str
    context: str
    own: str

    @property
    def written(self) -> bool:
        return len(self.cell) <= MOST_CHARACTERS and _quietly(is_written, self.cell)


def answers(node: Any, source: Any) -> list[Answer]:
    """The exercises of a course's notebook whose places in the package are known.

    One whose cell is not in the restored notebook has an empty cell: what the student's own cells
    define may take its place, and without that nothing does.
    """
    theirs = {name: cell for cell in source.cells if (name := grade_id(cell)) is not None}
    found: list[Answer] = []
    context: list[str] = []
    own: list[str] = []
    for cell in node.cells:
        name = grade_id(cell)
        if cell.cell_type != "code":
            continue
        if name not in theirs:
            own.append(plain(cell.source))
            continue
        assert name is not None
        if answer := _answer(name, cell.source, theirs[name], context, own):
            found.append(answer)
            named = [t for t in answer.targets if t.op is None]
            context += [f"from {t.module} import {t.owner or t.name}" for t in named]
        elif not theirs[name].metadata.nbgrader.get("grade"):
            context.append(theirs[name].source.replace(FUTURE, ""))
    there = {grade_id(cell) for cell in node.cells}
    missing = [_answer(n, "", cell, context, own) for n, cell in theirs.items() if n not in there]
    return [*found, *filter(None, missing)]


def _answer(
    name: str, text: str, reference: Any, context: Sequence[str], own: Sequence[str]
) -> Answer | None:
    """What a student wrote into a cell of the course's; None if it is no exercise with a place."""
    places = reference.metadata.get("tinytorch", {}).get("definitions", ())
    if not (reference.metadata.nbgrader.get("solution") and places):
        return None
    targets = tuple(map(Target.parse, places))
    before, mine = "\n".join(context), "\n".join(own)
    return Answer(name, targets, plain(text), reference.source, before, mine)


def replaced(
    mine: Sequence[Answer], package: Package, only: Collection[str] | None = None
) -> dict[str, str]:
    """The files of the package that differ, path to text.

    Args:
        only: ids of the exercises whose definitions are the student's; all if not given.
    """
    texts: dict[str, str] = {}
    for answer in mine:
        if only is not None and answer.id not in only:
            continue
        files = {t.path: texts.get(t.path) or package.text(t.path) for t in answer.targets}
        texts |= _quietly(_spliced, files, answer)
    return texts


def _spliced(files: dict[str, str], answer: Answer) -> dict[str, str]:
    reason = f"{answer.id} is not written yet"
    for cell in (answer.cell, f"{answer.own}\n{answer.cell}"):
        if len(cell) > MOST_CHARACTERS:
            continue
        try:
            return splice(files, answer.targets, cell, answer.context)
        except REFUSED as error:
            reason = f"{answer.id} cannot be put into the package: {error}"
    raises = with_result(answer.reference, NOT_WRITTEN.format(reason[:300]))
    return splice(files, answer.targets, raises, answer.context)


def _quietly(function: Any, *arguments: Any) -> Any:
    """Call with no warnings of Python about what a student wrote."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)
