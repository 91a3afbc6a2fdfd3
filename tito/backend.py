"""`tito backend`: a backend of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tito import console
from tito.module import plainly, say
from tito.options import AsJson, Verbose, ask, one_of

CHILD = Path(__file__).with_name("backend_child.py")

app = typer.Typer(
    help="A backend of your own: begin it, check it, compare it.",
    epilog="Examples:\n\ntito backend new\n\ntito backend check mine\n\ntito backend compare",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="BACKEND", help="mine, FILE.py:CLASS, FILE.py, or a registered backend's name."
    ),
]


@app.command(
    epilog="Examples:\n\ntito backend new\n\ntito backend new fast --from blocked --kernel conv2d"
)
@plainly
def new(
    name: Annotated[str, typer.Argument(help="The file is backends/NAME.py.")] = "mine",
    base: Annotated[
        str,
        typer.Option("--from", help="What it is derived from: naive, numpy, blocked, optimized."),
    ] = "naive",
    kernel: Annotated[
        list[str] | None, typer.Option("--kernel", help="matmul or conv2d; once for each.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Begin anew; the file there becomes a backup.")
    ] = False,
) -> None:
    """Begin a backend of your own in this workspace: a class that is right, to be made fast."""
    from tito.workspace import backends, folder

    workspace = folder.require()
    text = backends.text_of(name, base, kernel or ["matmul"])
    path = backends.begin(workspace, name, text, replace=replace)
    say(f"write in {path}")
    say(f"next: tito backend check {name}, then tito backend compare {name}")


@app.command(
    epilog=(
        "Examples:\n\ntito backend check mine\n\n"
        "tito backend check mine.py:MyBackend --op matmul --examples 200\n\n"
        "tito backend check optimized --json"
    )
)
@plainly
def check(
    target: Target,
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
    from tito.workspace import backends, folder, module

    workspace = folder.find()
    place = backends.resolve(target, workspace)
    if workspace is not None:
        module.refresh(workspace)
    ask(
        CHILD, "check", package=workspace.root if workspace else None, backend=place, ops=op,
        examples=examples, seed=seed, json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(
    epilog="Examples:\n\ntito backend compare\n\ntito backend compare fast --step cnn --json"
)
@plainly
def compare(
    target: Target = "mine",
    step: Annotated[
        list[str] | None, typer.Option("--step", help="mlp or cnn; once for each; both without it.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each backend is measured.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="That kernels and BLAS may use.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Time a training step of the MLP and of the CNN: on loops, NumPy, your backend and optimized.

    On each backend three steps must first give the reference's losses and parameters. Exits with 1
    if one fails or gives other numbers.
    """
    from tito.ladder import commands, report, steps, tiers
    from tito.workspace import backends, folder, module

    workspace = folder.require()
    backends.resolve(target, workspace)  # an error now, and not after the other backends
    chosen = [one_of("step", name, list(steps.STEPS)) for name in step or steps.COMPARED]
    module.refresh(workspace)
    results = []
    for name in chosen:
        found = commands.run_tiers(
            workspace, name, tiers.beside(target), rounds=rounds, threads=threads, with_share=False
        )
        results.append(report.as_json(name, found, threads=threads, rounds=rounds))
        if not as_json:
            say(f"{steps.title(name, threads)}\n")
            commands.show(found)
            say("")
    if as_json:
        console.print_json(results)
    raise typer.Exit(0 if all(result["passed"] for result in results) else 1)
