"""Partition of a joint graph of results and gradients into a forward and a backward."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tinytorch.graph.compiler.lower import is_creation, result_nodes
from tinytorch.graph.ir import Graph, Node
from tinytorch.op import Op


@dataclass
class Parts:
    """The two graphs, and what goes from one to the other.

    Attributes:
        forward: from the inputs to the results, and then the saved values.
        backward: from saved inputs, saved values and gradients of results to gradients of inputs.
        saved_inputs: positions of the inputs that the backward reads as well.
    """

    forward: Graph
    backward: Graph
    saved_inputs: list[int]


def partition(
    graph: Graph, inputs: int, results: int, gradients: Sequence[int], written: Collection[int]
) -> Parts:
    """Divide a joint graph where the forward ends.

    What the results need is forward; all else that the gradients need is backward. Views, constants
    and what is made of nothing are taken again rather than saved.

    Args:
        graph: its first `inputs` placeholders are the function's; its first `results` outputs are
            the function's, the others gradients of inputs.
        gradients: positions of the placeholders that are gradients of results.
        written: positions of inputs that the call overwrites, so that what the backward reads of
            them must be saved.
    """
    placeholders, outputs = graph.find_nodes(op="placeholder"), result_nodes(graph)
    given, first, last = placeholders[:inputs], outputs[:results], outputs[results:]
    forward = _needed_for(first)
    backward = {n for n in _needed_for(last) if n not in forward and n.op != "placeholder"}
    crossing: dict[Node, None] = {}  # what the backward needs of the forward, in order
    used = [a for n in graph.nodes if n in backward for a in n.all_input_nodes] + last
    for node in used:
        while node not in backward and _is_cheap(node):
            backward.add(node)
            if node.all_input_nodes:
                (node,) = node.all_input_nodes
        if node not in backward and (node in forward or node in given):
            crossing[node] = None
    saved_inputs = [i for i, n in enumerate(given) if n in crossing and i not in written]
    as_inputs = [given[i] for i in saved_inputs]
    as_values = [n for n in crossing if n not in set(as_inputs)]
    return Parts(
        forward=_part(graph, given, forward, [*first, *as_values]),
        backward=_part(
            graph, [*as_inputs, *as_values, *(placeholders[i] for i in gradients)], backward, last
        ),
        saved_inputs=saved_inputs,
    )


def _needed_for(nodes: Iterable[Node]) -> set[Node]:
    """The nodes, and all that they are computed from."""
    needed: set[Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def _is_cheap(node: Node) -> bool:
    """It is had again without computing."""
    is_view = isinstance(node.target, Op) and node.target.view
    return is_view or is_creation(node) or node.op == "get_attr"


def _part(graph: Graph, inputs: list[Node], inside: set[Node], outputs: list[Node]) -> Graph:
    """A graph of its own, of some nodes of another."""
    part = Graph()
    part.constants = dict(graph.constants)
    copies: dict[Node, Node] = {}
    for node in inputs:
        target = node.target if node.op == "placeholder" else node.name
        copies[node] = part.create_node("placeholder", target, name=node.name)
        copies[node].meta.update(node.meta)
    for node in graph.nodes:
        if node in inside and node not in copies:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(tuple(copies[n] for n in outputs))
    return part
