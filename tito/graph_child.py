"""What `tito graph` runs in a process of its own: it imports the user's file.

The one argument is a JSON object: the command, the file, the name in it, and options.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tinytorch
from tinytorch.dtypes import as_dtype
from tinytorch.graph import (
    BackendChecker,
    Interpreter,
    NanFinder,
    PassManager,
    Profiler,
    TracedFunction,
    trace,
)
from tinytorch.graph.memory import plot_memory, timeline
from tinytorch.graph.pytree import tree_flatten
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.graph.text import format_table
from tinytorch.tensor import Tensor
from tito.child import Answer, RequestError, attribute, describe, diffs, drawn, passes_of, serve

WARM_UP_RUNS = 3


def make_inputs(function: Any, module: Any, wanted: list[str] | None) -> tuple[Any, ...]:
    """The arguments: as `--input` says, or from the file's `example_inputs()`."""
    if wanted is not None:
        return tuple(make_input(text, seed) for seed, text in enumerate(wanted))
    if not hasattr(module, "example_inputs"):
        if not inspect.signature(function).parameters:
            return ()
        raise RequestError(
            "which arguments? Give the file a function example_inputs() that returns them, or "
            "name each: --input 'float32[32,784]' --input 'int64[32]<10'"
        )
    inputs = module.example_inputs()
    return inputs if isinstance(inputs, tuple) else (inputs,)


def make_input(text: str, seed: int) -> Tensor:
    """A tensor by its dtype and shape: normal floats, or integers from 0 to below a limit."""
    match = re.fullmatch(r"(\w+)\[([\d,\s]*)\](?:<(\d+))?", text.strip())
    if match is None:
        raise RequestError(f"{text!r} is not a dtype and a shape, such as 'float32[32,784]'")
    dtype = as_dtype(match[1])
    if match[3] and (dtype.is_floating_point or not int(match[3])):
        raise RequestError(f"{text!r}: the limit is for integers, and above 0")
    shape = tuple(int(n) for n in match[2].replace(" ", "").split(",") if n)
    rng = np.random.default_rng(seed)
    if dtype.is_floating_point:
        return tinytorch.tensor(rng.standard_normal(shape).astype(dtype.dtype))
    below = int(match[3]) if match[3] else 2
    return tinytorch.tensor(rng.integers(0, below, shape).astype(dtype.dtype))


def current_inputs(traced: TracedFunction, arguments: tuple[Any, ...]) -> list[Any]:
    """A value for each placeholder: the arguments, and state as it is now."""
    leaves = tree_flatten((arguments, {}))[0]
    return [binding.read(leaves) for binding in traced.signature.inputs]


def traced_call(request: dict[str, Any]) -> tuple[TracedFunction, tuple[Any, ...]]:
    """What is asked for, traced, and its arguments."""
    file, name = request["file"], request["name"]
    function, module = attribute(file, name)
    if not callable(function):
        kind = type(function).__name__
        raise RequestError(f"{name} of {file} is no function or Module, but of type {kind}")
    arguments = make_inputs(function, module, request["inputs"])
    parameters = inspect.signature(getattr(function, "forward", function))
    try:
        parameters.bind(*arguments)
    except TypeError as error:
        raise RequestError(
            f"{name}{parameters} does not take {len(arguments)} arguments: {error}"
        ) from error
    return trace(function, *arguments, decompose=request.get("decompose", True)), arguments


def profiled(request: dict[str, Any]) -> tuple[TracedFunction, Profiler]:
    """What is asked for, and its times, on the backend that is asked for."""
    traced, arguments = traced_call(request)
    profiler = Profiler(traced.graph)
    with tinytorch.using_backend(request["backend"]):
        inputs = current_inputs(traced, arguments)
        for _ in range(WARM_UP_RUNS):
            profiler.run(*inputs)
    return traced, profiler


# -- the commands ----------------------------------------------------------------------------------


def show(request: dict[str, Any]) -> Answer:
    graph = traced_call(request)[0].graph
    return Answer(
        text=lambda: format_table(graph) if request["table"] else str(graph),
        value=lambda: describe(graph),
    )


def run(request: dict[str, Any]) -> Answer:
    traced, arguments = traced_call(request)
    if request["reference"]:
        runner: Interpreter = BackendChecker(traced.graph, request["backend"], request["reference"])
    else:
        runner = (NanFinder if request["find_nan"] else Interpreter)(traced.graph)
    with tinytorch.using_backend(request["backend"]):
        results = runner.run(*current_inputs(traced, arguments))

    def text() -> str:
        lines = [f"result {i}: {r.meta}\n{r.detach()}" for i, r in enumerate(results)]
        if request["reference"]:
            lines.append(f"every node agrees on {request['backend']} and {request['reference']}")
        return "\n".join(lines)

    return Answer(
        text=text,
        value=lambda: [
            {"meta": str(r.meta), "values": r.detach().numpy().tolist()} for r in results
        ],
    )


def optimize(request: dict[str, Any]) -> Answer:
    traced, _ = traced_call(request)
    manager = PassManager(passes_of(request["passes"], TINYTORCH) or (), rounds=request["rounds"])
    graph, report = manager.run(traced.graph)
    return Answer(
        text=lambda: f"{diffs(report.results) if request['diff'] else report}\n{graph}",
        value=lambda: {
            "passes": [
                {
                    "name": r.name, "changed": r.changed, "error": r.error, "seconds": r.seconds,
                    "diff": r.diff() if request["diff"] else None,
                }
                for r in report.results
            ],
            "nodes_before": len(traced.graph.nodes),
            "nodes_after": len(graph.nodes),
            "graph": str(graph),
        },
    )  # fmt: skip


def profile(request: dict[str, Any]) -> Answer:
    traced, profiler = profiled(request)
    rows = [
        {
            "node": p.node.name, "seconds": p.seconds, "flops": p.flops, "bytes": p.bytes,
            "live_bytes": p.live,
        }
        for p in profiler.profiles
    ]  # fmt: skip
    if request["report"]:
        path = Path(request["report"])
        if path.suffix == ".json":
            path.write_text(json.dumps(rows))
        else:
            plot_memory({request["name"]: timeline(traced.graph)}, path)
    total = sum(p.seconds for p in profiler.profiles) * 1e6
    return Answer(
        text=lambda: (
            f"{profiler.table(request['limit'])}\nall {len(rows)} nodes: {total:.1f} us\n"
            f"{timeline(traced.graph)}"
        ),
        value=lambda: rows,
    )


def draw(request: dict[str, Any]) -> Answer:
    seconds = None
    if request["by"] == "time":
        traced, profiler = profiled(request)
        seconds = {p.node: p.seconds for p in profiler.profiles}
    else:
        traced, _ = traced_call(request)
    return drawn(traced.graph, request["picture"], seconds)


COMMANDS = {f.__name__: f for f in (show, run, optimize, profile, draw)}

if __name__ == "__main__":
    sys.exit(serve(COMMANDS, FloatingPointError))
