"""The tree of commands. Heavy modules load inside the commands, so that `tito --help` is quick."""

from __future__ import annotations

import io
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

try:
    import rich  # noqa: F401 - console.py needs it
    import typer
except ModuleNotFoundError as error:
    sys.exit(f"tito needs {error.name}, which is not installed: pip install 'tinytorch[cli]'")

from tito import (
    backend,
    bench,
    cache,
    demo,
    doctor,
    fx,
    graph,
    init,
    leave_out_workspaces,
    milestone,
    module,
    status,
    update,
)
from tito.compete import commands as compete
from tito.course import commands as course
from tito.ladder import commands as ladder
from tito.leaderboard import commands as leaderboard
from tito.lessons import commands as lessons
from tito.suggest import SuggestingGroup

app = typer.Typer(
    name="tito",
    cls=SuggestingGroup,
    help="The command line of TinyTorch, a deep-learning framework to learn from by building it.",
    epilog="Examples:\n\ntito demo\n\ntito milestone run cnn\n\ntito COMMAND --help",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tinytorch {_version()}")
        raise typer.Exit


def _version() -> str:
    """The version in the package's source: importing it would take longer than all the rest."""
    spec = find_spec("tinytorch")
    assert spec is not None and spec.origin is not None
    found = re.search(r'^__version__ = "(.+)"$', Path(spec.origin).read_text("utf-8"), re.M)
    assert found is not None
    return found[1]


@app.callback()
def tito(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    # in the command, where typer says nothing of a reader that has enough: Python would, at its end
    context.call_on_close(lambda: print(end="", flush=True))


# Commands are in the help under the reader whom they are for, in this order.
COURSE, MEASURING, GRAPHS = "Your course", "Running and measuring", "Graphs and real models"
INSTRUCTORS, AUTHORS = "Instructors", "Authors of lessons"

app.command(
    epilog="Examples:\n\ntito init my-tinytorch\n\ntito init my-tinytorch --format py",
    rich_help_panel=COURSE,
)(init.init)
app.command(epilog="Examples:\n\ntito status\n\ntito status --json", rich_help_panel=COURSE)(
    status.status
)
app.command("next", epilog="Example: tito next", rich_help_panel=COURSE)(module.go_on)
app.command(epilog="Examples:\n\ntito test\n\ntito test 02 --watch", rich_help_panel=COURSE)(
    module.test
)
app.add_typer(module.app, name="module", rich_help_panel=COURSE)
app.command(epilog="Examples:\n\ntito update\n\ntito update 02", rich_help_panel=COURSE)(
    update.update
)
app.add_typer(milestone.app, name="milestone", rich_help_panel=COURSE)
app.command(
    epilog="Examples:\n\ntito ladder\n\ntito ladder cnn --on loops,numpy,mine\n\n"
    "tito ladder mlp --json\n\ntito ladder --history",
    rich_help_panel=COURSE,
)(ladder.ladder)
app.command(epilog="Example: tito demo", rich_help_panel=MEASURING)(demo.demo)
app.command(
    epilog="Examples:\n\ntito bench dispatch\n\ntito bench training --json\n\n"
    "tito bench training --backend mine\n\ntito bench kernels --hide avx512\n\n"
    "tito bench --record\n\ntito bench --list",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    rich_help_panel=MEASURING,
)(bench.bench)
app.add_typer(backend.app, name="backend", rich_help_panel=MEASURING)
app.add_typer(compete.app, name="compete", rich_help_panel=MEASURING)
app.command(
    epilog="Examples:\n\ntito submit mine.py\n\ntito submit mine.py --event matmul-26 --json\n\n"
    "Exit codes: 0 measured, 1 refused or failed, 3 too noisy or our fault.",
    rich_help_panel=MEASURING,
)(leaderboard.submit)
app.command(
    epilog="Examples:\n\ntito cache\n\ntito cache warm\n\ntito cache --clear",
    rich_help_panel=MEASURING,
)(cache.cache)
app.command(epilog="Examples:\n\ntito doctor\n\ntito doctor --json", rich_help_panel=MEASURING)(
    doctor.doctor
)
app.add_typer(graph.app, name="graph", rich_help_panel=GRAPHS)
app.add_typer(fx.app, name="fx", rich_help_panel=GRAPHS)
app.add_typer(course.app, name="course", rich_help_panel=INSTRUCTORS)
app.add_typer(leaderboard.app, name="leaderboard", rich_help_panel=INSTRUCTORS)
app.add_typer(lessons.app, name="lessons", rich_help_panel=AUTHORS)


def main() -> None:
    """The entry point of the command `tito`."""
    leave_out_workspaces()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack a path's letters
    app(prog_name="tito")
