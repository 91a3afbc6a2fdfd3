"""`tito graph`: trace a function, look at its graph, improve, profile and draw it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tito.options import (
    PICTURES,
    AsJson,
    AsTable,
    Diff,
    Limit,
    Passes,
    Picture,
    Rounds,
    Verbose,
    ask,
    file_of,
    names,
    one_of,
    written,
)

CHILD = Path(__file__).with_name("graph_child.py")
PASSES = "algebra,layout,fold,cse,dce,fusion"
COLOURINGS = ("phase", "time")
REPORTS = (".png", ".svg", ".json")

app = typer.Typer(
    help="Look at the graph of a function, improve, profile and draw it.",
    epilog=(
        "FILE.py:NAME is a function or Module. Its arguments are what the function "
        "example_inputs() of the same file returns, or what --input says.\n\n"
        "Examples:\n\ntito graph show step.py:train_step\n\n"
        "tito graph draw model.py:model net.svg --input 'float32[8,1,28,28]'"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

Target = Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="The function or Module.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="An argument by dtype and shape, such as 'float32[32,784]' or 'int64[32]<10' (of "
        "integers below 10); once for each.",
    ),
]
Backend = Annotated[str, typer.Option("--backend", "-b", help="What the graph runs on.")]


def _ask(command: str, target: str, inputs: list[str] | None, **options: object) -> None:
    file, name = file_of(target, "FILE.py:NAME")
    ask(CHILD, command, file=file, name=name, inputs=inputs, **options)


@app.command(epilog="Examples:\n\ntito graph show step.py:step\n\ntito graph show m.py:f --table")
def show(
    target: Target,
    inputs: Inputs = None,
    table: AsTable = False,
    decompose: Annotated[
        bool, typer.Option(help="Show softmax, linear and their like in their parts.")
    ] = True,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Print the graph, one line a node."""
    _ask(
        "show", target, inputs, table=table, decompose=decompose, json=as_json, verbose=verbose
    )  # fmt: skip


@app.command(epilog="Example: tito graph run model.py:model -i 'float32[2,8]' --backend naive")
def run(
    target: Target,
    inputs: Inputs = None,
    backend: Backend = "numpy",
    reference: Annotated[
        str | None, typer.Option("--against", help="A second backend to compare each node with.")
    ] = None,
    find_nan: Annotated[
        bool, typer.Option("--find-nan", help="Stop at the first node that makes NaN or infinity.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run the graph node by node, and print its results."""
    if find_nan and reference is not None:
        raise typer.BadParameter("--find-nan and --against are two runs: give one of them")
    _ask(
        "run", target, inputs, backend=backend, reference=reference, find_nan=find_nan,
        json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(epilog=f"Example: tito graph optimize step.py:step --passes {PASSES} --diff")
def optimize(
    target: Target,
    inputs: Inputs = None,
    passes: Passes = PASSES,
    rounds: Rounds = 3,
    diff: Diff = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run passes, each checked against the original graph, and print what became of it."""
    _ask(
        "optimize", target, inputs, passes=names(passes), rounds=rounds, diff=diff, json=as_json,
        verbose=verbose,
    )  # fmt: skip


@app.command(epilog="Example: tito graph profile step.py:step --backend optimized --report mem.png")
def profile(
    target: Target,
    inputs: Inputs = None,
    backend: Backend = "numpy",
    limit: Limit = 20,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            "--plot",
            help="Write this file: the memory over the nodes (.png, .svg), or all (.json).",
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Time every node, and show the slowest with their work and the memory alive."""
    if report is not None:
        written("kind of report", report, REPORTS)
    _ask(
        "profile", target, inputs, backend=backend, limit=limit, report=report, json=as_json,
        verbose=verbose,
    )  # fmt: skip


@app.command(epilog="Examples:\n\ntito graph draw m.py:f net.svg\n\ntito graph draw m.py:f net.mmd")
def draw(
    target: Target,
    picture: Picture,
    inputs: Inputs = None,
    by: Annotated[str, typer.Option(help="Colour nodes by 'phase' or by 'time'.")] = "phase",
    backend: Backend = "numpy",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Draw the graph. SVG and PNG need Graphviz; Mermaid (.mmd) and .dot do not."""
    written("kind of picture", picture, PICTURES)
    one_of("colouring", by, COLOURINGS)
    _ask(
        "draw", target, inputs, picture=picture, by=by, backend=backend, json=as_json,
        verbose=verbose,
    )  # fmt: skip
