"""`tito module`: work on a module of the course in your workspace."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

import typer

from tito import console

if TYPE_CHECKING:
    from tito.lessons.model import Lesson
    from tito.workspace.folder import Workspace
    from tito.workspace.package import Report
    from tito.workspace.run import Result

P = ParamSpec("P")
T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Work on a module of the course in your workspace.")

Name = Annotated[str, typer.Argument(metavar="MODULE", help="Number or name: 2, 02, tensor.")]
NameOrNext = Annotated[
    str | None,
    typer.Argument(metavar="[MODULE]", help="Number or name; by default the one you are at."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For a machine to read.")]


def plainly(command: Callable[P, T]) -> Callable[P, T]:
    """A command that tells a student what to mend, instead of where tito stopped."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        from tito.lessons.model import LessonError
        from tito.workspace.folder import WorkspaceError

        try:
            return command(*args, **kwargs)
        except WorkspaceError as error:
            message = str(error)
        except LessonError as error:
            message = f"a lesson is broken, please report it:\n{error}"
        except BrokenPipeError:
            raise  # whoever reads has enough: no error, and typer says nothing
        except OSError as error:
            message = f"{error.filename or 'a file'}: {error.strerror or error}"
        console.errors.print(message, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)

    return run


def say(text: str) -> None:
    """A line as it is."""
    console.out.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command(epilog="Examples:\n\ntito module start 02\n\ntito module start tensor --format py")
@plainly
def start(
    name: Name,
    form: Annotated[
        str | None,
        typer.Option("--format", help="ipynb or py; otherwise what the workspace was made with."),
    ] = None,
) -> None:
    """Begin a module: its file is in the workspace then."""
    from tito.lessons.markup import duration
    from tito.workspace import completed, course, folder, module

    workspace = folder.require()
    lesson = course.find(name)
    path = module.start(workspace, lesson, checked_format(form) if form else None)
    done = {c.slug for c in completed.load(workspace)}
    say(f"{lesson.title}: {len(lesson.exercises)} exercises, {lesson.points} points, "
        f"about {duration(lesson.hours)}")  # fmt: skip
    say(f"makes possible: {lesson.makes_possible}")
    if open_ends := [slug for slug in lesson.needs if slug not in done]:
        say(f"builds on {', '.join(open_ends)}; where that is not yours, the reference is used")
    say(f"\nwrite in {path}")
    say(f"next: tito module open {lesson.number:02}")


def checked_format(form: str) -> str:
    """A format of lessons' files.

    Raises:
        typer.BadParameter: there is no such format.
    """
    from tito.workspace.notebook import FORMATS

    if form not in FORMATS:
        raise typer.BadParameter(console.unknown("format", form, FORMATS))
    return form


@plainly
def go_on(as_json: AsJson = False) -> None:
    """Say where you are: the module, the exercise, and the command that comes next."""
    from tito.workspace import folder, module, state

    workspace = folder.require()
    lesson = module.next_lesson(workspace)
    if lesson is None:
        if as_json:
            console.print_json({"module": None})
        else:
            say("you have completed all modules; tito milestone list")
        return
    number = f"{lesson.number:02}"
    known = state.load(workspace).module(lesson.slug)
    exercise = module.current(workspace, lesson)
    whole = {test.id for test in lesson.tests} <= set(known.passed)
    command = (
        f"tito module {'complete' if whole else 'test' if known.started else 'start'} {number}"
    )
    if as_json:
        told = {"module": lesson.slug, "exercise": exercise.id, "command": command}
        console.print_json(told)
        return
    say(f"{lesson.folder}: {lesson.title}, {known.points} of {lesson.points} points")
    if known.started and not whole:
        place = [each.id for each in lesson.exercises].index(exercise.id) + 1
        say(f"exercise {place} of {len(lesson.exercises)}: {exercise.id}")
    say(f"next: {command}")


EDITORS = {
    # without an address for news JupyterLab does not ask whether to show them
    "jupyter": (
        [sys.executable, "-m", "jupyterlab", "--LabApp.news_url=None"],
        "pip install 'tinytorch[course]'",
    ),
    "code": (["code"], "install VS Code and its command `code`"),
}


@app.command("open", epilog="Examples:\n\ntito module open 02\n\ntito module open 02 --with code")
@plainly
def open_module(
    name: Name,
    editor: Annotated[
        str | None,
        typer.Option(
            "--with", help="jupyter, code, or another command; notebooks open in jupyter."
        ),
    ] = None,
) -> None:
    """Open a module's file, in JupyterLab or another editor; begin the module if need be."""
    from tito.workspace import course, folder, module

    workspace = folder.require()
    path = module.start(workspace, course.find(name))
    if editor is None and path.suffix != ".ipynb":
        say(f"open {path} in your editor, or name one with --with")
        return
    chosen = editor or "jupyter"
    command, advice = EDITORS.get(chosen, ([chosen], f"is {chosen!r} on your PATH?"))
    absent = shutil.which(command[0]) is None
    if chosen == "jupyter":
        from importlib.util import find_spec

        absent = find_spec("jupyterlab") is None
    if absent:
        raise folder.WorkspaceError(f"{chosen} is not installed: {advice}. The file is {path}")
    raise typer.Exit(subprocess.run([*command, str(path)], cwd=workspace.root).returncode)


@app.command(
    epilog="Examples:\n\ntito module test 02\n\ntito module test 02 --watch\n\n"
    "tito module test 02 --json"
)
@plainly
def test(
    name: NameOrNext = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="One screen, and a run after every save.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a module's tests on your code, in a process of its own, with limits.

    Exits with 1 unless all pass.
    """
    from tito.workspace import folder, module, show

    if watch:
        from tito.workspace.watch import watch as begin

        workspace = folder.require()
        warn_of(module.refresh(workspace))
        raise typer.Exit(0 if begin(workspace, chosen(workspace, name)) else 1)
    _, result = _run_tests(name)
    if as_json:
        console.print_json(show.result_json(result))
    else:
        for line in show.result_lines(result):
            say(line)
    raise typer.Exit(0 if result.passed else 1)


def chosen(workspace: Workspace, name: str | None) -> Lesson:
    """The lesson of this name; without one that which the student is at.

    Raises:
        WorkspaceError: there is none of this name, or all are completed.
    """
    from tito.workspace import course, folder, module

    if name is not None:
        return course.find(name)
    if (lesson := module.next_lesson(workspace)) is None:
        raise folder.WorkspaceError("you have completed all modules: name the one that you mean")
    return lesson


def _run_tests(name: str | None) -> tuple[Workspace, Result]:
    """Run a module's tests on the code in this workspace, and remember how they went."""
    from tito.workspace import folder, module, run, state

    workspace = folder.require()
    lesson = chosen(workspace, name)
    path = module.file_of(workspace, lesson)
    if state.is_writable(workspace):
        warn_of(module.refresh(workspace))
    else:
        console.errors.print("read-only folder: nothing of this run is remembered")
    result = run.run_tests(workspace, lesson, path)
    module.remember(workspace, result)
    return workspace, result


def warn_of(report: Report) -> None:
    """Say what making the package came upon."""
    for path in report.kept:
        console.errors.print(
            f"a file of tinytorch/ was changed by hand; it is now {path}", soft_wrap=True
        )
    for _, text in report.problems:
        console.errors.print(
            f"not in your package, as TinyTorch has changed: {text}", soft_wrap=True
        )


@app.command(epilog="Examples:\n\ntito module complete 02\n\ntito module complete tensor --json")
@plainly
def complete(name: Name, as_json: AsJson = False) -> None:
    """Put your code into your tinytorch, if its tests and the integration tests pass.

    Exits with 1, and changes nothing, if they do not.
    """
    from tito.workspace import module, show

    workspace, result = _run_tests(name)
    if not result.passed:
        if as_json:
            console.print_json({"completed": False, **show.result_json(result)})
        else:
            for line in show.result_lines(result):
                say(line)
            say("nothing was changed: your code goes into tinytorch/ when all tests pass")
        raise typer.Exit(1)
    done = module.complete(workspace, result)
    if as_json:
        console.print_json(show.completion_json(result, done))
        return
    for line in show.completion_lines(result, done):
        say(line)
    from tito.ladder.commands import speed_line
    from tito.status import share_line

    say(share_line(workspace))
    if line := speed_line(workspace, list(done.lines)):
        say(line)


@app.command(epilog="Example: tito module reset 02")
@plainly
def reset(name: Name) -> None:
    """Begin a module anew; your file and what you completed are kept as backups."""
    from tito.workspace import course, folder, module

    workspace = folder.require()
    lesson = course.find(name)
    for path in module.reset(workspace, lesson):
        say(f"kept: {path}")
    say(f"fresh: {module.file_of(workspace, lesson)}")


@app.command(epilog="Examples:\n\ntito module hint 02\n\ntito module hint 02 broadcast-shapes")
@plainly
def hint(
    name: Name,
    exercise: Annotated[
        str | None, typer.Argument(help="Which exercise; by default the first that fails.")
    ] = None,
) -> None:
    """Show the next hint of an exercise; after the last all of them."""
    from tito.workspace import course, folder, module

    workspace = folder.require()
    lesson = course.find(name)
    chosen = course.exercise(lesson, exercise) if exercise else module.current(workspace, lesson)
    number = module.next_hint(workspace, lesson, chosen)
    whole = len(chosen.hints)
    if number <= whole:
        say(f"{chosen.id}, hint {number} of {whole}\n\n{chosen.hints[number - 1].strip()}")
        return
    for i, text in enumerate(chosen.hints, 1):
        say(f"{chosen.id}, hint {i} of {whole}\n\n{text.strip()}\n")
    say("there are no more hints" if whole else f"{chosen.id} has no hints")


@app.command(epilog="Examples:\n\ntito module diff 02\n\ntito module diff 02 broadcast-shapes")
@plainly
def diff(
    name: Name,
    exercise: Annotated[str | None, typer.Argument(help="Which exercise; by default all.")] = None,
) -> None:
    """Show your code beside ours, once you have completed the module."""
    from tito.workspace import course, folder, module, show

    workspace = folder.require()
    lesson = course.find(name)
    chosen = [course.exercise(lesson, exercise)] if exercise else lesson.exercises
    pairs = module.pairs(workspace, lesson, chosen)
    for place, mine, ours in pairs:
        console.print_beside(place, show.beside(mine.split("\n"), ours.split("\n")))
