"""`tito course roster`, `extend` and `grades`: students, time, and what counts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tito import console
from tito.course.common import Json, Where, explained, note_unknown, noted, say

app = typer.Typer()
roster = typer.Typer(
    no_args_is_help=True, help="Students in and marks out, in a platform's own file."
)
app.add_typer(roster, name="roster")

Assignment = Annotated[str, typer.Argument(help="An assignment that is generated.")]
Student = Annotated[str, typer.Option("--student", help="A student, as in submitted/.")]


@roster.command(
    "import",
    epilog="Examples:\n\ntito course roster import canvas-grades.csv\n\n"
    "tito course roster import worksheet.csv --assignment 02_tensor",
)
def import_(
    file: Annotated[Path, typer.Argument(help="A CSV of Canvas, Moodle or Gradescope.")],
    assignment: Annotated[
        str, typer.Option(help="Whose grading worksheet it is: Moodle has one for each.")
    ] = "",
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Take students in: Canvas's gradebook, Moodle's grading worksheet, Gradescope's roster.

    Exits with 1 if a row could not be taken.
    """
    with explained():
        from tito.course.config import Course
        from tito.course.students.roster import REFUSED, import_roster

        found = import_roster(Course.load(course), _bytes(file), file.name, assignment)
    if as_json:
        console.print_json([asdict(each) for each in found])
    else:
        rows = [[each.student, each.name, each.what, each.detail] for each in found]
        console.print_rows(["student", "name", "", ""], rows)
    raise typer.Exit(1 if any(each.what == REFUSED for each in found) else 0)


@roster.command(
    "export",
    epilog="Examples:\n\ntito course roster export 02_tensor --platform canvas --to canvas.csv\n\n"
    "tito course roster export 02_tensor --platform moodle --to worksheet.csv",
)
def export(
    assignments: Annotated[list[str], typer.Argument(help="Assignments with marks.")],
    platform: Annotated[str, typer.Option(help="canvas, moodle or gradescope.")],
    to: Annotated[Path, typer.Option(help="The file to write.")],
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Write the marks that count into a platform's own file, to be uploaded there."""
    with explained():
        from tito.course.config import Course
        from tito.course.files import write_whole
        from tito.course.students.platforms import PLATFORMS
        from tito.course.students.roster import export_roster

        if platform not in PLATFORMS:
            raise typer.BadParameter(console.unknown("platform", platform, list(PLATFORMS)))
        here = Course.load(course)
        text, notes = export_roster(here, platform, assignments)
        write_whole(to, text.encode())
        noted(here, "export", ", ".join(assignments), platform=platform, to=str(to))
    say(as_json, {"file": str(to), "notes": notes}, "\n".join([str(to), *notes]))


@roster.command(
    "compare", epilog="Example: tito course roster compare canvas-grades.csv --assignment 02_tensor"
)
def compare(
    file: Annotated[Path, typer.Argument(help="A file that was downloaded after the upload.")],
    assignment: Annotated[str, typer.Option(help="The assignment to look at.")],
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """List where a platform has another mark than counts here; exits with 1 if it does."""
    with explained():
        from tito.course.config import Course
        from tito.course.students.roster import compare as differences

        found = differences(Course.load(course), _bytes(file), file.name, assignment)
    if as_json:
        console.print_json([asdict(each) for each in found])
    elif found:
        rows = [[each.student, _mark(each.platform), _mark(each.here)] for each in found]
        console.print_rows(["student", "there", "here"], rows)
    else:
        console.out.print("all marks are the same", highlight=False)
    raise typer.Exit(1 if found else 0)


def _mark(points: float | None) -> str:
    return "none" if points is None else f"{points:g}"


def _bytes(file: Path) -> bytes:
    from tito.course.config import CourseError

    try:
        return file.read_bytes()
    except OSError as error:
        raise CourseError(f"{file} cannot be read: {error.strerror}") from None


@app.command(
    epilog="Examples:\n\ntito course extend 02_tensor --student ada --days 2 --reason ill\n\n"
    "tito course extend 02_tensor --student ada --until '2026-10-05 12:00 Europe/Berlin'\n\n"
    "tito course extend 02_tensor --student ada --withdraw"
)
def extend(
    assignment: Assignment,
    student: Student,
    days: Annotated[float | None, typer.Option(help="After the class's deadline.")] = None,
    until: Annotated[str | None, typer.Option(help="A time with its zone.")] = None,
    reason: Annotated[str, typer.Option(help="For the audit log.")] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take it back.")] = False,
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Give a student another deadline; marks follow at once."""
    if (days is not None) + (until is not None) + withdraw != 1:
        raise typer.BadParameter("say one of --days, --until and --withdraw")
    with explained():
        from tito.course.config import Course, CourseError
        from tito.course.students import extensions as step
        from tito.course.students.marks import settle
        from tito.course.students.policy import PolicyError, parse_time
        from tito.course.tables import database, stamp

        here, deadline = Course.load(course), None
        try:
            time = None if until is None else parse_time(until)
        except PolicyError as error:
            raise typer.BadParameter(str(error)) from None
        with database(here) as engine:
            if withdraw:
                if not step.withdraw(engine, assignment, student):
                    raise CourseError(f"{student} has no extension for {assignment}")
            else:
                here.require(assignment)
                note_unknown(here, student)
                deadline = step.extend(
                    engine, here.policy, assignment, student,
                    until=time, days=days or 0.0, reason=reason,
                )  # fmt: skip
        settle(here)
    told = None if deadline is None else stamp(deadline)
    text = f"{student} has until {told}" if told else f"{student} has the class's deadline again"
    say(as_json, {"assignment": assignment, "student": student, "until": told}, text)


@app.command(epilog="Examples:\n\ntito course grades\n\ntito course grades 02_tensor --json")
def grades(
    assignments: Annotated[
        list[str] | None, typer.Argument(help="Assignments; all if not given.")
    ] = None,
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Show raw points, late days, what they cost, and what counts."""
    with explained():
        from tito.course.config import Course
        from tito.course.export import rows

        table = rows(Course.load(course), assignments or ())
    if as_json:
        console.print_json([asdict(row) for row in table])
        return
    names = "assignment student state raw late free penalty counts of"
    console.print_rows(
        names.split(),
        [
            [
                row.assignment,
                row.student,
                row.state,
                "" if row.raw is None else f"{row.raw:g}",
                f"{row.late_days} d" if row.late_days else "",
                f"{row.free_days}" if row.free_days else "",
                f"{row.penalty:g}" if row.penalty else "",
                "" if row.score is None else f"{row.score:g}",
                f"{row.max_score:g}",
            ]
            for row in table
        ],
    )
