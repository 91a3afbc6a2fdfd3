"""What the processes have in common in which `tito` imports a file of the user's."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tinytorch.errors import TinyTorchError
from tinytorch.graph.draw import draw
from tinytorch.graph.ir import map_arg, target_name
from tinytorch.graph.passes import OptimizationPass, PassResult
from tinytorch.graph.semantics import AnyGraph, Semantics
from tito import strict_json

USER_ERROR = 1


class RequestError(Exception):
    """Something in the user's request or file that has to be changed; said without a traceback."""


class Answer(NamedTuple):
    """What a command has found, in two forms, of which one is made.

    Attributes:
        text: lines to read.
        value: what --json prints.
        code: the exit code.
    """

    text: Callable[[], str]
    value: Callable[[], Any]
    code: int = 0


def load_file(file: str) -> ModuleType:
    """The module in a Python file of the user's; files beside it can be imported from it.

    Raises:
        RequestError: there is no such file.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise RequestError(f"there is no file {file}")
    sys.path.insert(0, str(path.parent))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def attribute(file: str, name: str) -> tuple[Any, ModuleType]:
    """What has this name in a file of the user's, and the module.

    Raises:
        RequestError: there is nothing; the message says what there is.
    """
    module = load_file(file)
    if not hasattr(module, name):
        known = ", ".join(n for n, v in vars(module).items() if callable(v) and n[0] != "_")
        raise RequestError(f"{file} has no {name!r}; it has {known}")
    return getattr(module, name), module


def describe(graph: AnyGraph, node_type: type | None = None) -> list[dict[str, Any]]:
    """The nodes of a graph in words that JSON has; meta "tensor_meta" is dtype and shape.

    Args:
        node_type: what counts as a node; by default TinyTorch's.
    """

    def names(value: Any) -> Any:
        return map_arg(value, lambda n: n.name, node_type)

    nodes = []
    for node in graph.nodes:
        meta = node.meta.get("tensor_meta")
        nodes.append(
            {
                "name": node.name,
                "op": node.op,
                "target": target_name(node.target),
                "args": str(names(tuple(node.args))),
                "kwargs": {key: str(names(value)) for key, value in node.kwargs.items()},
                "meta": None if meta is None else str(meta),
                "phase": node.meta.get("phase", "forward"),
                "line": node.stack_trace,
            }
        )
    return nodes


def passes_of(names: list[str] | None, semantics: Semantics) -> list[str | OptimizationPass] | None:
    """Passes by name, and those of the user's own files: FILE.py:CLASS.

    Raises:
        RequestError: there is no such file or class, or it is no pass.
    """
    if names is None:
        return None
    found: list[str | OptimizationPass] = []
    for name in names:
        file, _, cls = name.strip().rpartition(":")
        if not file.endswith(".py"):
            found.append(name.strip())
            continue
        made, _ = attribute(file, cls)
        if not (isinstance(made, type) and issubclass(made, OptimizationPass)):
            raise RequestError(
                f"{cls} of {file} is no pass: it must be a class derived from "
                "tinytorch.graph.passes.OptimizationPass"
            )
        found.append(made(semantics))
    return found


def diffs(results: Iterable[PassResult]) -> str:
    """The lines that each pass changed."""
    touched = [r for r in results if r.changed or r.error]
    return "\n".join(f"{r}\n{r.diff()}\n" for r in touched)


def drawn(graph: AnyGraph, picture: str, seconds: Mapping[Any, float] | None = None) -> Answer:
    """Draw a graph, coloured by phase or by time."""
    draw(graph, picture, seconds)  # of torch.fx too: the same language
    nodes = len(graph.nodes)
    return Answer(
        text=lambda: f"wrote {picture}: {nodes} nodes",
        value=lambda: {"picture": picture, "nodes": nodes},
    )


def serve(
    commands: Mapping[str, Callable[[dict[str, Any]], Answer]], *expected: type[Exception]
) -> int:
    """Answer the request that is this process's one argument, as JSON; returns the exit code.

    Args:
        commands: by name; each takes the request.
        expected: errors that, like ours, are said in their own sentence.
    """
    request = json.loads(sys.argv[1])
    try:
        found = commands[request["command"]](request)
        text = strict_json.dumps(found.value()) if request["json"] else found.text()
    except (RequestError, TinyTorchError, KeyError, *expected) as error:
        if request["verbose"]:
            traceback.print_exc()
            print(getattr(error, "output", ""), file=sys.stderr)  # a tracer's own words
        print(f"error: {error.args[0]}", file=sys.stderr)
        return USER_ERROR
    except Exception:  # of the user's own code: they want to see where
        traceback.print_exc()
        return USER_ERROR
    print(text)
    return found.code
