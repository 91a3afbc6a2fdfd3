"""Every way to break a graph, and what lint says to it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinytorch import ops
from tinytorch.dtypes import float32, tensor_meta
from tinytorch.graph import Graph, GraphError, Node, parse_graph

TEXT = """
    %x : float32[2, 3] = placeholder[x]
    %c : float32[3] = get_attr[c]
    %mul : float32[2, 3] = mul(%x, %c)
    %exp : float32[2, 3] = exp(%mul)
    return %exp
"""


def whole() -> tuple[Graph, dict[str, Node]]:
    graph = parse_graph(TEXT, {"c": np.zeros(3, np.float32)})
    return graph, {n.name: n for n in graph.nodes}


def test_a_whole_graph_passes():
    whole()[0].lint()


def _early(graph: Graph, n: dict[str, Node]) -> None:
    n["mul"].prepend(n["exp"])


def _cycle(graph: Graph, n: dict[str, Node]) -> None:
    n["mul"].args = (n["x"], n["exp"])


def _erased(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].users.clear()
    graph.erase_node(n["exp"])


def _foreign(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"]._args = (whole()[1]["mul"],)
    n["exp"]._inputs = {n["exp"]._args[0]: None}


def _stranger(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].graph = Graph()


def _missing_user(graph: Graph, n: dict[str, Node]) -> None:
    del n["mul"].users[n["exp"]]


def _wrong_user(graph: Graph, n: dict[str, Node]) -> None:
    n["x"].users[n["exp"]] = None


def _shape(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].meta["tensor_meta"] = tensor_meta((3, 2), float32)


def _mismatch(graph: Graph, n: dict[str, Node]) -> None:
    n["x"].meta["tensor_meta"] = tensor_meta((2, 4), float32)


def _two_outputs(graph: Graph, n: dict[str, Node]) -> None:
    graph.output(n["x"])


def _no_output(graph: Graph, n: dict[str, Node]) -> None:
    graph.erase_node(n["output"])


def _unknown_op(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].target = "exp"


def _unknown_opcode(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].op = "call_method"


def _no_constant(graph: Graph, n: dict[str, Node]) -> None:
    graph.constants.clear()


def _same_name(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].name = "mul"


def _arity(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].args = (n["mul"], n["x"])


def _params(graph: Graph, n: dict[str, Node]) -> None:
    n["exp"].target = ops.sum


@pytest.mark.parametrize(
    ("breaking", "message"),
    [
        (_early, "uses mul, which is defined only later; move it up with prepend"),
        (_cycle, "uses exp, which depends on mul itself: a cycle"),
        (_erased, "uses exp, which has been erased"),
        (_foreign, "uses mul, a node of another graph; copy it with node_copy"),
        (_stranger, "node exp is in this graph but belongs to another"),
        (_missing_user, "uses mul, but is not among its users: edit args, not _args"),
        (_wrong_user, "node x lists exp as a user, which does not use it"),
        (_shape, r"`%exp : float32\[3, 2\] = exp\(%mul\)` says float32\[3, 2\], but .* \[2, 3\]"),
        (_mismatch, "cannot run: mul: shapes .* do not broadcast"),
        (_two_outputs, "node output is an output but not the last node"),
        (_no_output, "the graph has no output"),
        (_unknown_op, "node exp: 'exp' is no op; the target must be an Op"),
        (_unknown_opcode, "node exp has opcode 'call_method'; there are placeholder"),
        (_no_constant, "node c: there is no constant 'c'; the graph has none"),
        (_same_name, "two nodes are called 'mul'"),
        (_arity, "cannot run: "),
        (_params, "cannot run: "),
    ],
    ids=lambda value: getattr(value, "__name__", "")[1:],
)
def test_lint_says_what_is_wrong(breaking: Callable[[Graph, dict[str, Node]], None], message: str):
    graph, nodes = whole()
    breaking(graph, nodes)
    with pytest.raises(GraphError, match=message.replace(r" \[2, 3\]", r"float32\[2, 3\]")):
        graph.lint()
