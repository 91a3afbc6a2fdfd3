"""What a platform's table says of people and marks, whichever platform it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from tito.course.config import CourseError
from tito.course.students.sheet import Sheet

TITLE = re.compile(r"(?P<title>.*\S)\s*\((?P<number>\d+)\)")
NEAR = 0.005  # platforms show two digits


@dataclass(frozen=True)
class Person:
    """A row of a platform.

    Attributes:
        keys: what names this person: kind to value; kinds are `canvas`, `moodle`, `sis`, `login`,
            `email`.
    """

    row: int
    first_name: str
    last_name: str
    keys: Mapping[str, str]


@dataclass(frozen=True)
class Mark:
    """What goes to a platform for one submission."""

    points: float
    max_points: float
    submitted: datetime | None = None
    late_seconds: float = 0.0


@dataclass(frozen=True)
class Filled:
    """A table with marks in it.

    Attributes:
        notes: what the instructor should know before it is uploaded.
    """

    sheet: Sheet
    notes: list[str] = field(default_factory=list)


Marks = Mapping[str, Mapping[int, Mark]]  # by assignment and row
Titles = Mapping[str, str]  # what a platform calls an assignment


class Platform(Protocol):
    """One platform's own table."""

    name: str
    scoped: bool  # its ids are another for each assignment

    def knows(self, sheet: Sheet) -> bool:
        """Is a table of this form?"""
        ...

    def people(self, sheet: Sheet) -> list[Person]:
        """The students in it."""
        ...

    def filled(self, sheet: Sheet, marks: Marks, titles: Titles) -> Filled:
        """The table that takes these marks to the platform."""
        ...

    def marks(self, sheet: Sheet, assignment: str, titles: Titles) -> dict[int, float]:
        """The marks for an assignment that are in a table, by row."""
        ...


def shown(points: float) -> str:
    """A number as all of them read it.

    >>> shown(7.5), shown(10.0)
    ('7.5', '10')
    """
    return f"{points:.2f}".rstrip("0").rstrip(".")


def number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None  # empty, "-", "EX" for excused, "N/A"


def is_titled(column: str, assignment: str, titles: Titles) -> bool:
    """Is a column for an assignment: 02_tensor, `02 tensor (4711)`, or as the course says?"""
    found = TITLE.fullmatch(column.strip())
    title = found["title"] if found else column.strip()
    wanted = titles.get(assignment, assignment)
    return re.sub(r"[\s_-]+", " ", title.casefold()) == re.sub(r"[\s_-]+", " ", wanted.casefold())


def column_of(sheet: Sheet, assignment: str, titles: Titles) -> int | None:
    places = [i for i, h in enumerate(sheet.header) if is_titled(h, assignment, titles)]
    if len(places) > 1:
        both = " and ".join(repr(sheet.header[i]) for i in places[:2])
        raise CourseError(f"{both} are both called {assignment}: say which in c.TinyTorch.titles")
    return places[0] if places else None


def split_name(name: str) -> tuple[str, str]:
    """First and last name of `Doe, Jane` or `Jane Doe`."""
    if "," in name:
        last, _, first = name.partition(",")
        return first.strip(), last.strip()
    first, _, last = name.rpartition(" ")
    return first.strip(), last.strip()


def marks_in(sheet: Sheet, people: list[Person], column: int | None) -> dict[int, float]:
    """The marks in a column, by row."""
    if column is None:
        return {}
    found = {person.row: number(sheet.rows[person.row][column]) for person in people}
    return {row: mark for row, mark in found.items() if mark is not None}
