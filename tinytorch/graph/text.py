"""Graphs as text: one line a node. `parse.py` reads it back.

    graph():
        %x : float32[2, 3] = placeholder[x]
        %c : float32[3] = get_attr[c]
        %mul : float32[2, 3] = mul(%x, %c)
        %sum : float32[] = sum(%mul, dims=(0, 1), keepdim=False)  # backward
        return %sum

Shape and dtype are printed where they are known, the phase where it is not "forward". A fused op is
followed, after the graph, by the graph that it stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinytorch.bench import units
from tinytorch.graph.node import format_argument, target_name
from tinytorch.op import Op

if TYPE_CHECKING:
    from tinytorch.graph.ir import Graph

INDENT = "    "
COLUMNS = ("opcode", "name", "target", "args", "kwargs")


def format_graph(graph: Graph, title: str = "graph()") -> str:
    """The whole graph, and then those of its fused ops."""
    lines = [f"{title}:", *(INDENT + node.format_node() for node in graph.nodes)]
    targets = {n.target.name: n.target for n in graph.nodes if isinstance(n.target, Op)}
    bodies = {name: getattr(op.decomposition, "graph", None) for name, op in targets.items()}
    lines += [format_graph(body, name) for name, body in bodies.items() if body is not None]
    return "\n".join(lines)


def format_table(graph: Graph) -> str:
    """The nodes as a table: opcode, name, target, args, kwargs."""
    rows = [
        (n.op, n.name, target_name(n.target), *map(format_argument, (tuple(n.args), n.kwargs)))
        for n in graph.nodes
    ]
    return units.format_table(COLUMNS, rows, left=len(COLUMNS))
