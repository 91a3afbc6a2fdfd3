"""Pairs of students by the fingerprints that their solutions share.

What the reference has, what students were given, and what more than a part of the class has in
common is taken off first: there is often one way to write four lines. The rest is only a number to
sort by. Whether two people worked together is for a person to say, who reads both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from tito.course.config import Course
from tito.course.notebook import UnreadableError, grade_id, read_notebook
from tito.course.similar.tokens import tokens
from tito.course.similar.winnow import Span, fingerprints

COMMON = 0.25  # of the class: what more than these have is the usual way
FEWEST = 3  # students who make something usual, in a small class
Cells = Mapping[str, str]  # solution cells by grade_id
Prints = Mapping[str, Mapping[int, list[Span]]]


@dataclass(frozen=True)
class Shared:
    """What two students share in one exercise: lines of each, and how many fingerprints."""

    exercise: str
    count: int
    left: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True)
class Pair:
    """Two students.

    Attributes:
        shared: fingerprints that both have.
        of: fingerprints that the one with fewer has, in the exercises of both.
    """

    left: str
    right: str
    shared: int
    of: int
    exercises: tuple[Shared, ...]

    @property
    def part(self) -> float:
        """Of the smaller one's own, how much is shared: from 0 to 1."""
        return self.shared / self.of if self.of else 0.0


@dataclass(frozen=True)
class Report:
    """Pairs, those that share most first.

    Attributes:
        solutions: the texts, by student and exercise.
        skipped: who is not in it, and why.
    """

    assignment: str
    pairs: tuple[Pair, ...]
    solutions: Mapping[str, Cells] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)


def report(course: Course, assignment: str, most: int = 100) -> Report:
    """Compare all that was handed in for an assignment.

    Raises:
        CourseError: the assignment is not generated.
    """
    sources = sorted(course.folder("source", ".", assignment).glob("*.ipynb"))
    if not sources:
        raise course.not_generated(assignment)
    known = [solution_cells(path) for path in sources]
    given = [solution_cells(p) for p in _beside(course, "release", ".", assignment, sources)]
    names = {name for cells in known for name in cells}
    solutions, skipped = {}, {}
    for folder in sorted(course.root.glob(f"submitted/*/{assignment}")):
        student = folder.parent.name
        cells: dict[str, str] = {}
        try:
            for path in _beside(course, "submitted", student, assignment, sources):
                cells |= {n: s for n, s in solution_cells(path).items() if n in names}
        except (UnreadableError, OSError) as error:
            skipped[student] = str(error)
            continue
        solutions[student] = cells
    pairs = similar(solutions, [*known, *given])
    return Report(assignment, tuple(pairs[:most]), solutions, skipped)


def _beside(
    course: Course, step: str, student: str, assignment: str, sources: Sequence[Path]
) -> list[Path]:
    folder = course.folder(step, student, assignment)
    paths = [folder / path.name for path in sources]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def solution_cells(path: Path) -> dict[str, str]:
    """The cells of a notebook that were the student's to write, by grade_id."""
    found = {}
    for cell in read_notebook(path).cells:
        name = grade_id(cell)
        code = name is not None and cell.cell_type == "code"
        if code and cell.metadata.nbgrader.get("solution"):
            found[str(name)] = cell.source
    return found


def similar(solutions: Mapping[str, Cells], known: Sequence[Cells]) -> list[Pair]:
    """All pairs that share something, those that share most first.

    Args:
        solutions: by student.
        known: what the course itself has: the reference, and what students were given.
    """
    own = {student: _own(cells, known) for student, cells in solutions.items()}
    usual = _usual(own)
    rare = {student: _without(mine, usual) for student, mine in own.items()}
    pairs = [_pair(a, b, rare[a], rare[b]) for a, b in _meeting(rare)]
    return sorted(pairs, key=lambda p: (-p.shared * p.part, -p.shared, p.left, p.right))


def _own(cells: Cells, known: Sequence[Cells]) -> Prints:
    """The fingerprints of a student's cells that no cell of the course's has."""
    made = {}
    for name, source in cells.items():
        ours = {p for each in known if name in each for p in fingerprints(tokens(each[name]))}
        mine = fingerprints(tokens(source))
        made[name] = {print_: places for print_, places in mine.items() if print_ not in ours}
    return made


def _without(mine: Prints, usual: set[tuple[str, int]]) -> Prints:
    return {
        name: {each: places for each, places in prints.items() if (name, each) not in usual}
        for name, prints in mine.items()
    }


def _usual(own: Mapping[str, Prints]) -> set[tuple[str, int]]:
    """Fingerprints that so many have that they are the usual way to write it."""
    count = Counter(
        (name, one) for mine in own.values() for name, prints in mine.items() for one in prints
    )
    limit = max(FEWEST, COMMON * len(own))
    return {each for each, students in count.items() if students > limit}


def _meeting(rare: Mapping[str, Prints]) -> list[tuple[str, str]]:
    """Pairs of students who share a fingerprint, found by the fingerprint."""
    having: dict[tuple[str, int], list[str]] = {}
    for student in sorted(rare):
        for name, prints in rare[student].items():
            for print_ in prints:
                having.setdefault((name, print_), []).append(student)
    return sorted({pair for students in having.values() for pair in combinations(students, 2)})


def _pair(left: str, right: str, mine: Prints, theirs: Prints) -> Pair:
    found, shared = [], 0
    both = sorted(mine.keys() & theirs.keys())
    for name in both:
        common = mine[name].keys() & theirs[name].keys()
        if common:
            shared += len(common)
            lines = (_lines(prints[name], common) for prints in (mine, theirs))
            found.append(Shared(name, len(common), *lines))
    of = min(sum(len(prints[name]) for name in both) for prints in (mine, theirs))
    return Pair(left, right, shared, of, tuple(found))


def _lines(prints: Mapping[int, list[Span]], common: set[int]) -> tuple[int, ...]:
    places = [place for print_ in common for place in prints[print_]]
    return tuple(sorted({n for p in places for n in range(p.first, p.last + 1)}))
