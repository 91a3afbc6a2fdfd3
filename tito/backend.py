"""`tito backend`: a backend of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tito.options import AsJson, Verbose, ask

CHILD = Path(__file__).with_name("backend_child.py")

app = typer.Typer(
    help="Check a backend of your own.",
    epilog="Examples:\n\ntito backend check mine.py:MyBackend\n\ntito backend check blocked",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def backend() -> None:
    pass


@app.command(
    epilog=(
        "Examples:\n\ntito backend check mine.py:MyBackend\n\n"
        "tito backend check mine.py:MyBackend --op matmul --examples 200\n\n"
        "tito backend check optimized --json"
    )
)
def check(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE.py:CLASS", help="Your backend, or a registered one's name."),
    ],
    op: Annotated[
        list[str] | None, typer.Option("--op", help="Only this op; once for each.")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Calls of each op.")] = 25,
    seed: Annotated[int, typer.Option(help="Of the generated inputs.")] = 0,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compare every op of a backend with the NumPy backend's, on generated inputs.

    Exits with 1 if an op does not conform; the first call that differs is shown.
    """
    file, colon, name = target.rpartition(":")
    if colon and not (name.isidentifier() and Path(file).is_file()):
        raise typer.BadParameter(
            f"{target!r} is neither FILE.py:CLASS of a file that is there, nor a backend's name"
        )
    ask(
        CHILD, "check", file=file, name=name, ops=op, examples=examples, seed=seed, json=as_json,
        verbose=verbose,
    )  # fmt: skip
