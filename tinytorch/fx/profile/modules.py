"""To which module of a model each node of its graph belongs.

A captured graph does not record modules, but its parameters have names. What reads a parameter
belongs to the parameter's module. What runs between two such nodes belongs to the innermost module
that both are in: modules call each other, so nothing else can have run in between.
"""

from __future__ import annotations

import torch.fx
from torch.fx import Node

from tinytorch.fx.profile.rows import PARAMETER
from tinytorch.graph.semantics import Semantics


def modules_of(graph: torch.fx.Graph, semantics: Semantics) -> dict[Node, str]:
    """The path of each node's module, as "encoder.layer.0"; "" is the model itself.

    >>> from tinytorch.fx.profile.modules import common
    >>> common("layer.0.attention.value", "layer.0.attention.output")
    'layer.0.attention'
    """
    known: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and node.meta.get("role") == PARAMETER:
            known[node] = str(node.meta.get("name", node.name)).rpartition(".")[0]
    through = dict(known)  # parameters, and views of them
    for node in graph.nodes:
        owners = [through[a] for a in node.all_input_nodes if a in through]
        if node.op != "call_function" or not owners:
            continue
        path = owners[0]
        for other in owners[1:]:
            path = common(path, other)
        known[node] = path
        if semantics.aliases(node):
            through[node] = path
    return known | _between(graph, known)


def _between(graph: torch.fx.Graph, known: dict[Node, str]) -> dict[Node, str]:
    """The other nodes, by their neighbours of the same phase."""
    phases: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            phases.setdefault(str(node.meta.get("phase", "forward")), []).append(node)
    found: dict[Node, str] = {}
    for nodes in phases.values():
        before, following = "", dict[Node, str]()
        behind = ""
        for node in reversed(nodes):
            behind = following[node] = known.get(node, behind)
        for node in nodes:
            before = known.get(node, before)
            found[node] = known.get(node, common(before, following[node]))
    return found


def common(a: str, b: str) -> str:
    """The path of the innermost module that holds both."""
    shared = []
    for x, y in zip(a.split("."), b.split("."), strict=False):
        if x != y:
            break
        shared.append(x)
    return ".".join(shared)
