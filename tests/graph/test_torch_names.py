"""Graph and Node have torch.fx's names, so that a pass can be written once for both."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tinytorch.graph import Graph, Node
from tinytorch.graph.interpret import Interpreter
from tinytorch.graph.ir import OPCODES

fx = pytest.importorskip("torch.fx")


def public(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(Graph, fx.Graph), (Node, fx.Node), (Interpreter, fx.Interpreter)]
)
def test_methods_are_those_of_torch(ours: type, theirs: type):
    example = fx.Graph().placeholder("x") if theirs is fx.Node else None
    for name in public(ours):
        assert hasattr(theirs, name) or hasattr(example, name), f"torch.fx has no {name}"
        method = getattr(ours, name)
        if not inspect.isfunction(method):
            continue
        own, other = parameters(method), parameters(getattr(theirs, name))
        optional = [p for p in other if p not in own]
        assert [p for p in other if p in own] == own, f"{name}({own}) but torch has {other}"
        # what we leave out torch does not need; the default of default_value is "empty" itself
        for parameter in set(optional) - {"default_value"}:
            kind = inspect.signature(getattr(theirs, name)).parameters[parameter]
            variadic = kind.kind in (kind.VAR_POSITIONAL, kind.VAR_KEYWORD)
            assert variadic or kind.default is not kind.empty, f"{name} needs {parameter}"


def test_opcodes_are_those_of_torch():
    for op in OPCODES:
        fx.Graph().create_node(op, len if op == "call_function" else "x", ())
