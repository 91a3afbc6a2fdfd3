"""`tito course attempts`, `regrade`, `audit` and `request`: what happened, and what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tito import console
from tito.course.common import (
    INCOMPLETE,
    Jobs,
    Json,
    Unsafe,
    Where,
    explained,
    note_unknown,
    progress,
    say,
)

if TYPE_CHECKING:
    from tito.course.history.regrade import Change
    from tito.course.history.requests import Request
    from tito.course.states import State

app = typer.Typer()
request = typer.Typer(no_args_is_help=True, help="Regrade requests, and their answers.")
app.add_typer(request, name="request")

Of = Annotated[str | None, typer.Argument(help="An assignment; all if not given.")]
Student = Annotated[str, typer.Option("--student", help="Only this student.")]


@app.command(epilog="Examples:\n\ntito course attempts 02_tensor --student ada\n\n"
             "tito course attempts --json")  # fmt: skip
def attempts(
    assignment: Of = None, student: Student = "", course: Where = Path(), as_json: Json = False
) -> None:
    """List what was handed in: each attempt's file, time and results."""
    with explained():
        from tito.course.config import Course
        from tito.course.history import attempts as step
        from tito.course.tables import database

        here = Course.load(course)
        with database(here) as engine:
            found = step.attempts(here, engine, assignment or "", student)
        if assignment and not found:
            here.require(assignment)
        if student and not found:
            note_unknown(here, student)
    if as_json:
        console.print_json([asdict(each) for each in found])
        return
    rows = [
        [each.assignment, each.student, f"{each.number}", each.submitted,
         ", ".join(f"{r.score:g} of {r.max_score:g}" for r in each.results), each.path]
        for each in found
    ]  # fmt: skip
    console.print_rows(["assignment", "student", "", "submitted", "got", "file"], rows)


@app.command(
    epilog="Examples:\n\ntito course regrade 02_tensor\n\n"
    "tito course regrade 02_tensor --student ada --to changes.csv"
)
def regrade(
    assignment: Annotated[str, typer.Argument(help="An assignment that is graded.")],
    student: Annotated[
        list[str] | None, typer.Option(help="Only this student; may be given again.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="A CSV of what changed.")] = None,
    jobs: Jobs = None,
    course: Where = Path(),
    unsafe: Unsafe = False,
    as_json: Json = False,
) -> None:
    """Grade again, and list who gained and lost what, test by test.

    If it is interrupted, the next call goes on, and its list is of the whole.
    Exits with 3 if the machine failed for some.
    """
    with explained():
        from tito.course.config import Course, CourseError
        from tito.course.exam.pool import LocalPool
        from tito.course.files import write_whole
        from tito.course.grade import Grader
        from tito.course.history import regrade as step
        from tito.usage import cores

        here = Course.load(course)
        grader = Grader(here, assignment, confined=not unsafe, students=student or ())

        def run() -> list[State]:
            with progress(not as_json) as tell:
                return grader.run(LocalPool(jobs or cores()), tell)

        if to is not None and (to.is_dir() or not to.absolute().parent.is_dir()):
            # said before, as the list is made only once
            raise CourseError(f"no file can be at {to}: it is a folder, or its folder is missing")
        found, reached = step.regrade(here, assignment, run, student or ())
        if to is not None:
            write_whole(to, _changes_csv(found).encode())
    failed = [state.student for state in reached if not state.done]
    if as_json:
        changes = [{**asdict(each), "gained": each.gained} for each in found]
        console.print_json({"graded": len(reached), "failed": failed, "changes": changes})
    else:
        _show_changes(found, len(reached))
    raise typer.Exit(INCOMPLETE if failed else 0)


def _show_changes(found: Sequence[Change], graded: int) -> None:
    if not found:
        console.out.print(f"{graded} graded, and nothing changed", highlight=False)
        return
    rows = [
        [each.student, each.test, _points(each.before), _points(each.after), f"{each.gained:+g}"]
        for each in found
    ]
    console.print_rows(["student", "test", "before", "after", ""], rows)


def _points(points: float | None) -> str:
    return "none" if points is None else f"{points:g}"


def _changes_csv(found: Sequence[Change]) -> str:
    from tito.course.students.sheet import Sheet, write

    header = ("student", "test", "before", "after", "gained")
    rows = tuple(
        (c.student, c.test, _points(c.before), _points(c.after), f"{c.gained:g}") for c in found
    )
    return write(Sheet(header, rows))


@app.command(epilog="Examples:\n\ntito course audit\n\ntito course audit 02_tensor --student ada")
def audit(
    assignment: Of = None, student: Student = "", course: Where = Path(), as_json: Json = False
) -> None:
    """List who did what, when: a log that is only added to."""
    with explained():
        from tito.course.config import Course
        from tito.course.history.audit import entries
        from tito.course.tables import database

        here = Course.load(course)
        with database(here) as engine:
            found = entries(engine, assignment or "", student)
        if assignment and not found:
            here.require(assignment)
        if student and not found:
            note_unknown(here, student)
    if as_json:
        console.print_json([asdict(each) for each in found])
        return
    rows = [
        [each.time, each.who, each.action, each.assignment, each.student,
         ", ".join(f"{name}: {value}" for name, value in each.details.items() if value)]
        for each in found
    ]  # fmt: skip
    console.print_rows(["time", "who", "what", "assignment", "student", ""], rows)


@request.command(
    epilog="Example: tito course request add 02_tensor --student ada --test sum-values "
    "--text 'my sum keeps the axis, as the docstring says'"
)
def add(
    assignment: Annotated[str, typer.Argument(help="An assignment.")],
    student: Annotated[str, typer.Option(help="Who asks.")],
    text: Annotated[str, typer.Option(help="What is asked.")],
    test: Annotated[str, typer.Option(help="The test that it is about.")] = "",
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Add a regrade request."""
    with explained():
        from tito.course.config import Course
        from tito.course.history.requests import ask
        from tito.course.tables import database

        here = Course.load(course)
        here.require(assignment)
        note_unknown(here, student)
        with database(here) as engine:
            number = ask(engine, assignment, student, text, test)
    say(as_json, {"request": number}, f"request {number}")


@request.command(
    "list",
    epilog="Examples:\n\ntito course request list --open\n\n"
    "tito course request list --open --to requests.csv",
)
def list_(
    unanswered: Annotated[bool, typer.Option("--open", help="Those without an answer.")] = False,
    to: Annotated[
        Path | None, typer.Option(help="A CSV with a column `answer` to fill in.")
    ] = None,
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """List regrade requests, or write them to a table with a column to answer in."""
    with explained():
        from tito.course.config import Course
        from tito.course.files import write_whole
        from tito.course.history.requests import requests, to_csv
        from tito.course.tables import database

        with database(Course.load(course)) as engine:
            found = requests(engine, unanswered=unanswered)
        if to is not None:
            write_whole(to, to_csv(found).encode())
    if as_json:
        console.print_json([asdict(each) for each in found])
    elif to is not None:
        console.out.print(f"{len(found)} requests in {to}", highlight=False)
    else:
        _show_requests(found)


def _show_requests(found: Sequence[Request]) -> None:
    rows = [[f"{r.id}", r.assignment, r.student, r.test, r.text, r.answer] for r in found]
    console.print_rows(["", "assignment", "student", "test", "request", "answer"], rows)


@request.command(
    epilog="Examples:\n\ntito course request answer --from requests.csv\n\n"
    "tito course request answer 3 --text 'right: the test was wrong, regraded'"
)
def answer(
    number: Annotated[int | None, typer.Argument(help="Of a request.")] = None,
    text: Annotated[str, typer.Option(help="The answer.")] = "",
    source: Annotated[
        Path | None, typer.Option("--from", help="A CSV with answers filled in.")
    ] = None,
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Answer one request, or take in the answers of a table; new rows in it are new requests."""
    if (number is None) == (source is None):
        raise typer.BadParameter("say the number of a request and --text, or --from FILE")
    with explained():
        from tito.course.config import Course
        from tito.course.history import requests as step
        from tito.course.tables import database

        here = Course.load(course)
        with database(here) as engine:
            if source is not None:
                found = step.from_csv(here, engine, source.read_bytes(), source.name)
            else:
                assert number is not None
                found = [step.answer(engine, number, text)]
    if as_json:
        console.print_json([asdict(each) for each in found])
    else:
        _show_requests(found)
