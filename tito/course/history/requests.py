"""What students ask to have looked at again, with a column for the answer.

An answer is never removed: another one for the same request is added to it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Engine

from tito.course.config import Course, CourseError
from tito.course.history import audit
from tito.course.students import sheet as tables
from tito.course.students.sheet import Sheet
from tito.course.tables import REQUEST, plain, stamp
from tito.spreadsheet import escape_formula


@dataclass(frozen=True)
class Request:
    """What a student asks.

    Attributes:
        test: the grade_id that it is about; "" for all of the submission.
        answer: "" as long as there is none.
    """

    id: int
    assignment: str
    student: str
    test: str
    asked: str
    text: str
    answer: str = ""
    answered: str | None = None
    answered_by: str | None = None


def ask(engine: Engine, assignment: str, student: str, text: str, test: str = "") -> int:
    """Add a request; its number."""
    row = {"assignment": assignment, "student": student, "test": test, "text": plain(text)}
    with engine.begin() as connection:
        made = connection.execute(insert(REQUEST).values(**row, asked=stamp(), answer=""))
        number = int(made.inserted_primary_key[0])  # type: ignore[index]
        audit.note(connection, "request", assignment, student, request=number, test=test)
    return number


def answer(engine: Engine, number: int, text: str) -> Request:
    """Answer a request.

    Raises:
        CourseError: there is none with this number, or the answer is empty.
    """
    if not text.strip():
        raise CourseError(f"the answer to request {number} is empty")
    with engine.begin() as connection:
        row = connection.execute(select(REQUEST).where(REQUEST.c.id == number)).mappings().first()
        if row is None:
            raise CourseError(f"there is no request {number}")
        whole = "\n".join(filter(None, [row["answer"], plain(text.strip())]))
        values = {"answer": whole, "answered": stamp(), "answered_by": audit.who()}
        connection.execute(update(REQUEST).where(REQUEST.c.id == number).values(**values))
        audit.note(
            connection, "answer", row["assignment"], row["student"], request=number, text=text
        )
    return Request(**{**row, **values})


def requests(engine: Engine, *, unanswered: bool = False) -> list[Request]:
    """All requests, or those without an answer, in the order in which they came."""
    with engine.connect() as connection:
        rows: list[Any] = list(
            connection.execute(select(REQUEST).order_by(REQUEST.c.id)).mappings()
        )
    return [Request(**row) for row in rows if not (unanswered and row["answer"])]


def to_csv(found: Sequence[Request]) -> str:
    """A table with a column `answer` to fill in."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Request)])
    for each in found:
        writer.writerow([escape_formula(value) for value in asdict(each).values()])
    return text.getvalue()


def from_csv(course: Course, engine: Engine, data: bytes, name: str) -> list[Request]:
    """Take the answers of a table in; those that were there before are left alone.

    A row without `id` is a new request: student, assignment, text, and perhaps test.

    Raises:
        CourseError: it has no such columns, or a number or an assignment that there is not; nothing
            is taken then.
    """
    sheet = tables.read(data, name)
    columns = ("id", "answer") if sheet.column("id") is not None else ("student", "assignment")
    missing = [column for column in columns if sheet.column(column) is None]
    if missing:
        raise CourseError(f"{name} has no column {missing[0]!r}: it has {', '.join(sheet.header)}")
    known = {each.id: each for each in requests(engine)}
    rows = [(_id(sheet, row, known, name), row) for row in sheet.rows]
    for assignment in {sheet.cell(row, "assignment") for number, row in rows if number is None}:
        course.require(assignment)
    changed = []
    for number, row in rows:
        text = sheet.cell(row, "answer")
        if number is None:
            fields = (sheet.cell(row, c) for c in ("assignment", "student", "text", "test"))
            ask(engine, *fields)
        elif text and text != known[number].answer:
            changed.append(answer(engine, number, text.removeprefix(known[number].answer)))
    return changed


def _id(sheet: Sheet, row: Sequence[str], known: Any, name: str) -> int | None:
    text = sheet.cell(row, "id")
    if not text:
        if sheet.cell(row, "student") and sheet.cell(row, "assignment") and sheet.cell(row, "text"):
            return None
        raise CourseError(f"{name}: a new request needs student, assignment and text: {list(row)}")
    if text not in map(str, known):
        raise CourseError(f"{name}: there is no request {text!r}")
    return int(text)
