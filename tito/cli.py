"""The tree of commands. Heavy modules load inside the commands, so that `tito --help` is quick."""

from __future__ import annotations

import sys
from typing import Annotated

try:
    import rich  # noqa: F401 - console.py needs it
    import typer
except ModuleNotFoundError as error:
    sys.exit(f"tito needs {error.name}, which is not installed: pip install 'tinytorch[cli]'")

from tito import (
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
)
from tito.course import commands as course
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
        import tinytorch

        print(f"tinytorch {tinytorch.__version__}")
        raise typer.Exit


@app.callback()
def tito(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


app.command(epilog="Example: tito demo")(demo.demo)
app.command(epilog="Examples:\n\ntito doctor\n\ntito doctor --json")(doctor.doctor)
app.command(
    epilog="Examples:\n\ntito bench dispatch\n\ntito bench training --json\n\ntito bench --list",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(bench.bench)
app.command(epilog="Examples:\n\ntito cache\n\ntito cache --clear")(cache.cache)
app.command(epilog="Examples:\n\ntito init my-tinytorch\n\ntito init my-tinytorch --format py")(
    init.init
)
app.command(epilog="Examples:\n\ntito status\n\ntito status --json")(status.status)
app.add_typer(module.app, name="module")
app.add_typer(fx.app, name="fx")
app.add_typer(graph.app, name="graph")
app.add_typer(milestone.app, name="milestone")
app.add_typer(lessons.app, name="lessons")
app.add_typer(course.app, name="course")


def main() -> None:
    """The entry point of the command `tito`."""
    leave_out_workspaces()
    app(prog_name="tito")
