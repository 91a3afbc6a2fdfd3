"""What `tito fx` runs in a process of its own: it may import the user's file.

The one argument is a JSON object: the command, the model, and options.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from tinytorch import fx
from tinytorch.bench import format_seconds, ratio, time_callables
from tinytorch.bench.units import format_table
from tinytorch.fx.models import LoadedModel, ModelError, call, check_model, squares_loss
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.graph.ir import map_arg
from tinytorch.graph.recompute.budget import parse_budget
from tito.child import (
    USER_ERROR,
    Answer,
    RequestError,
    describe,
    diffs,
    drawn,
    passes_of,
    serve,
)
from tito.console import unknown

errors = Console(stderr=True)


def load(request: dict[str, Any]) -> LoadedModel:
    """The model that is asked for, with a loss if the command takes gradients and names one."""
    example = fx.load_model(request["model"], batch=request["batch"], small=request["small"])
    trains = request["command"] in ("profile", "report", "checkpoint") or request.get("kind") in (
        "joint", "step",
    ) or request.get("train", False)  # fmt: skip
    check_model(example.model, example.batch, trains=trains)
    if request.get("loss") == "mean-square":
        example.loss = squares_loss
    elif trains and "loss" in request:
        try:
            with torch.no_grad():
                example.loss(example.model, example.batch)
        except ModelError as error:
            raise RequestError(f"{error}; or give --loss mean-square") from error
    return example


def captured_graph(request: dict[str, Any]) -> torch.fx.Graph:
    """The forward, the forward with its backward, or the whole training step; with shapes."""
    example = load(request)
    if request["kind"] == "forward":
        graph = fx.capture_forward(example.model.eval(), example.inputs).graph
    elif request["kind"] == "joint":
        graph = fx.capture_joint(example.model, example.batch, example.loss).module.graph
    else:
        graph = _step(example, request["optimizer"]).module.graph
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):  # dtype and shape, as TinyTorch writes them
            kind = str(value.dtype).removeprefix("torch.")
            node.meta["tensor_meta"] = f"{kind}{list(value.shape)}"
    return graph


def _step(example: LoadedModel, optimizer: str) -> Any:
    return fx.capture_step(example.model, example.batch, optimizer, loss=example.loss, lr=1e-3)


def line(node: torch.fx.Node, row: dict[str, Any]) -> str:
    """A node in one line; `row` is what `describe` says of it."""
    given = map_arg((list(node.args), node.kwargs), lambda n: f"%{n.name}", torch.fx.Node)
    args: Any = given[0]
    kwargs: Any = given[1]
    arguments = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])
    kind = "" if node.op == "call_function" else f"{node.op} "
    typed = f"%{node.name} : {row['meta']}" if row["meta"] else f"%{node.name}"
    remark = "" if row["phase"] == "forward" else f"  # {row['phase']}"
    return f"{typed} = {kind}{row['target']}({arguments}){remark}"


# -- the commands ----------------------------------------------------------------------------------


def diagnose(request: dict[str, Any]) -> Answer:
    example = load(request)
    found = fx.diagnose(example.model, example.inputs)
    table = fx.compare_tracers(example.model, example.inputs) if request["compare"] else None
    return Answer(
        text=lambda: str(found) if table is None else f"{found}\n\n{table}",
        value=lambda: {
            "diagnosis": found.to_dict(), "comparison": table.to_dict() if table else None
        },
    )  # fmt: skip


def show(request: dict[str, Any]) -> Answer:
    graph = captured_graph(request)
    rows = describe(graph, torch.fx.Node)

    def text() -> str:
        if not request["table"]:
            return "\n".join(line(n, row) for n, row in zip(graph.nodes, rows, strict=True))
        columns = ("op", "name", "target", "args", "kwargs")
        return format_table(columns, [[str(row[c] or "") for c in columns] for row in rows])

    return Answer(text=text, value=lambda: rows)


def draw(request: dict[str, Any]) -> Answer:
    return drawn(captured_graph(request), request["picture"])


def optimize(request: dict[str, Any]) -> Answer:
    torch.set_num_threads(request["threads"])
    example = load(request)
    model = example.model.train(request["train"])
    optimizer = fx.GraphOptimizer(
        model, example.inputs, passes_of(request["passes"], ForwardSemantics(not request["train"])),
        device=request["device"], rounds=request["rounds"],
    )  # fmt: skip
    optimizer.optimize()
    report, comparison = optimizer.report(), optimizer.benchmark()
    changed = "".join(f"{diffs(r)}\n" for r in report.results.values()) if request["diff"] else ""
    return Answer(
        text=lambda: f"{changed}{report}\n\n{comparison}",
        value=lambda: {"report": report.to_dict(), "comparison": comparison.to_dict()},
    )


def profile(request: dict[str, Any]) -> Answer:
    limit = memory_limit(request["memory_limit"])  # before the model is built
    device = fx.resolve_device(request["device"])
    example = load(request).to(device)
    step = _step(example, request["optimizer"])
    found = fx.GraphProfiler(step, title=f"{request['model']}, {request['optimizer']}").run()
    if request["report"]:
        found.write(request["report"], limit)
    return Answer(text=lambda: found.table(request["limit"]), value=found.to_dict)


def report(request: dict[str, Any]) -> Answer:
    torch.set_num_threads(1)
    example = load(request)
    size = f"batch {request['batch']}{', small' * request['small']}"
    found = fx.report_model(example, f"{request['model']}, {size}", request["optimizer"])
    found.write(request["page"])
    return Answer(text=lambda: f"{found}\nwrote {request['page']}", value=found.to_dict)


def checkpoint(request: dict[str, Any]) -> Answer:
    budget = parse_budget(request["budget"])  # before the model is built
    limit = memory_limit(request["memory_limit"])
    example = load(request)
    if request["swap"] is not None:
        report = fx.simulate_swapping(example.model, example.batch, budget, request["swap"] * 1e9)
        if request["plot"]:
            report.plot(request["plot"], limit)
        return Answer(text=lambda: str(report), value=report.to_dict)
    model = fx.checkpoint(example.model, example.batch, budget)
    plan = model.compiled(example.batch)
    return Answer(text=lambda: str(plan), value=plan.to_dict)


def memory_limit(text: str | None) -> int | None:
    """Bytes, of an option; a fraction has nothing that it is of."""
    if text is None:
        return None
    found = parse_budget(text)
    if isinstance(found, float):
        raise RequestError(f"--memory-limit {text}: a limit is in bytes, such as 512MiB")
    return found


def compile_(request: dict[str, Any]) -> Answer:
    import tinytorch

    known = torch._dynamo.list_backends(None)
    if request["backend"] not in known:
        raise RequestError(unknown("backend of torch.compile", request["backend"], known))
    torch.set_num_threads(request["threads"])
    tinytorch.set_num_threads(request["threads"])
    example = load(request)
    train = request["train"]
    model = example.model.train(train)
    # TinyTorch compiles what is around recurrent layers; others may not survive them
    torch._dynamo.config.allow_rnn = request["backend"] == "tinytorch"
    compiled = torch.compile(model, backend=request["backend"])

    def run(module: Any) -> Any:
        if not train:
            with torch.no_grad():
                return call(module, example.inputs)
        model.zero_grad()
        loss = example.loss(module, example.batch)
        loss.backward()
        return loss.detach()

    with errors.status(f"compiling {request['model']} with {request['backend']}"):
        start = time.perf_counter()
        run(compiled)
        first = time.perf_counter() - start
    with errors.status("measuring"):
        timings = time_callables({"eager": lambda: run(model), "compiled": lambda: run(compiled)})
    speed = ratio(timings["eager"], timings["compiled"])
    report = ""
    if request["backend"] == "tinytorch":
        from tinytorch.fx.dynamo import last_report

        report = str(last_report())
    later = format_seconds(timings["compiled"].median)
    return Answer(
        text=lambda: (
            f"{report}\nfirst call {format_seconds(first)}, later {later}; "
            f"eager / compiled {speed:.2f}"
        ),
        value=lambda: {
            "first_s": first, "eager_s": timings["eager"].median,
            "compiled_s": timings["compiled"].median, "ratio": speed, "report": report,
        },
    )  # fmt: skip


def zoo(request: dict[str, Any]) -> Answer:
    from tinytorch.fx.zoo.child import Limits
    from tinytorch.fx.zoo.command import Zoo

    given = {k: v for k, v in request["zoo"].items() if v is not None}
    limits = Limits(**{k: v for k, v in request["limits"].items() if v is not None})
    asked = Zoo(**{**given, "out": Path(request["zoo"]["out"]), "limits": limits})
    if request["list"]:
        return Answer(text=lambda: "\n".join(asked.names()), value=asked.names)
    if request["run"]:
        asked.run()
    found = asked.results()
    if request["page"]:
        Path(request["page"]).write_text(found.page())
    return Answer(text=lambda: str(found), value=found.to_dict, code=USER_ERROR if found.bad else 0)


COMMANDS = {
    "diagnose": diagnose, "show": show, "draw": draw, "optimize": optimize, "profile": profile,
    "report": report, "checkpoint": checkpoint, "compile": compile_,
    "zoo": zoo,
}  # fmt: skip

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of PyTorch's own parts among each other
    sys.exit(serve(COMMANDS))
