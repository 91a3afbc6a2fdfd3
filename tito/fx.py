"""`tito fx`: real PyTorch models as graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tito import console
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

CHILD = Path(__file__).with_name("fx_child.py")
KINDS = ("forward", "joint", "step")
OPTIMIZERS = ("sgd", "adam", "adamw")
LOSSES = ("model", "mean-square")
REPORTS = (".html", ".csv", ".parquet", ".json", ".trace", ".png", ".svg")
DRAWN = (".html", ".png", ".svg")  # reports with a drawing of memory
PLOTS = (".png", ".svg", ".pdf")
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
Kind = Annotated[
    str, typer.Option("--kind", help="forward; joint: with the backward; step: with the optimizer.")
]
Optimizer = Annotated[str, typer.Option("--optimizer", help=", ".join(OPTIMIZERS) + ".")]
Threads = Annotated[int, typer.Option("--threads", help="Threads on the CPU.", min=1)]
Train = Annotated[
    bool, typer.Option("--train", help="For training: with gradients, of weights that change.")
]
Loss = Annotated[
    str,
    typer.Option(
        "--loss",
        help="model: the one it computes itself, or the third that FACTORY returns; mean-square: "
        "of its outputs, for a model without one.",
    ),
]

MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", help="A line where memory is drawn, as 6GiB.")
]


def _ask(command: str, model: str, **options: Any) -> None:
    if model.rpartition(":")[0].endswith(".py"):
        file_of(model, "FILE.py:FACTORY")
    elif model not in MODELS and not (model.startswith("hf:") and model.endswith("Config")):
        hint = console.unknown("model", model, MODELS)
        raise typer.BadParameter(
            f"{hint}, hf: and a configuration class of transformers (hf:LlamaConfig), and "
            "FILE.py:FACTORY for your own"
        )
    known = {"kind": KINDS, "optimizer": OPTIMIZERS, "loss": LOSSES}
    for name in known.keys() & options.keys():
        one_of("kind of graph" if name == "kind" else name, options[name], known[name])
    ask(CHILD, command, model=model, **options)


@app.command(epilog="Example: tito fx diagnose my_model.py:make --compare")
def diagnose(
    model: Model,
    batch: Batch = 2,
    small: Small = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also what each tracer keeps and loses.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Find out which tracers take a model, which refuse it, and which get it wrong."""
    _ask(
        "diagnose", model, batch=batch, small=small, compare=compare, json=as_json, verbose=verbose
    )


@app.command("trace", hidden=True, epilog="Example: tito fx trace hf:gpt2")  # once its name
@app.command(
    epilog="Examples:\n\ntito fx show hf:gpt2 --small --kind step --optimizer adamw\n\n"
    "tito fx show my_model.py:make --table"
)
def show(
    model: Model,
    kind: Kind = "forward",
    optimizer: Optimizer = "adamw",
    loss: Loss = "model",
    batch: Batch = 2,
    small: Small = False,
    table: AsTable = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Print the graph of a model, one line a node."""
    _ask(
        "show", model, kind=kind, optimizer=optimizer, loss=loss, batch=batch, small=small,
        table=table, json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(epilog="Example: tito fx draw hf:bert-base bert.svg --small --kind joint")
def draw(
    model: Model,
    picture: Picture,
    kind: Kind = "forward",
    optimizer: Optimizer = "adamw",
    loss: Loss = "model",
    batch: Batch = 2,
    small: Small = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Draw the graph of a model, coloured by phase. SVG and PNG need Graphviz."""
    written("kind of picture", picture, PICTURES)
    _ask(
        "draw", model, kind=kind, optimizer=optimizer, loss=loss, batch=batch, small=small,
        picture=picture, json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(epilog="Example: tito fx optimize hf:resnet152 --passes algebra,cse,dce,conv-bn")
def optimize(
    model: Model,
    passes: Passes = None,
    rounds: Rounds = 1,
    diff: Diff = False,
    train: Train = False,
    batch: Batch = 2,
    small: Small = False,
    device: Device = "cpu",
    threads: Threads = 1,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run passes on a model, check each, and measure what they brought."""
    _ask(
        "optimize", model, passes=names(passes), rounds=rounds, diff=diff, train=train,
        batch=batch, small=small, device=device, threads=threads, json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(epilog="Example: tito fx profile hf:bert-base --batch 2 --report bert.html")
def profile(
    model: Model,
    optimizer: Optimizer = "adamw",
    loss: Loss = "model",
    batch: Batch = 2,
    small: Small = False,
    device: Device = "cpu",
    limit: Limit = 20,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Write a page (.html), a table (.csv, .parquet), .json, or a timeline "
            "for Chrome (.trace.json).",
        ),
    ] = None,
    memory_limit: MemoryLimit = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Time and memory of every node of the training step, and of every activation."""
    if report is not None:
        written("kind of report", report, REPORTS)
    if memory_limit is not None and (report is None or report.suffix not in DRAWN):
        raise typer.BadParameter(
            f"--memory-limit is a line in a drawing: give --report ({', '.join(DRAWN)})"
        )
    _ask(
        "profile", model, optimizer=optimizer, loss=loss, batch=batch, small=small, device=device,
        limit=limit, report=report, memory_limit=memory_limit, json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(epilog="Example: tito fx report hf:bert-base bert.html --small")
def report(
    model: Model,
    page: Annotated[Path, typer.Argument(help="The page to write: .html.")],
    optimizer: Optimizer = "adamw",
    loss: Loss = "model",
    batch: Batch = 2,
    small: Small = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write one page about a model: what passes did, what was refused, and how others compare."""
    written("kind of page", page, (".html",))
    _ask(
        "report", model, page=page, optimizer=optimizer, loss=loss, batch=batch, small=small,
        json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(epilog="Example: tito fx checkpoint hf:gpt2 --batch 2 --budget 0.5")
def checkpoint(
    model: Model,
    budget: Annotated[
        str, typer.Option("--budget", help="Bytes (512MiB), or a fraction of saving all (0.5).")
    ],
    batch: Batch = 2,
    small: Small = False,
    swap: Annotated[
        float | None,
        typer.Option(
            "--swap",
            metavar="GB/S",
            help="Simulate swapping to the host beside it, at this bandwidth.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--picture", help="With --swap: draw memory over time (.png, .svg, .pdf)."),
    ] = None,
    memory_limit: MemoryLimit = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Cut a model's training memory by computing activations again; measure what it costs."""
    if swap is None and (plot is not None or memory_limit is not None):
        raise typer.BadParameter(
            "--picture and --memory-limit belong to a simulation: give --swap and its GB/s"
        )
    if swap is not None and not swap > 0:
        raise typer.BadParameter(f"--swap {swap:g}: a bandwidth in GB/s is above 0")
    if plot is not None:
        written("kind of picture", plot, PLOTS)
    _ask(
        "checkpoint", model, budget=budget, batch=batch, small=small, swap=swap,
        plot=plot and str(plot), memory_limit=memory_limit, json=as_json,
        verbose=verbose,
    )  # fmt: skip


@app.command("compile", epilog="Example: tito fx compile hf:gpt2 --small --backend tinytorch")
def compile_(
    model: Model,
    backend: Annotated[str, typer.Option("--backend", help="Of torch.compile.")] = "tinytorch",
    train: Train = False,
    batch: Batch = 2,
    small: Small = False,
    threads: Threads = 1,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compile a model, compare it with eager PyTorch, and measure both."""
    _ask(
        "compile", model, backend=backend, train=train, batch=batch, small=small, threads=threads,
        json=as_json, verbose=verbose,
    )  # fmt: skip


@app.command(
    epilog="Examples:\n\ntito fx zoo --sample 25 --seed 1\n\n"
    "tito fx zoo --only bert --stages forward,joint --page zoo.md"
)
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
        str | None, typer.Option("--stages", help="Names of stages, with commas; by default all.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Results, a line of JSON each; a run goes on from them.")
    ] = Path("build/zoo.jsonl"),
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what was left out, refused or too slow.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Run again what other sources of TinyTorch have made.")
    ] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Run nothing: look at what --out has.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Models at a time.", min=1)] = 1,
    stop_after: Annotated[
        float | None,
        typer.Option("--stop-after", metavar="MINUTES", help="Begin no model after that."),
    ] = None,
    stage_seconds: Annotated[
        float | None, typer.Option("--stage-seconds", help="CPU time of a stage. Default: 60.")
    ] = None,
    model_seconds: Annotated[
        float | None, typer.Option("--model-seconds", help="Of all its stages. Default: 300.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option("--memory", metavar="GiB", help="Of a model. Default: 6.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the results as this Markdown page.")
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", help="How the run was made: a sentence for the page.")
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="Print the names, and stop.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Every architecture at hand, small, through all that `tito fx` does: is it like eager?"""
    limits = {
        "stage_seconds": stage_seconds, "model_seconds": model_seconds,
        "memory_bytes": None if memory is None else int(memory * 2**30),
    }  # fmt: skip
    asked = {
        "only": only, "sample": sample, "seed": seed, "stages": names(stages), "out": out,
        "retry": retry, "renew": renew, "jobs": jobs, "stop_after": stop_after, "note": note,
    }  # fmt: skip
    ask(
        CHILD, "zoo", zoo=asked, limits=limits, run=not no_run, list=list_names, page=page,
        json=as_json, verbose=verbose,
    )  # fmt: skip
