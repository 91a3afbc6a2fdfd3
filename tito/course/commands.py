"""`tito course`: hand out, collect and grade lessons with nbgrader, submissions in a sandbox."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from tito import console
from tito.course.common import (
    INCOMPLETE,
    Jobs,
    Json,
    Unsafe,
    Where,
    explained,
    noted,
    progress,
    say,
)
from tito.course.history import commands as history
from tito.course.similar import commands as similar
from tito.course.students import commands as students

if TYPE_CHECKING:
    from tito.course.states import State

app = typer.Typer(
    no_args_is_help=True, help="Hand out, collect and grade lessons: nbgrader, with a sandbox."
)
for group in (students.app, history.app, similar.app):
    app.add_typer(group)  # without a name: their commands are ours


@app.command(
    epilog="Examples:\n\ntito course init cs101\n\n"
    "tito course init cs101 --db postgresql+psycopg://grader@db.example.edu/cs101"
)
def init(
    folder: Annotated[Path, typer.Argument(help="The course directory to make.")],
    name: Annotated[str, typer.Option(help="A name for the course, in nbgrader.")] = "",
    db: Annotated[
        str,
        typer.Option(help="URL of the gradebook's database; SQLite in the folder if not given."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Make a course directory of nbgrader, with its gradebook."""
    with explained():
        from tito.course.config import create

        course = create(folder, course_id=name, db_url=db)
        noted(course, "init")
    say(
        as_json,
        {"course": str(course.root)},
        f"made {course.root}; its settings: nbgrader_config.py",
    )


@app.command(
    epilog="Examples:\n\ntito course generate 02\n\ntito course generate tensor layers\n\n"
    "tito course generate --all"
)
def generate(
    lessons: Annotated[
        list[str] | None, typer.Argument(help="Numbers, names, or folders in source/.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All lessons.")] = False,
    course: Where = Path(),
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Also notebooks in source/ that you have edited: a backup stays."
        ),
    ] = False,
    unsafe: Unsafe = False,
    as_json: Json = False,
) -> None:
    """Make assignments: the instructor's and the student's notebook of lessons.

    The reference is graded first and has to get full marks. A notebook in source/ that you have
    edited is kept as it is.
    """
    with explained():
        from tito.course import generate as step
        from tito.course.config import Course

        here = Course.load(course)
        wanted = step.lesson_names() if every else list(lessons or ())
        if not wanted:
            raise typer.BadParameter("name a lesson, or give --all")
        made = []
        for name in wanted:
            each = step.generate(here, name, confined=not unsafe, replace=replace)
            noted(here, "generate", each.name, points=each.points)
            made.append(each)
            if not as_json:  # as it comes: a lesson takes seconds, and the next may be refused
                told = f"{each.name}: {each.points:g} points in {each.tests} tests; {each.release}"
                say(False, None, "\n".join([told, *(f"  {note}" for note in each.notes)]))
    if as_json:
        console.print_json([{**asdict(m), "release": str(m.release)} for m in made])


@app.command(epilog="Example: tito course release 02_tensor --to /srv/share/handouts")
def release(
    assignment: Annotated[str, typer.Argument(help="An assignment that is generated.")],
    to: Annotated[Path, typer.Option(help="The folder that students can read.")] = Path("handout"),
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Copy what students get to a folder, and to a zip file for a learning platform."""
    with explained():
        from tito.course.config import Course
        from tito.course.handout import release as copy

        here = Course.load(course)
        folder, archive = copy(here, assignment, to)
        noted(here, "release", assignment, to=str(to))
    say(as_json, {"folder": str(folder), "zip": str(archive)}, f"{folder}\n{archive}")


@app.command(
    epilog="Examples:\n\ntito course collect 02_tensor --from downloads.zip\n\n"
    "tito course collect 02_tensor --from box --pattern '(?P<student>\\w+)_late[.]ipynb'"
)
def collect(
    assignment: Annotated[str, typer.Argument(help="An assignment that is generated.")],
    source: Annotated[Path, typer.Option("--from", help="A folder or a zip file.")],
    pattern: Annotated[
        str | None,
        typer.Option(help="How a path names its student: a regular expression with that group."),
    ] = None,
    timezone: Annotated[
        str,
        typer.Option(help="Of the times in a zip file: Europe/Berlin. By default this machine's."),
    ] = "",
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Take submissions in: a zip file of Canvas or Moodle, or STUDENT/ASSIGNMENT/NOTEBOOK.ipynb,
    STUDENT/NOTEBOOK.ipynb, STUDENT.ipynb.

    Every file is listed; exits with 1 if one had to be left out.
    """
    zone = _zone(timezone)
    if zone is None and source.is_file():
        console.errors.print(
            "times in a zip file have no zone: they are taken as this machine's, "
            f"{datetime.now().astimezone().tzname()}; --timezone says another",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    with explained():
        from tito.course.collect import IGNORED, collect as take
        from tito.course.config import Course

        taken = take(Course.load(course), assignment, source, pattern, zone)
    if as_json:
        console.print_json([asdict(each) for each in taken])
    else:
        console.print_rows(
            ["student", "", "file", ""], [[t.student, t.what, t.file, t.detail] for t in taken]
        )
    raise typer.Exit(1 if any(each.what == IGNORED for each in taken) else 0)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise typer.BadParameter(f"{name!r} is no time zone: write Europe/Berlin") from None


@app.command(
    epilog="Examples:\n\ntito course grade 02_tensor\n\n"
    "tito course grade 02_tensor --student ada --force\n\n"
    "tito course grade 02_tensor --scheduler tcp://10.0.0.5:8786"
)
def grade(
    assignment: Annotated[str, typer.Argument(help="An assignment that is generated.")],
    student: Annotated[
        list[str] | None, typer.Option(help="Only this student; may be given again.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also what is graded already.")] = False,
    jobs: Jobs = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="On a Dask cluster, started here for it.")
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="On the Dask cluster with this scheduler.")
    ] = None,
    course: Where = Path(),
    unsafe: Unsafe = False,
    as_json: Json = False,
) -> None:
    """Grade submissions, each in a sandbox; run it again to go on where it was stopped.

    Exits with 3 if the machine failed for some: they have no grade, and are graded by the next run.
    """
    with explained():
        from tito.course.config import Course
        from tito.course.exam.pool import LocalPool, dask_pool
        from tito.course.grade import Grader
        from tito.usage import cores

        here, size = Course.load(course), jobs or cores()
        grader = Grader(here, assignment, confined=not unsafe, force=force, students=student or ())
        with progress(not as_json) as tell:
            if cluster or scheduler:
                with dask_pool(scheduler, size) as workers:
                    reached = grader.run(workers, tell)
            else:
                reached = grader.run(LocalPool(size), tell)
        _report(here, assignment, reached, as_json)
    failed = any(state.state == "infrastructure" for state in reached)
    raise typer.Exit(INCOMPLETE if failed else 0)


def _report(course: Any, assignment: str, reached: list[State], as_json: bool) -> None:
    from tito.course.export import rows

    new = {state.student for state in reached}
    table = [row for row in rows(course, [assignment]) if row.student in new]
    if as_json:
        console.print_json([asdict(row) for row in table])
        return
    if not table:
        console.out.print("nothing new to grade", highlight=False)
        return
    console.print_rows(
        ["student", "state", "points", "", ""],
        [
            [
                row.student,
                row.state,
                "" if row.score is None else f"{row.score:g} of {row.max_score:g}",
                f"{row.seconds:.1f} s",
                row.detail,
            ]
            for row in table
        ],
    )


@app.command(epilog="Examples:\n\ntito course feedback 02_tensor\n\ntito course feedback --json")
def feedback(
    assignment: Annotated[
        str | None, typer.Argument(help="An assignment; all if not given.")
    ] = None,
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Write a page for each graded submission into feedback/; hidden tests stay hidden.

    Exits with 3 if a page could not be made; the others are there.
    """
    with explained():
        from tito.course.config import Course
        from tito.course.feedback import all_pages
        from tito.course.states import States
        from tito.course.tables import database

        here = Course.load(course)
        if assignment is not None:
            here.require(assignment)
        with database(here) as engine:
            known = States(engine).all(assignment).values()
        with progress(not as_json, "pages") as tell:
            pages, failed = all_pages(here, list(known), tell)
        noted(here, "feedback", assignment or "", pages=len(pages), failed=failed)
    text = f"{len(pages)} pages in {here.root / 'feedback'}"
    lines = [text, *(f"no page for {name}: {reason}" for name, reason in failed.items())]
    say(as_json, {"pages": [str(p) for p in pages], "failed": failed}, "\n".join(lines))
    raise typer.Exit(INCOMPLETE if failed else 0)


@app.command(
    epilog="Examples:\n\ntito course export --to grades.csv\n\n"
    "tito course export 02_tensor --format gradescope --to results"
)
def export(
    assignments: Annotated[
        list[str] | None, typer.Argument(help="Assignments; all if not given.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="csv or gradescope.")] = "csv",
    to: Annotated[
        Path | None, typer.Option(help="File or folder; CSV goes to stdout without.")
    ] = None,
    course: Where = Path(),
    as_json: Json = False,
) -> None:
    """Write grades to a table, or as the results that Gradescope reads.

    A submission for which the machine failed has a state and an empty score, never a zero.
    """
    if form not in ("csv", "gradescope"):
        raise typer.BadParameter(console.unknown("format", form, ["csv", "gradescope"]))
    with explained():
        from tito.course import export as step
        from tito.course.config import Course
        from tito.course.files import write_whole

        here = Course.load(course)
        table = step.rows(here, assignments or ())
        noted(here, "export", ", ".join(assignments or ()), form=form, to=str(to or ""))
        if form == "gradescope":
            files = step.to_gradescope(here, table, to or here.root / "gradescope")
            left = [row.student for row in table if row.score is None]
            text = f"{len(files)} files" + (f"; not graded: {', '.join(left)}" if left else "")
            say(as_json, {"files": [str(f) for f in files], "not_graded": left}, text)
        elif as_json:
            console.print_json([asdict(row) for row in table])
        elif to is None:
            print(step.to_csv(table), end="")
        else:
            write_whole(to, step.to_csv(table).encode())
            say(False, None, f"{len(table)} submissions in {to}")


@app.command(
    epilog="Examples:\n\ntito course formgrader\n\ntito course formgrader --no-browser --port 9000"
)
def formgrader(
    port: Annotated[int, typer.Option(help="On this machine only.")] = 8888,
    browser: Annotated[bool, typer.Option(help="Open it in a browser.")] = True,
    course: Where = Path(),
) -> None:
    """Open nbgrader's formgrader: grades and comments by hand, until Ctrl-C."""
    with explained():
        import subprocess

        from tito.course.config import Course
        from tito.course.formgrader import command

        here = Course.load(course)
        noted(here, "formgrader")
        line = command(here, port=port, browser=browser)
    with suppress(KeyboardInterrupt):
        raise typer.Exit(subprocess.run(line, cwd=here.root, check=False).returncode)
