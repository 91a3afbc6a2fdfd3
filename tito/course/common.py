"""What the commands of a course have in common: options, and errors as sentences."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tito import console

if TYPE_CHECKING:
    from tito.course.states import State

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
INCOMPLETE = 3  # exit code: the machine failed for some submissions; grade again

Where = Annotated[Path, typer.Option("--course", help="The course directory.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="At once; one a core if not given.")]
Unsafe = Annotated[
    bool,
    typer.Option(
        "--without-sandbox",
        help="Run what students wrote as your own program, with your rights. Recorded.",
    ),
]


@contextmanager
def explained() -> Iterator[None]:
    """Errors that the user can do something about, as a sentence and exit code 1; what the machine
    has done (the database is lost, the disk is full) as a sentence and exit code 3."""
    from tito.course.config import CourseError, GradebookError
    from tito.course.exam.instrument import InstrumentError
    from tito.course.exam.job import InfrastructureError
    from tito.lessons.model import LessonError

    try:
        yield
    except (CourseError, InstrumentError, InfrastructureError, LessonError) as error:
        console.errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        code = INCOMPLETE if isinstance(error, GradebookError) else 1
        raise typer.Exit(code) from None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("tito", "tinytorch"):
            raise
        extra = "postgres" if error.name.startswith("psycopg") else "course"
        console.errors.print(
            f"this needs {error.name}, which is not installed: pip install 'tinytorch[{extra}]'",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(1) from None
    except Exception as error:
        sentence, code = _of_the_machine(error), INCOMPLETE
        if sentence is None and isinstance(error, OSError) and error.filename:
            sentence, code = f"{error.filename}: {error.strerror}", 1
        if sentence is None:
            raise
        console.errors.print(sentence, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(code) from None


def _of_the_machine(error: Exception) -> str | None:
    """What to say of an error that a lost database or a full disk has made; None for others."""
    if isinstance(error, OSError) and error.errno in FULL:
        what = error.filename or "a file"
        return f"{what} cannot be written: {error.strerror}; make room, then run this again"
    import sqlalchemy.exc

    lost = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError)
    if isinstance(error, lost) or getattr(error, "connection_invalidated", False):
        said = str(error).splitlines()[0]
        return f"the gradebook's database was lost: {said}; what was graded is kept: run this again"
    return None


def say(as_json: bool, report: Any, text: str) -> None:
    if as_json:
        console.print_json(report)
    else:
        console.out.print(text, markup=False, highlight=False, soft_wrap=True)


def note_unknown(course: Any, student: str) -> None:
    """Say of a student that nobody has heard of them, and who may be meant: what is kept for a name
    that is typed wrongly is found by nobody."""
    from difflib import get_close_matches

    from tito.course.config import quiet
    from tito.course.students.roster import known_students

    with quiet(), course.gradebook() as gradebook:
        known = known_students(course, gradebook)
    if student not in known:
        meant = get_close_matches(student, known)
        hint = f": did you mean {' or '.join(map(repr, meant))}?" if meant else ""
        text = f"nobody called {student!r} is on a roster or has handed anything in{hint}"
        console.errors.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress(wanted: bool, what: str = "grading") -> Iterator[Callable[[State | None, int], None]]:
    """A bar on a terminal; nothing otherwise. It is told how many there are, then each state."""
    if not (wanted and console.errors.is_terminal):
        yield lambda state, total: None
        return
    from rich.progress import Progress

    with Progress(console=console.errors, transient=True) as bar:
        task = bar.add_task("the reference", total=None)

        def tell(state: State | None, total: int) -> None:
            if state is None:
                bar.update(task, total=total, description=what)
            else:
                bar.update(task, advance=1, description=state.student)

        yield tell


def noted(course: Any, action: str, assignment: str = "", **details: Any) -> None:
    """Add an entry to the audit log."""
    from tito.course.history import audit
    from tito.course.tables import database

    with database(course) as engine:
        audit.note(engine, action, assignment, **details)
