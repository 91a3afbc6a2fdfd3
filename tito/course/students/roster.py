"""Students in, and marks out, in a platform's own file.

The file is kept as it came: with the marks in it, it goes back. Who is meant by a row is found by
what names people (a platform's number, an address, a login); who has handed something in already
keeps the name of that folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.engine import Engine

from tito.course.config import Course, CourseError, quiet
from tito.course.files import NAME
from tito.course.history import audit
from tito.course.platforms import folder_name
from tito.course.students import sheet as tables
from tito.course.students.columns import NEAR, Filled, Mark, Person, Platform
from tito.course.students.identity import ANYWHERE, identities, store
from tito.course.students.marks import Counted, counted
from tito.course.students.platforms import PLATFORMS, platform_of
from tito.course.students.sheet import Sheet
from tito.course.tables import ROSTER, database, plain, stamp

NEW, KNOWN, REFUSED = "new", "known", "refused"


@dataclass(frozen=True)
class Imported:
    """What became of a row.

    Attributes:
        student: the name in this course.
    """

    student: str
    name: str
    what: str
    detail: str = ""


@dataclass(frozen=True)
class Difference:
    """A mark that a platform has otherwise; None where there is none."""

    student: str
    platform: float | None
    here: float | None


def import_roster(course: Course, data: bytes, name: str, assignment: str = "") -> list[Imported]:
    """Take the students of a platform's file in.

    Args:
        assignment: whose file it is, for platforms that number students anew in each.

    Raises:
        CourseError: the file is no platform's, or the assignment is not known.
    """
    sheet = tables.read(data, name)
    platform = platform_of(sheet, name)
    if scope := _scope(platform, assignment):
        course.require(scope)
    results, people = [], {}
    with database(course) as engine:
        with quiet(), course.gradebook() as gradebook:
            taken = known_students(course, gradebook)
            known = identities(engine)
            before = set(known)
            for person in platform.people(sheet):
                keys = _keys(person, scope)
                student, result = _identify(person, keys, known, taken)
                results.append(result)
                if student:
                    taken.add(student)
                    known |= dict.fromkeys(keys, student)
                    people[person.row] = student
                    gradebook.update_or_create_student(student, **_fields(person))
        with engine.begin() as connection:
            store(connection, {k: who for k, who in known.items() if k not in before})
            same = (ROSTER.c.platform == platform.name) & (ROSTER.c.scope == scope)
            connection.execute(delete(ROSTER).where(same))
            row = {
                "platform": platform.name,
                "scope": scope,
                "text": plain(data.decode("utf-8")),
                "imported": stamp(),
            }
            connection.execute(insert(ROSTER).values(**row))
            count = {what: sum(r.what == what for r in results) for what in (NEW, KNOWN, REFUSED)}
            audit.note(connection, "roster", scope, platform=platform.name, **count)
    return results


def _scope(platform: Platform, assignment: str) -> str:
    if not platform.scoped:
        return ANYWHERE
    if not assignment:
        raise CourseError(
            f"{platform.name} numbers students anew in each assignment: say whose file it is, "
            "with --assignment"
        )
    return assignment


def known_students(course: Course, gradebook: Any) -> set[str]:
    """All who are on a roster or have handed something in."""
    folders = {path.name for path in course.root.glob("submitted/*") if path.is_dir()}
    return {student.id for student in gradebook.students} | folders


def _keys(person: Person, scope: str) -> list[tuple[str, str, str]]:
    return [
        (kind, scope if kind == "moodle" else ANYWHERE, key.casefold())
        for kind, key in person.keys.items()
    ]


def _fields(person: Person) -> dict[str, str]:
    """What nbgrader knows of a student, for formgrader."""
    fields = {"first_name": person.first_name, "last_name": person.last_name}
    for name, kind in (("email", "email"), ("lms_user_id", "canvas")):
        if kind in person.keys:
            fields[name] = person.keys[kind]
    return {name: plain(value)[:100] for name, value in fields.items()}


def _identify(
    person: Person,
    keys: Sequence[tuple[str, str, str]],
    known: Mapping[tuple[str, str, str], str],
    taken: set[str],
) -> tuple[str, Imported]:
    """The student whom a row means, "" if it cannot be said; and what to say of it."""
    name = f"{person.first_name} {person.last_name}".strip()
    found = {known[key]: key for key in keys if key in known}
    if len(found) > 1:
        told = ", ".join(f"{kind} {key} is {who}" for who, (kind, _, key) in found.items())
        return "", Imported("", name, REFUSED, told)
    if found:
        return (who := next(iter(found))), Imported(who, name, KNOWN)
    number = person.keys.get("canvas") or person.keys.get("moodle", "")
    collected = folder_name(name, number) if number else ""
    if collected in taken:  # under the name that an archive gave
        return collected, Imported(collected, name, KNOWN)
    wanted = [person.keys.get(kind, "") for kind in ("login", "email", "sis")] + [collected]
    for each in filter(NAME.fullmatch, wanted):
        if each not in taken:
            return each, Imported(each, name, NEW)
    if same := next((w for w in wanted if w in taken), ""):
        return same, Imported(same, name, KNOWN)
    return "", Imported("", name, REFUSED, "nothing in the row can be the name of a student")


def export_roster(
    course: Course, platform: str, assignments: Sequence[str]
) -> tuple[str, list[str]]:
    """A platform's file with the marks that count in it, and what to know before it is uploaded.

    Raises:
        CourseError: there is no roster of this platform.
    """
    chosen = PLATFORMS[platform]
    with database(course) as engine:
        sheet, people = _roster(engine, chosen, _scope(chosen, assignments[0]))
    with quiet(), course.gradebook() as gradebook:
        table = counted(course, gradebook)
        most = {a.name: float(a.max_score) for a in gradebook.assignments}
    marks = {}
    for name in assignments:
        if name not in most:
            raise course.not_generated(name)
        mine = {row: table.get((name, student)) for row, student in people.items()}
        marks[name] = {row: _mark(each) for row, each in mine.items() if each is not None}
    filled: Filled = chosen.filled(sheet, marks, course.titles)
    here = {name for name in table if name[0] in assignments}
    unlisted = sorted({student for _, student in here} - set(people.values()))
    notes = [*filled.notes, *(f"{s} is not in {platform}'s file" for s in unlisted)]
    return tables.write(filled.sheet), notes


def _mark(each: Counted) -> Mark:
    return Mark(each.counted, each.max_score, each.submitted, each.late_seconds)


def _roster(engine: Engine, platform: Platform, scope: str) -> tuple[Sheet, dict[int, str]]:
    """A platform's file, and the student of each row."""
    same = (ROSTER.c.platform == platform.name) & (ROSTER.c.scope == scope)
    with engine.connect() as connection:
        text = connection.execute(select(ROSTER.c.text).where(same)).scalar()
    if text is None:
        of = f" --assignment {scope}" if scope else ""
        raise CourseError(
            f"there is no roster of {platform.name}: download it there, then "
            f"tito course roster import FILE{of}"
        )
    sheet = tables.read(text.encode(), platform.name)
    return sheet, _people(engine, platform, sheet, scope)


def _people(engine: Engine, platform: Platform, sheet: Sheet, scope: str) -> dict[int, str]:
    known, found = identities(engine), {}
    for person in platform.people(sheet):
        who = {known[key] for key in _keys(person, scope) if key in known}
        if len(who) == 1:
            found[person.row] = who.pop()
    return found


def compare(course: Course, data: bytes, name: str, assignment: str) -> list[Difference]:
    """Where a platform's file has another mark for an assignment than counts here.

    Raises:
        CourseError: the file is no platform's, or there is no such assignment.
    """
    course.require(assignment)
    sheet = tables.read(data, name)
    platform = platform_of(sheet, name)
    with database(course) as engine:
        people = _people(engine, platform, sheet, assignment if platform.scoped else ANYWHERE)
    there = platform.marks(sheet, assignment, course.titles)
    with quiet(), course.gradebook() as gradebook:
        table = counted(course, gradebook)
    found = []
    for row, student in people.items():
        mine = table.get((assignment, student))
        here = None if mine is None else mine.counted
        theirs = there.get(row)
        if not _is_same(here, theirs):
            found.append(Difference(student, theirs, here))
    return found


def _is_same(here: float | None, there: float | None) -> bool:
    if here is None or there is None:
        return here is there
    return abs(here - there) <= NEAR
