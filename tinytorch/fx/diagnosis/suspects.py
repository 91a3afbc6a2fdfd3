"""Lines of a model's source that tracers get wrong without a word."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tinytorch.fx.diagnosis.reasons import Line, Reason

#: By kind: what happens, and what to do.
KINDS: dict[str, tuple[str, str]] = {
    "clock": (
        "the clock is read: a graph keeps the time of the trace",
        "read it outside, and pass the value in as a tensor",
    ),
    "random": (
        "random numbers come from Python or NumPy: a graph keeps those of the trace",
        "draw them with torch (torch.rand), whose calls are recorded",
    ),
    "state": (
        "an attribute or a container is changed by the call: a graph keeps what it was",
        "keep state in a buffer (register_buffer) and change it in place, or pass it in and out",
    ),
    "global": (
        "something outside of the model is read that can change: a graph keeps what it was",
        "pass it in as a tensor, or make it a buffer",
    ),
    "no_grad": (
        "gradients are switched off for a part: a graph of ATen ops does not see that",
        "use capture_joint or capture_step, which trace the backward too, or torch.compile",
    ),
    "function": (
        "a custom autograd.Function has a gradient of its own: a graph of its forward loses it",
        "use capture_joint or capture_step, which trace the backward too",
    ),
    "numpy": (
        "values leave torch for NumPy: a graph keeps those of the trace",
        "write it with torch functions",
    ),
    "value": (
        "a tensor becomes a Python number: a graph keeps the number of the trace",
        "stay with tensors (torch.where, tensor arithmetic)",
    ),
    "branch": (
        "Python decides what to compute: a graph keeps the way that the trace went",
        "use torch.where or torch.cond, or take the decision out of the model",
    ),
    "shape": (
        "a size becomes a Python number: a graph keeps the size of the trace",
        "leave sizes open (dynamic_dims=(0,)), or write shapes with -1",
    ),
    "hook": (
        "hooks run with the model: a graph keeps what they did in the trace, or loses them",
        "do in forward what the hook does",
    ),
    "in_place": (
        "something is written in place, perhaps an input or a buffer",
        "write to a copy, and return it",
    ),
}
CLOCKS = {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "now", "today"}
CHANGERS = {"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add"}
NUMBERS = {"item", "tolist", "__bool__"}


def suspects(model: nn.Module) -> dict[str, list[Line]]:
    """The lines of the model's own classes that may be traced wrong, by kind."""
    found: dict[str, list[Line]] = {}
    for kind in dict.fromkeys(type(m) for m in model.modules()):
        if not kind.__module__.startswith("torch."):
            for name, line in _in_function(inspect.unwrap(kind.forward)):
                found.setdefault(name, []).append(line)
    for name, module in model.named_modules():
        hooks: tuple[Any, ...] = (module._forward_hooks, module._forward_pre_hooks,
                                  module._backward_hooks)  # fmt: skip
        for hook in (h for each in hooks for h in each.values()):
            code = getattr(hook, "__code__", None)
            text = f"a hook of module {name or type(module).__name__!r}"
            line = Line(code.co_filename, code.co_firstlineno, text) if code else Line(text, 0, "")
            found.setdefault("hook", []).append(line)
    return found


def first_reason(found: dict[str, list[Line]], order: tuple[str, ...]) -> Reason | None:
    """The reason for the first kind in this order that was found, with its first line."""
    for kind in order:
        if kind in found:
            text, fix = KINDS[kind]
            return Reason(text, fix, found[kind][0])
    return None


def _in_function(function: Any) -> Iterator[tuple[str, Line]]:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # written in a shell, or not in Python
        return
    file = inspect.getsourcefile(function) or "?"
    outside = inspect.getclosurevars(function)
    names = {**outside.globals, **outside.nonlocals}
    for node in ast.walk(tree):
        for kind in _kinds(node, names):
            number = getattr(node, "lineno", 1)
            yield kind, Line(file, first + number - 1, lines[number - 1].strip())


def _kinds(node: ast.AST, names: dict[str, Any]) -> Iterator[str]:
    """What is suspicious about one node of the syntax tree."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)):
            yield from _called(owner, attr, names)
        case ast.Call(func=ast.Name(id="int" | "float" | "bool")):
            yield "value"
        case ast.Call(func=ast.Name(id="len" | "range")):
            yield "shape"
        case ast.Call(func=ast.Name(id=name)) if name in CLOCKS:
            yield "clock"
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"))]):
            yield "state"
        case ast.AugAssign(target=ast.Attribute(value=ast.Name(id="self"))):
            yield "state"
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(value=ast.Name(id="self")))]):
            yield "state"
        case ast.Assign(targets=[ast.Subscript()]):
            yield "in_place"
        case (
            ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test)
        ):
            if not _is_about_python(test):
                yield "branch"
        case ast.Attribute(attr="shape"):
            yield "shape"
        case ast.Attribute(attr="data"):
            yield "no_grad"
        case ast.Name(id=name) if isinstance(names.get(name), (list, dict, set, int, float)):
            yield "global"


def _is_about_python(test: ast.expr) -> bool:
    """What a test looks at does not depend on tensors: types, None, the mode, membership."""
    match test:
        case ast.Call(func=ast.Name(id="isinstance" | "hasattr" | "callable")):
            return True
        case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            return True
        case ast.Attribute(value=ast.Name(id="self")) | ast.Constant():
            return True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_about_python(operand)
        case ast.BoolOp(values=values):
            return all(map(_is_about_python, values))
    return False


def _called(owner: ast.expr, attr: str, names: dict[str, Any]) -> Iterator[str]:
    text = ast.unparse(owner)
    root = names.get(text.split(".")[0])
    module = getattr(root, "__name__", "")
    if attr in CLOCKS and module in ("time", "datetime", "date"):
        yield "clock"
    if module == "random" or (module == "numpy" and "random" in text):
        yield "random"
    elif module == "numpy" or attr == "numpy":
        yield "numpy"
    if attr in ("no_grad", "inference_mode", "set_grad_enabled", "detach", "detach_"):
        yield "no_grad"
    if attr == "apply" and isinstance(root, type) and issubclass(root, torch.autograd.Function):
        yield "function"
    if attr in CHANGERS and text != "torch":
        yield "global" if isinstance(root, (list, dict, set)) else "state"
    if attr in NUMBERS:
        yield "value"
    if attr == "size":
        yield "shape"
    if attr.endswith("_") and not attr.startswith("_"):
        yield "in_place"
