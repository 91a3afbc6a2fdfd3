"""Gradescope: its roster, and grades in the form in which it gives them out itself.

The roster: First Name, Last Name (or Name), SID, Email, Role, Section. The grades: those without
the role, then for each assignment points, maximum, time of submission and lateness.

Source: Gradescope help, "Adding students to a course" and "Exporting grades".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC

from tito.course.students.columns import (
    Filled,
    Mark,
    Marks,
    Person,
    Titles,
    column_of,
    marks_in,
    shown,
    split_name,
)
from tito.course.students.sheet import Sheet


class Gradescope:
    name, scoped = "gradescope", False
    own = ("First Name", "Last Name", "SID", "Email", "Sections")
    parts = ("", " - Max Points", " - Submission Time", " - Lateness (H:M:S)")
    total = "Total Lateness (H:M:S)"

    def knows(self, sheet: Sheet) -> bool:
        named = sheet.column("First Name") is not None or sheet.column("Name") is not None
        return named and sheet.column("SID") is not None and sheet.column("Email") is not None

    def people(self, sheet: Sheet) -> list[Person]:
        found = []
        for n, row in enumerate(sheet.rows):
            if sheet.cell(row, "Role").casefold() not in ("", "student"):
                continue
            first, last = split_name(sheet.cell(row, "Name", "Full Name"))
            names = sheet.cell(row, "First Name") or first, sheet.cell(row, "Last Name") or last
            keys = {"sis": sheet.cell(row, "SID"), "email": sheet.cell(row, "Email")}
            if any(keys.values()):
                found.append(Person(n, *names, {k: v for k, v in keys.items() if v}))
        return found

    def filled(self, sheet: Sheet, marks: Marks, titles: Titles) -> Filled:
        """The form in which Gradescope itself gives grades out: four columns an assignment."""
        header = list(self.own)
        for assignment in marks:
            header += [f"{titles.get(assignment, assignment)}{part}" for part in self.parts]
        rows = []
        for person in self.people(sheet):
            row = sheet.rows[person.row]
            cells = [person.first_name, person.last_name, sheet.cell(row, "SID")]
            cells += [sheet.cell(row, "Email"), sheet.cell(row, "Sections", "Section")]
            late = 0.0
            for mine in marks.values():
                mark = mine.get(person.row)
                most = max((m.max_points for m in mine.values()), default=0.0)
                late += 0.0 if mark is None else mark.late_seconds
                cells += _cells(mark, most)
            rows.append((*cells, _clock(late)))
        return Filled(replace(sheet, header=(*header, self.total), rows=tuple(rows)))

    def marks(self, sheet: Sheet, assignment: str, titles: Titles) -> dict[int, float]:
        return marks_in(sheet, self.people(sheet), column_of(sheet, assignment, titles))


def _cells(mark: Mark | None, most: float) -> Sequence[str]:
    if mark is None:
        return ("", shown(most), "", "")
    time = mark.submitted
    stamp = "" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S +0000")
    return (shown(mark.points), shown(mark.max_points), stamp, _clock(mark.late_seconds))


def _clock(seconds: float) -> str:
    """
    >>> _clock(93_784)
    '26:03:04'
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"
