"""`tito milestone`: history, replayed with TinyTorch."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from tito import console, scripts
from tito.module import plainly

app = typer.Typer(no_args_is_help=True, help="Replay the history of neural networks.")


@dataclass(frozen=True)
class Milestone:
    """A folder `NN_year_slug` under milestones/ with a `main.py`."""

    number: str
    year: str
    slug: str
    title: str
    folder: str

    @property
    def script(self) -> Path:
        return scripts.folder("milestones") / self.folder / "main.py"

    @property
    def names(self) -> tuple[str, ...]:
        """What it answers to."""
        return (self.number, self.number.lstrip("0"), self.slug, self.year, self.folder)


def milestones() -> list[Milestone]:
    """All milestones in order; the title is the first line of the script's docstring."""
    found = []
    for script in sorted(scripts.folder("milestones").glob("[0-9][0-9]_*_*/main.py")):
        number, year, slug = script.parent.name.split("_", 2)
        docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        title = docstring.partition("\n")[0].rstrip(".")
        found.append(Milestone(number, year, slug, title, script.parent.name))
    return found


def find(name: str) -> Milestone:
    """The milestone with this number, slug, year or folder.

    Raises:
        typer.BadParameter: there is none; the message suggests the nearest and lists all.
    """
    known = milestones()
    for milestone in known:
        if name.lower() in milestone.names:
            return milestone
    raise typer.BadParameter(console.unknown("milestone", name, [m.slug for m in known]))


@app.command("list", epilog="Example: tito milestone list --json")
def list_milestones(
    as_json: Annotated[bool, typer.Option("--json", help="For a machine to read.")] = False,
) -> None:
    """Show the milestones."""
    found = milestones()
    if as_json:
        console.print_json([asdict(m) for m in found])
    else:
        console.print_rows(
            ["", "year", "name", "what"], [[m.number, m.year, m.slug, m.title] for m in found]
        )


@app.command(
    "run",
    epilog="Examples:\n\ntito milestone run 04\n\ntito milestone run cnn --backend optimized\n\n"
    "tito milestone run mlp --backend mine\n\ntito milestone run xor --json\n\n"
    "tito milestone run mlp --require-all-mine",
)
@plainly
def run_milestone(
    name: Annotated[str, typer.Argument(help="Number, name or year: 04, cnn, 1998.")],
    backend: Annotated[
        str | None,
        typer.Option(
            help="Backend to run on: a name, mine, FILE.py:CLASS; each milestone has its default."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout; progress goes to stderr.")
    ] = False,
    all_mine: Annotated[
        bool,
        typer.Option(
            "--require-all-mine",
            help="In a workspace: refuse, before training, if a part is not written by you yet.",
        ),
    ] = False,
) -> None:
    """Run a milestone in a fresh process and check its gates.

    In a workspace it runs on your tinytorch, and says how much of the work was done by your code.
    Exits with 0 if every gate holds, and with 1 if one fails.
    """
    from tito.workspace import backends
    from tito.workspace.folder import WorkspaceError, find as find_workspace

    milestone, workspace = find(name), find_workspace()
    arguments, files = [], []
    if backend is not None:
        place = backends.resolve(backend, workspace)
        arguments += ["--backend", place]
        files += [Path(file)] if (file := place.rpartition(":")[0]).endswith(".py") else []
    arguments += ["--json"] if as_json else []
    if workspace is None:
        if all_mine:
            raise WorkspaceError("--require-all-mine is for a workspace: cd to yours")
        code, _ = scripts.run_script(milestone.script, arguments)
        raise typer.Exit(code)
    from tito.workspace import own

    raise typer.Exit(
        own.run_script(
            workspace, milestone.script, arguments, files=files, as_json=as_json, all_mine=all_mine
        )
    )
