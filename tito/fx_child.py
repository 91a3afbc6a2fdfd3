"""What `tito fx` runs in a process of its own: it may import the user's file.

The one argument is a JSON object: the command, the model, and options.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import torch
from rich.console import Console

from tinytorch import fx
from tinytorch.bench import format_seconds, ratio, time_callables
from tinytorch.fx.models import LoadedModel, ModelError, call, check_model, squares_loss
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.recompute.frontier import parse_budget
from tinytorch.graph.draw import draw as draw_graph
from tinytorch.graph.ir import map_arg, target_name
from tito.child import RequestError, answer, passes_of
from tito.console import unknown

errors = Console(stderr=True)


def load(request: dict[str, Any]) -> LoadedModel:
    """The model that is asked for, with a loss if the command takes gradients and names one."""
    example = fx.load_model(request["model"], batch=request["batch"], small=request["small"])
    trains = request["command"] in ("profile", "checkpoint") or request.get("kind") in (
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
    """The forward, the forward with its backward, or the whole training step."""
    example = load(request)
    if request["kind"] == "forward":
        return fx.capture_forward(example.model.eval(), example.inputs).graph
    if request["kind"] == "joint":
        return fx.capture_joint(example.model, example.batch, example.loss).module.graph
    return _step(example, request["optimizer"]).module.graph


def _step(example: LoadedModel, optimizer: str) -> Any:
    return fx.capture_step(example.model, example.batch, optimizer, loss=example.loss, lr=1e-3)


def describe(graph: torch.fx.Graph) -> list[dict[str, Any]]:
    """The nodes in words that JSON has."""
    return [
        {
            "name": node.name,
            "op": node.op,
            "target": target_name(node.target),
            "args": str(map_arg(node.args, lambda n: n.name, torch.fx.Node)),
            "meta": shape_text(node),
            "phase": node.meta.get("phase", "forward"),
        }
        for node in graph.nodes
    ]


def shape_text(node: torch.fx.Node) -> str | None:
    """Dtype and shape, as TinyTorch writes them."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


# -- the commands: each returns what --json prints, or None after printing text --------------------


def diagnose(request: dict[str, Any]) -> Any:
    example = load(request)
    found = fx.diagnose(example.model, example.inputs)
    table = fx.compare_tracers(example.model, example.inputs) if request["compare"] else None
    if request["json"]:
        return {
            "diagnosis": found.to_dict(), "comparison": table.to_dict() if table else None
        }  # fmt: skip
    print(found if table is None else f"{found}\n\n{table}")
    return None


def trace(request: dict[str, Any]) -> Any:
    graph = captured_graph(request)
    if request["json"]:
        return describe(graph)
    for node in graph.nodes:
        shape, phase = shape_text(node), node.meta.get("phase", "forward")
        args = ", ".join(map(str, map_arg(node.args, lambda n: f"%{n.name}", torch.fx.Node)))
        kind = "" if node.op == "call_function" else f"{node.op} "
        value = f"%{node.name} : {shape}" if shape else f"%{node.name}"
        remark = "" if phase == "forward" else f"  # {phase}"
        print(f"{value} = {kind}{target_name(node.target)}({args}){remark}")
    return None


def draw(request: dict[str, Any]) -> Any:
    graph = captured_graph(request)
    for node in graph.nodes:
        if (text := shape_text(node)) is not None:
            node.meta["tensor_meta"] = text
    draw_graph(graph, request["picture"])  # type: ignore[arg-type]  # of torch.fx, in one language
    print(f"wrote {request['picture']}: {len(graph.nodes)} nodes")
    return None


def optimize(request: dict[str, Any]) -> Any:
    torch.set_num_threads(request["threads"])
    example = load(request)
    model = example.model.train(request["train"])
    optimizer = fx.GraphOptimizer(
        model, example.inputs, passes_of(request["passes"], ForwardSemantics(not request["train"])),
        device=request["device"],
    )  # fmt: skip
    optimizer.optimize()
    report, comparison = optimizer.report(), optimizer.benchmark()
    if request["json"]:
        return {"report": report.to_dict(), "comparison": comparison.to_dict()}
    print(f"{report}\n\n{comparison}")
    return None


def profile(request: dict[str, Any]) -> Any:
    example = load(request)
    step = _step(example, request["optimizer"])
    found = fx.GraphProfiler(step, title=f"{request['model']}, {request['optimizer']}").run()
    if request["report"]:
        found.write(request["report"])
    if request["json"]:
        return found.to_dict()
    print(found.table(request["limit"]))
    return None


def checkpoint(request: dict[str, Any]) -> Any:
    budget = parse_budget(request["budget"])  # before the model is built
    example = load(request)
    model = fx.checkpoint(example.model, example.batch, budget)
    plan = model.compiled(example.batch)
    if request["json"]:
        return plan.to_dict()
    print(plan)
    return None


def compile_(request: dict[str, Any]) -> Any:
    import tinytorch

    known = torch._dynamo.list_backends(None)
    if request["backend"] not in known:
        raise RequestError(unknown("backend of torch.compile", request["backend"], known))
    torch.set_num_threads(request["threads"])
    tinytorch.set_num_threads(request["threads"])
    example = load(request)
    train = request["train"]
    model = example.model.train(train)
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
    if request["json"]:
        return {
            "first_s": first, "eager_s": timings["eager"].median,
            "compiled_s": timings["compiled"].median, "ratio": speed, "report": report,
        }  # fmt: skip
    print(report)
    later = format_seconds(timings["compiled"].median)
    print(f"first call {format_seconds(first)}, later {later}; eager / compiled {speed:.2f}")
    return None


COMMANDS = {
    "diagnose": diagnose, "trace": trace, "draw": draw, "optimize": optimize, "profile": profile,
    "checkpoint": checkpoint, "compile": compile_,
}  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of PyTorch's own parts among each other
    wanted = json.loads(sys.argv[1])
    sys.exit(answer(lambda: COMMANDS[wanted["command"]](wanted)))
