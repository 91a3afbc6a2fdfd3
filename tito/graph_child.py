"""What `tito graph` runs in a process of its own: it imports the user's file.

The one argument is a JSON object: the command, the file, the name in it, and options.
"""

from __future__ import annotations

import json
import re
import sys
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
from tinytorch.graph.draw import draw as draw_graph
from tinytorch.graph.ir import Graph, map_arg, target_name
from tinytorch.graph.memory import plot_memory, timeline
from tinytorch.graph.pytree import tree_flatten
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.graph.text import format_table
from tinytorch.tensor import Tensor
from tito.child import RequestError, answer, attribute, passes_of

WARM_UP_RUNS = 3


def make_inputs(module: Any, wanted: list[str] | None) -> tuple[Any, ...]:
    """The arguments: as `--input` says, or from the file's `example_inputs()`."""
    if wanted is not None:
        return tuple(make_input(text, seed) for seed, text in enumerate(wanted))
    if not hasattr(module, "example_inputs"):
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


# -- the commands ----------------------------------------------------------------------------------


def show(traced: TracedFunction, arguments: Any, request: dict[str, Any]) -> Any:
    if request["json"]:
        return describe(traced.graph)
    print(format_table(traced.graph) if request["table"] else traced.graph)
    return None


def describe(graph: Graph) -> list[dict[str, Any]]:
    """The nodes in words that JSON has."""
    nodes = []
    for node in graph.nodes:
        meta = node.meta.get("tensor_meta")
        nodes.append(
            {
                "name": node.name,
                "op": node.op,
                "target": target_name(node.target),
                "args": str(map_arg(node.args, lambda n: n.name)),
                "kwargs": {key: str(value) for key, value in node.kwargs.items()},
                "meta": None if meta is None else str(meta),
                "phase": node.meta.get("phase", "forward"),
                "line": node.stack_trace,
            }
        )
    return nodes


def run(traced: TracedFunction, arguments: Any, request: dict[str, Any]) -> Any:
    if request["reference"]:
        runner: Interpreter = BackendChecker(traced.graph, request["backend"], request["reference"])
    else:
        runner = (NanFinder if request["find_nan"] else Interpreter)(traced.graph)
    with tinytorch.using_backend(request["backend"]):
        results = runner.run(*current_inputs(traced, arguments))
    if request["json"]:
        return [{"meta": str(r.meta), "values": r.detach().numpy().tolist()} for r in results]
    for i, result in enumerate(results):
        print(f"result {i}: {result.meta}\n{result.detach()}")
    if request["reference"]:
        print(f"every node agrees on {request['backend']} and {request['reference']}")
    return None


def optimize(traced: TracedFunction, arguments: Any, request: dict[str, Any]) -> Any:
    manager = PassManager(passes_of(request["passes"], TINYTORCH) or (), rounds=request["rounds"])
    graph, report = manager.run(traced.graph)
    if request["json"]:
        return {
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
        }  # fmt: skip
    if request["diff"]:
        for result in report.results:
            if result.changed or result.error:
                print(f"{result}\n{result.diff()}\n")
    else:
        print(report)
    print(graph)
    return None


def profile(traced: TracedFunction, arguments: Any, request: dict[str, Any]) -> Any:
    profiler = Profiler(traced.graph)
    with tinytorch.using_backend(request["backend"]):
        inputs = current_inputs(traced, arguments)
        for _ in range(WARM_UP_RUNS):
            profiler.run(*inputs)
    if request["plot"]:
        plot_memory({request["name"]: timeline(traced.graph)}, request["plot"])
    if request["json"]:
        return [
            {
                "node": p.node.name, "seconds": p.seconds, "flops": p.flops, "bytes": p.bytes,
                "live_bytes": p.live,
            }
            for p in profiler.profiles
        ]  # fmt: skip
    print(profiler.table(request["limit"]))
    total = sum(p.seconds for p in profiler.profiles)
    print(f"all {len(profiler.profiles)} nodes: {total * 1e6:.1f} us\n{timeline(traced.graph)}")
    return None


def draw(traced: TracedFunction, arguments: Any, request: dict[str, Any]) -> Any:
    seconds = None
    if request["by"] == "time":
        profiler = Profiler(traced.graph)
        with tinytorch.using_backend(request["backend"]):
            inputs = current_inputs(traced, arguments)
            for _ in range(WARM_UP_RUNS):
                profiler.run(*inputs)
        seconds = {p.node: p.seconds for p in profiler.profiles}
    draw_graph(traced.graph, request["picture"], seconds)
    print(f"wrote {request['picture']}: {len(traced.graph.nodes)} nodes")
    return None


COMMANDS = {f.__name__: f for f in (show, run, optimize, profile, draw)}


def run_command(request: dict[str, Any]) -> Any:
    """Trace what is asked for, and do with it what is asked."""
    function, module = attribute(request["file"], request["name"])
    arguments = make_inputs(module, request["inputs"])
    traced = trace(function, *arguments, decompose=request.get("decompose", True))
    return COMMANDS[request["command"]](traced, arguments, request)


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    sys.exit(answer(lambda: run_command(wanted), FloatingPointError))
