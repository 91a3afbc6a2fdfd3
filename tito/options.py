"""Options that mean the same in every command that has them, and the child process that answers.

The user's file is never imported here: a command is a request to a child process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from tito import console, scripts

PICTURES = (".svg", ".png", ".mmd", ".dot")

AsJson = Annotated[bool, typer.Option("--json", help="For a machine to read.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="With an error, where it was raised."),
]
AsTable = Annotated[bool, typer.Option("--table", help="As a table.")]
Picture = Annotated[Path, typer.Argument(help=f"The picture: {', '.join(PICTURES)}.")]
Passes = Annotated[
    str | None,
    typer.Option("--passes", help="Names of passes, and FILE.py:CLASS of your own, with commas."),
]
Rounds = Annotated[
    int, typer.Option("--rounds", help="Go through the passes at most so often.", min=1)
]
Diff = Annotated[bool, typer.Option("--diff", help="Show the lines each pass changed.")]
Limit = Annotated[int, typer.Option("--limit", help="How many nodes to list.", min=1)]


def one_of(what: str, given: str, known: Sequence[str]) -> str:
    """The name that was given, if it is known; otherwise an error with the nearest ones."""
    if given not in known:
        raise typer.BadParameter(console.unknown(what, given, known))
    return given


def written(what: str, path: Path, endings: Sequence[str]) -> None:
    """Raise an error at once if a file cannot be written later: its ending or its folder."""
    one_of(what, path.suffix, endings)
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{path}: there is no folder {path.parent}")


def names(passes: str | None) -> list[str] | None:
    """The passes that an option names."""
    return passes.split(",") if passes else None


def file_of(target: str, form: str) -> tuple[str, str]:
    """File and name of FILE.py:NAME.

    Args:
        form: how the error calls it.
    """
    file, colon, name = target.rpartition(":")
    if not (colon and name.isidentifier() and file.endswith(".py")):
        raise typer.BadParameter(f"{target!r} is not of the form {form}")
    if not Path(file).is_file():
        raise typer.BadParameter(f"there is no file {file}")
    return file, name


def ask(child: Path, command: str, *, package: Path | None = None, **request: Any) -> NoReturn:
    """Have a child process answer a request; its exit code is ours.

    Args:
        child: a script that ends in `tito.child.serve`.
        package: the folder whose `tinytorch/` it imports, unless it is the one beside tito.
        request: what JSON can say, and paths.
    """
    text = json.dumps({"command": command, **request}, default=str)
    code, _ = scripts.run_script(child, [text], package=package or scripts.ROOT)
    raise typer.Exit(code)
