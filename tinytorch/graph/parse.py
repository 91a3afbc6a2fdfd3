"""`parse_graph`: a graph of the text that `print(graph)` writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from tinytorch.dtypes import DTYPES, Array, tensor_meta
from tinytorch.graph.ir import Argument, Graph, GraphError, Node
from tinytorch.op import OPS, Op

NUMBERS = {"inf": float("inf"), "nan": float("nan"), "True": True, "False": False, "None": None}
_LINE = re.compile(r"%(?P<name>\w+)(?: : (?P<meta>\w+\[[^\]]*\]))? = (?P<call>.*)")
_LEAF = re.compile(r"(placeholder|get_attr)\[(.+)\]")


def parse_graph(
    text: str, constants: Mapping[str, Array] | None = None, ops: Mapping[str, Op] | None = None
) -> Graph:
    """The graph of a text as `print(graph)` writes it.

    Args:
        text: without the graphs of fused ops, which follow that of a graph that has some.
        constants: the arrays of its get_attr nodes.
        ops: rows that are not in the op table, such as those of fused ops.

    Raises:
        GraphError: a line cannot be read; the message gives its number and what is wrong.

    >>> graph = parse_graph('''
    ... graph():
    ...     %x : float32[2] = placeholder[x]
    ...     %exp : float32[2] = exp(%x)
    ...     return (%exp, 1)
    ... ''')
    >>> [node.name for node in graph.nodes]
    ['x', 'exp', 'output']
    """
    graph = Graph()
    graph.constants.update(constants or {})
    reader = _Reader(graph, {**OPS, **(ops or {})})
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and line.strip() != "graph():":
            try:
                reader.line(line.strip())
            except (GraphError, SyntaxError, KeyError, ValueError) as error:
                message = f"line {number}, `{line.strip()}`: {error}"
                raise GraphError(message) from None
    return graph


class _Reader:
    """Reads line after line into a graph."""

    def __init__(self, graph: Graph, ops: Mapping[str, Op]) -> None:
        self.graph = graph
        self.ops = ops
        self.nodes: dict[str, Node] = {}

    def line(self, line: str) -> None:
        code, _, phase = line.partition("  # ")
        if code.startswith("return "):
            self.graph.output(self._value(code.removeprefix("return ")))
            return
        match = _LINE.fullmatch(code)
        if match is None:
            raise GraphError("a line is `%name : dtype[shape] = op(...)` or `return ...`")
        node = self._node(match["name"], match["call"])
        if match["meta"]:
            dtype, _, shape = match["meta"].removesuffix("]").partition("[")
            if dtype not in DTYPES:
                raise GraphError(f"there is no dtype {dtype!r}; there are {', '.join(DTYPES)}")
            sizes = tuple(int(n) for n in shape.split(",") if n.strip())
            node.meta["tensor_meta"] = tensor_meta(sizes, DTYPES[dtype])
        if node.op == "call_function":
            node.meta["phase"] = phase or "forward"
        self.nodes[match["name"]] = node

    def _node(self, name: str, call: str) -> Node:
        if name in self.nodes:
            raise GraphError(f"there is a node %{name} already")
        leaf = _LEAF.fullmatch(call)
        if leaf is not None:
            return self.graph.create_node(leaf[1], leaf[2], name=name)
        tree = ast.parse(re.sub(r"%(\w+)", r"NODE_\1", call), mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise GraphError("expected an op and its arguments, as in `add(%a, 1.0)`")
        if tree.func.id not in self.ops:
            more = "; give it as ops={name: op}" if tree.func.id.startswith("fused_") else ""
            raise GraphError(f"there is no op {tree.func.id!r}{more}")
        args = tuple(self._read(a) for a in tree.args)
        kwargs = {str(k.arg): self._read(k.value) for k in tree.keywords}
        op = self.ops[tree.func.id]
        return self.graph.create_node("call_function", op, args, kwargs, name)

    def _value(self, text: str) -> Argument:
        return self._read(ast.parse(re.sub(r"%(\w+)", r"NODE_\1", text), mode="eval").body)

    def _read(self, tree: ast.expr) -> Any:
        match tree:
            case ast.Name(id=name) if name.startswith("NODE_"):
                if name[5:] not in self.nodes:
                    raise GraphError(f"%{name[5:]} is used before it is defined")
                return self.nodes[name[5:]]
            case ast.Name(id=name) if name in DTYPES or name in NUMBERS:
                return DTYPES[name] if name in DTYPES else NUMBERS[name]
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._read(operand)
            case ast.Tuple(elts=elements):
                return tuple(self._read(e) for e in elements)
            case ast.List(elts=elements):
                return [self._read(e) for e in elements]
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {self._read(k): self._read(v) for k, v in pairs if k is not None}
        raise GraphError(f"`{ast.unparse(tree)}` is no argument")
