"""Canvas: its gradebook, as it gives it out and takes it in.

Student (or LastName, FirstName), ID, SIS User ID, SIS Login ID, Section, then `Title (number)` for
each assignment and columns that are read-only. Below the header is a row `Points Possible`; before
it one with `Manual Posting`, if an assignment has that.

Source: Canvas, lib/gradebook_exporter.rb and lib/gradebook_importer.rb.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tito.course.students.columns import (
    NEAR,
    Filled,
    Mark,
    Marks,
    Person,
    Titles,
    column_of,
    marks_in,
    number,
    shown,
    split_name,
)
from tito.course.students.sheet import Sheet

OWN = ("Student", "LastName", "FirstName", "ID", "SIS User ID", "SIS Login ID",
       "Integration ID", "Root Account", "Section")  # fmt: skip
POINTS, TEST_STUDENT, EXCUSED = "Points Possible", "Student, Test", "EX"


class Canvas:
    name, scoped = "canvas", False

    def knows(self, sheet: Sheet) -> bool:
        named = sheet.column("Student") is not None or sheet.column("LastName") is not None
        return named and sheet.column("ID") is not None and sheet.column("Section") is not None

    def people(self, sheet: Sheet) -> list[Person]:
        found = []
        for n, row in enumerate(sheet.rows):
            key, name = sheet.cell(row, "ID"), sheet.cell(row, "Student")
            if not key or name == TEST_STUDENT or _is_points(row):
                continue
            first, last = split_name(name)
            names = sheet.cell(row, "FirstName") or first, sheet.cell(row, "LastName") or last
            login = sheet.cell(row, "SIS Login ID")
            keys = {"canvas": key, "sis": sheet.cell(row, "SIS User ID"), "login": login}
            if "@" in login:
                keys["email"] = login
            found.append(Person(n, *names, {k: v for k, v in keys.items() if v}))
        return found

    def filled(self, sheet: Sheet, marks: Marks, titles: Titles) -> Filled:
        """Only who they are and our columns: others would put back what changed in between."""
        places = [i for i, h in enumerate(sheet.header) if h.strip() in OWN]
        kept = [n for n, row in enumerate(sheet.rows) if _is_points(row) or sheet.cell(row, "ID")]
        header = [sheet.header[i] for i in places]
        rows = [[sheet.rows[n][i] for i in places] for n in kept]
        notes: list[str] = []
        for assignment, mine in marks.items():
            place = column_of(sheet, assignment, titles)
            if place is None:
                notes.append(f"Canvas has no column for {assignment}, and will make an assignment")
            title = titles.get(assignment, assignment)
            header.append(title if place is None else sheet.header[place])
            for cells, n in zip(rows, kept, strict=True):
                before = "" if place is None else sheet.rows[n][place].strip()
                if _is_points(sheet.rows[n]):
                    cells.append(_points(assignment, before, mine, notes))
                elif before == EXCUSED and n in mine:
                    notes.append(f"{cells[0]} is excused from {assignment} in Canvas: no mark")
                    cells.append(before)
                else:
                    cells.append(shown(mine[n].points) if n in mine else before)
        made = replace(sheet, header=tuple(header), rows=tuple(map(tuple, rows)))
        return Filled(made, notes)

    def marks(self, sheet: Sheet, assignment: str, titles: Titles) -> dict[int, float]:
        return marks_in(sheet, self.people(sheet), column_of(sheet, assignment, titles))


def _is_points(row: Sequence[str]) -> bool:
    return row[0].strip().startswith(POINTS)


def _points(assignment: str, before: str, mine: Mapping[int, Mark], notes: list[str]) -> str:
    """What the row `Points Possible` says of an assignment."""
    here = next((mark.max_points for mark in mine.values()), None)
    there = number(before)
    if there is not None and here is not None and abs(there - here) > NEAR:
        notes.append(f"{assignment} has {shown(there)} points in Canvas and {shown(here)} here")
    return before or ("" if here is None else shown(here))
