"""`tito fx`: real PyTorch models as graphs.

The model may be the user's own file, which is never imported here: each command runs `fx_child.py`
in a fresh process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tito import console, scripts

CHILD = Path(__file__).with_name("fx_child.py")
KINDS = ("forward", "joint", "step")
OPTIMIZERS = ("sgd", "adam", "adamw")
LOSSES = ("model", "mean-square")
REPORTS = (".html", ".csv", ".parquet", ".json", ".trace", ".png", ".svg")
MODELS = ("hf:resnet152", "hf:bert-base", "hf:gpt2")

app = typer.Typer(
    help="Capture real PyTorch models as graphs, and run passes on them.",
    epilog=(
        f"MODEL is {', '.join(MODELS)}, or hf: and any configuration class of transformers "
        "(hf:LlamaConfig), with random weights; or FILE.py:FACTORY: a function that "
        "takes `batch` and returns a model and its inputs.\n\n"
        "Examples:\n\ntito fx diagnose hf:bert-base --small\n\n"
        "tito fx profile hf:gpt2 --batch 2 --report profile.html\n\n"
        "tito fx checkpoint my_model.py:make --budget 0.5"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="hf:gpt2 or FILE.py:FACTORY.")]
Batch = Annotated[int, typer.Option("--batch", help="Samples in the batch.", min=1)]
Small = Annotated[bool, typer.Option("--small", help="Few and narrow layers, to try things out.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.")]
AsJson = Annotated[bool, typer.Option("--json", help="For a machine to read.")]
Kind = Annotated[
    str, typer.Option("--kind", help="forward; joint: with the backward; step: with the optimizer.")
]
Optimizer = Annotated[str, typer.Option("--optimizer", help=", ".join(OPTIMIZERS) + ".")]


Loss = Annotated[
    str,
    typer.Option(
        "--loss",
        help="model: the one it computes itself, or the third that FACTORY returns; mean-square: "
        "of its outputs, for a model without one.",
    ),
]


def _one_of(what: str, given: str, known: Sequence[str]) -> str:
    if given not in known:
        raise typer.BadParameter(console.unknown(what, given, known))
    return given


def _run(command: str, model: str, **options: Any) -> None:
    """Run the child to its end; its exit code is ours."""
    path = model.rpartition(":")[0]
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise typer.BadParameter(f"there is no file {path}")
    elif model not in MODELS and not (model.startswith("hf:") and model.endswith("Config")):
        hint = console.unknown("model", model, MODELS)
        raise typer.BadParameter(
            f"{hint}, hf: and a configuration class of transformers (hf:LlamaConfig), and "
            "FILE.py:FACTORY for your own"
        )
    if "loss" in options:
        _one_of("loss", options["loss"], LOSSES)
    request = {"command": command, "model": model, **options}
    code, _ = scripts.run_script(CHILD, [json.dumps(request)])
    raise typer.Exit(code)


@app.command(epilog="Example: tito fx diagnose my_model.py:make --compare")
def diagnose(
    model: Model,
    batch: Batch = 2,
    small: Small = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also what each tracer keeps and loses.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find out which tracers take a model, which refuse it, and which get it wrong."""
    _run("diagnose", model, batch=batch, small=small, compare=compare, json=as_json)


@app.command(epilog="Example: tito fx trace hf:gpt2 --small --kind step --optimizer adamw")
def trace(
    model: Model,
    kind: Kind = "forward",
    optimizer: Optimizer = "adamw",
    loss: Loss = "model",
    batch: Batch = 2,
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Print the graph of a model, one line a node."""
    _one_of("kind of graph", kind, KINDS)
    _one_of("optimizer", optimizer, OPTIMIZERS)
    _run(
        "trace",
        model,
        kind=kind,
        optimizer=optimizer,
        loss=loss,
        batch=batch,
        small=small,
        json=as_json,
    )


@app.command(epilog="Example: tito fx draw hf:bert-base bert.svg --small --kind joint")
def draw(
    model: Model,
    picture: Annotated[Path, typer.Argument(help="The picture: .svg, .png, .mmd or .dot.")],
    kind: Kind = "forward",
    optimizer: Optimizer = "adamw",
    loss: Loss = "model",
    batch: Batch = 2,
    small: Small = False,
) -> None:
    """Draw the graph of a model, coloured by phase. SVG and PNG need Graphviz."""
    _one_of("kind of graph", kind, KINDS)
    _one_of("optimizer", optimizer, OPTIMIZERS)
    _one_of("kind of picture", picture.suffix, (".svg", ".png", ".mmd", ".dot"))
    _run(
        "draw", model, kind=kind, optimizer=optimizer, loss=loss, batch=batch, small=small,
        picture=str(picture), json=False,
    )  # fmt: skip


@app.command(epilog="Example: tito fx optimize hf:resnet152 --passes algebra,cse,dce,conv-bn")
def optimize(
    model: Model,
    passes: Annotated[
        str | None,
        typer.Option(
            "--passes", help="Names of passes, and FILE.py:CLASS of your own, with commas."
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="For training: the weights go on changing.")
    ] = False,
    batch: Batch = 2,
    small: Small = False,
    device: Device = "cpu",
    threads: Annotated[int, typer.Option(help="Threads of PyTorch on the CPU.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Run passes on a model, check each, and measure what they brought."""
    _run(
        "optimize", model, passes=passes.split(",") if passes else None, train=train, batch=batch,
        small=small, device=device, threads=threads, json=as_json,
    )  # fmt: skip


@app.command(epilog="Example: tito fx profile hf:bert-base --batch 2 --report bert.html")
def profile(
    model: Model,
    optimizer: Optimizer = "adamw",
    loss: Loss = "model",
    batch: Batch = 2,
    small: Small = False,
    device: Device = "cpu",
    limit: Annotated[int, typer.Option(help="How many nodes to list.")] = 20,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write a page (.html), a table (.csv, .parquet), .json, or a timeline "
            "for Chrome (.trace.json)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time and memory of every node of the training step, and of every activation."""
    _one_of("optimizer", optimizer, OPTIMIZERS)
    if report is not None:
        _one_of("kind of report", report.suffix, REPORTS)
    _run(
        "profile", model, optimizer=optimizer, loss=loss, batch=batch, small=small, device=device,
        limit=limit, report=report and str(report), json=as_json,
    )  # fmt: skip


@app.command(epilog="Example: tito fx checkpoint hf:gpt2 --batch 2 --budget 0.5")
def checkpoint(
    model: Model,
    budget: Annotated[
        str, typer.Option("--budget", help="Bytes (512MiB), or a fraction of saving all (0.5).")
    ],
    batch: Batch = 2,
    small: Small = False,
    as_json: AsJson = False,
) -> None:
    """Cut a model's training memory by computing activations again; measure what it costs."""
    _run("checkpoint", model, budget=budget, batch=batch, small=small, json=as_json)


@app.command("compile", epilog="Example: tito fx compile hf:gpt2 --small --backend tinytorch")
def compile_(
    model: Model,
    backend: Annotated[str, typer.Option("--backend", help="Of torch.compile.")] = "tinytorch",
    train: Annotated[bool, typer.Option("--train", help="Forward and backward.")] = False,
    batch: Batch = 2,
    small: Small = False,
    threads: Annotated[int, typer.Option(help="Threads on the CPU.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Compile a model, compare it with eager PyTorch, and measure both."""
    _run(
        "compile", model, backend=backend, train=train, batch=batch, small=small, threads=threads,
        json=as_json,
    )  # fmt: skip


@app.command(epilog="Example: tito fx zoo --sample 25 --seed 1")
def zoo(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Those like this: 'transformers/ber*', or bert. Repeatable."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", help="So many of them, at random.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample.")] = 0,
    stages: Annotated[
        str | None, typer.Option("--stages", help="Names of stages, separated by commas.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Results, a line of JSON each; a run goes on from them.")
    ] = Path("build/zoo.jsonl"),
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the results as this Markdown page.")
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="Print the names, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Every architecture at hand, small, through all that `tito fx` does: is it like eager?"""
    arguments = ["tinytorch.fx.zoo", "--seed", str(seed), "--out", str(out)]
    for pattern in only or ():
        arguments += ["--only", pattern]
    given = {"--sample": sample, "--stages": stages, "--page": page}
    for option, value in given.items():
        arguments += [] if value is None else [option, str(value)]
    arguments += ["--list"] * list_names + ["--json"] * as_json
    code, _ = scripts.run_script("-m", arguments)
    raise typer.Exit(code)
