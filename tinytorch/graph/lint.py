"""`lint`: every way in which a graph can be broken, each with its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinytorch.dtypes import SCALAR_DTYPES, TensorMeta
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.graph.node import OPCODES, GraphError, Node, nodes_in
from tinytorch.op import Op

if TYPE_CHECKING:
    from tinytorch.graph.ir import Graph


def lint(graph: Graph) -> None:
    """Check order, ownership, users, names, targets, shapes and dtypes.

    Raises:
        GraphError: the first thing that is wrong; the message names the node and its line of text.
    """
    seen: set[Node] = set()
    names: set[str] = set()
    nodes = list(graph.nodes)
    everything = set(nodes)
    for i, node in enumerate(nodes):
        _check_opcode(graph, node, is_last=i == len(nodes) - 1)
        if node.name in names:
            raise GraphError(f"two nodes are called {node.name!r}")
        for used in node.all_input_nodes:
            _check_use(graph, node, used, seen, everything)
        names.add(node.name)
        seen.add(node)
    uses = {node: nodes_in((node.args, node.kwargs)) for node in nodes}
    for node in nodes:
        for user in node.users:
            if user not in everything or node not in uses[user]:
                raise GraphError(f"node {node} lists {user} as a user, which does not use it")
    if not nodes or nodes[-1].op != "output":
        raise GraphError("the graph has no output; finish it with graph.output(result)")
    for node in nodes:
        if node.op == "call_function":
            _check_meta(node)


def _check_opcode(graph: Graph, node: Node, is_last: bool) -> None:
    if node.op not in OPCODES:
        raise GraphError(f"node {node} has opcode {node.op!r}; there are {', '.join(OPCODES)}")
    if node.graph is not graph:
        raise GraphError(f"node {node} is in this graph but belongs to another")
    if node.op == "output" and not is_last:
        raise GraphError(
            f"node {node} is an output but not the last node: a graph has one output, at its end"
        )
    if node.op == "call_function" and not isinstance(node.target, Op) and not callable(node.target):
        raise GraphError(f"node {node}: {node.target!r} is no op; the target must be an Op")
    if node.op == "get_attr" and node.target not in graph.constants:
        raise GraphError(
            f"node {node}: there is no constant {node.target!r}; the graph has "
            f"{', '.join(graph.constants) or 'none'}"
        )


def _check_use(
    graph: Graph, node: Node, used: Node, seen: set[Node], everything: set[Node]
) -> None:
    wrong = None
    if used.graph is not graph:
        wrong = "a node of another graph; copy it with node_copy"
    elif used.erased:
        wrong = "which has been erased"
    elif node not in used.users:
        wrong = "but is not among its users: edit args, not _args"
    elif used not in seen and used in everything and _depends_on(used, node):
        wrong = f"which depends on {node} itself: a cycle"
    elif used not in seen:
        wrong = "which is defined only later; move it up with prepend"
    if wrong is not None:
        raise GraphError(f"`{node.format_node()}` uses {used}, {wrong}")


def _depends_on(node: Node, other: Node) -> bool:
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        if current is other:
            return True
        stack += [n for n in current.all_input_nodes if n not in seen]
        seen.update(current.all_input_nodes)
    return False


def result_meta(node: Node) -> TensorMeta | None:
    """Shape and dtype by the op's rules; None if something about the inputs is not known.

    Raises:
        ShapeError, DTypeError: the inputs do not fit.
    """
    operands = []
    for a in node.args:
        operand = a.meta.get("tensor_meta") if isinstance(a, Node) else type(a)
        if not isinstance(operand, TensorMeta) and operand not in SCALAR_DTYPES:
            return None
        operands.append(operand)
    if not isinstance(node.target, Op):
        return None
    return node.target.plan(operands, node.kwargs).meta


def _check_meta(node: Node) -> None:
    try:
        expected = result_meta(node)
    except (ShapeError, DTypeError, TypeError, KeyError) as error:
        raise GraphError(f"`{node.format_node()}` cannot run: {error}") from None
    known = node.meta.get("tensor_meta")
    if known is not None and expected is not None and known is not expected:
        raise GraphError(f"`{node.format_node()}` says {known}, but the op's rules give {expected}")
