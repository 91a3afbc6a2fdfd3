"""`tito graph`: trace a function, look at its graph, improve, profile and draw it.

The user's file is never imported here: each command runs `graph_child.py` in a fresh process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tito import console, scripts

CHILD = Path(__file__).with_name("graph_child.py")
PASSES = "algebra,layout,fold,cse,dce,fusion"
PICTURES = (".svg", ".png", ".mmd", ".dot")

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
Passes = Annotated[
    str,
    typer.Option("--passes", help="Names of passes, and FILE.py:CLASS of your own, with commas."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For a machine to read.")]


def _split(target: str) -> tuple[str, str]:
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise typer.BadParameter(f"{target!r} is not of the form FILE.py:NAME")
    if not Path(file).is_file():
        raise typer.BadParameter(f"there is no file {file}")
    return file, name


def _run(command: str, target: str, inputs: list[str] | None, **options: Any) -> None:
    """Run the child to its end; its exit code is ours."""
    file, name = _split(target)
    request = {"command": command, "file": file, "name": name, "inputs": inputs, **options}
    code, _ = scripts.run_script(CHILD, [json.dumps(request)])
    raise typer.Exit(code)


@app.command(epilog="Examples:\n\ntito graph show step.py:step\n\ntito graph show m.py:f --table")
def show(
    target: Target,
    inputs: Inputs = None,
    table: Annotated[bool, typer.Option("--table", help="As a table.")] = False,
    decompose: Annotated[
        bool, typer.Option(help="Show softmax, linear and their like in their parts.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Print the graph, one line a node."""
    _run("show", target, inputs, table=table, decompose=decompose, json=as_json)


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
) -> None:
    """Run the graph node by node, and print its results."""
    _run(
        "run", target, inputs, backend=backend, reference=reference, find_nan=find_nan, json=as_json
    )


@app.command(epilog=f"Example: tito graph optimize step.py:step --passes {PASSES} --diff")
def optimize(
    target: Target,
    inputs: Inputs = None,
    passes: Passes = PASSES,
    rounds: Annotated[int, typer.Option(help="Go through the passes at most so often.")] = 3,
    diff: Annotated[bool, typer.Option("--diff", help="Show the lines each pass changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run passes, each checked against the original graph, and print what became of it."""
    _run(
        "optimize", target, inputs, passes=passes.split(","), rounds=rounds, diff=diff, json=as_json
    )


@app.command(epilog="Example: tito graph profile step.py:step --backend optimized --plot mem.png")
def profile(
    target: Target,
    inputs: Inputs = None,
    backend: Backend = "numpy",
    limit: Annotated[int, typer.Option(help="How many nodes to list.")] = 20,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the memory over the nodes into this picture.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time every node, and show the slowest with their work and the memory alive."""
    _run(
        "profile", target, inputs, backend=backend, limit=limit, plot=plot and str(plot),
        json=as_json,
    )  # fmt: skip


@app.command(epilog="Examples:\n\ntito graph draw m.py:f net.svg\n\ntito graph draw m.py:f net.mmd")
def draw(
    target: Target,
    picture: Annotated[Path, typer.Argument(help=f"The picture: {', '.join(PICTURES)}.")],
    inputs: Inputs = None,
    by: Annotated[str, typer.Option(help="Colour nodes by 'phase' or by 'time'.")] = "phase",
    backend: Backend = "numpy",
) -> None:
    """Draw the graph. SVG and PNG need Graphviz; Mermaid (.mmd) and .dot do not."""
    if picture.suffix not in PICTURES:
        raise typer.BadParameter(f"{picture.name} must end with one of {', '.join(PICTURES)}")
    if by not in ("phase", "time"):
        raise typer.BadParameter(console.unknown("colouring", by, ["phase", "time"]))
    _run("draw", target, inputs, picture=str(picture), by=by, backend=backend, json=False)
