"""Moodle: an assignment's grading worksheet, as it gives it out and takes it in.

Identifier (`Participant 4711`, another number in each assignment), Full name, Email address,
Status, Grade, Maximum Grade, Grade can be changed, Last modified (grade), and more.

Source: Moodle, mod/assign/gradingtable.php and mod/assign/feedback/offline/importgradeslib.php.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tito.course.config import CourseError
from tito.course.students.columns import (
    NEAR,
    Filled,
    Marks,
    Person,
    Titles,
    marks_in,
    number,
    shown,
    split_name,
)
from tito.course.students.sheet import Sheet

PARTICIPANT = re.compile(r"\D*(\d+)")
GRADE, MAXIMUM, LOCKED = "Grade", "Maximum Grade", "Grade can be changed"


class Moodle:
    name, scoped = "moodle", True

    def knows(self, sheet: Sheet) -> bool:
        return sheet.column("Identifier") is not None and sheet.column(GRADE) is not None

    def people(self, sheet: Sheet) -> list[Person]:
        found = []
        for n, row in enumerate(sheet.rows):
            key = PARTICIPANT.fullmatch(sheet.cell(row, "Identifier"))
            if key is None:
                continue
            names = split_name(sheet.cell(row, "Full name"))
            keys = {
                "moodle": key[1],
                "sis": sheet.cell(row, "ID number"),
                "login": sheet.cell(row, "Username"),
                "email": sheet.cell(row, "Email address"),
            }
            found.append(Person(n, *names, {k: v for k, v in keys.items() if v}))
        return found

    def filled(self, sheet: Sheet, marks: Marks, titles: Titles) -> Filled:
        """The worksheet as it came: Moodle itself sees by the times in it what changed since."""
        if len(marks) != 1:
            raise CourseError("a grading worksheet of Moodle is for one assignment: name it")
        ((assignment, mine),) = marks.items()
        place = sheet.column(GRADE)
        assert place is not None
        rows, notes = [], []
        for n, row in enumerate(sheet.rows):
            mark = mine.get(n)
            most = number(sheet.cell(row, MAXIMUM))
            if mark is None:
                rows.append(row)
                continue
            if most is not None and abs(most - mark.max_points) > NEAR:
                raise CourseError(
                    f"{assignment} has {shown(most)} points in Moodle and "
                    f"{shown(mark.max_points)} here: set Moodle's maximum grade to that"
                )
            if sheet.cell(row, LOCKED).casefold() == "no":
                notes.append(f"{sheet.cell(row, 'Full name')}: the grade is locked in Moodle")
                rows.append(row)
                continue
            rows.append((*row[:place], f"{mark.points:.2f}", *row[place + 1 :]))
        return Filled(replace(sheet, rows=tuple(rows)), notes)

    def marks(self, sheet: Sheet, assignment: str, titles: Titles) -> dict[int, float]:
        return marks_in(sheet, self.people(sheet), sheet.column(GRADE))
