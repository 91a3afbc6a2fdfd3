"""Fused groups: a loop for elementwise ops, or a contraction with what is done to its result.

What follows a contraction is its epilogue where it can be (a bias, relu, a step of gradient
descent) and otherwise a loop over the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tinytorch.graph.compiler.native import products
from tinytorch.graph.compiler.native.code import Code, Unsupported
from tinytorch.graph.compiler.native.images import conv2d, conv2d_input, conv2d_weight
from tinytorch.graph.compiler.native.loop_text import emit
from tinytorch.graph.compiler.native.loops import Loop, Operand
from tinytorch.graph.compiler.native.products import PLAIN, Epilogue
from tinytorch.graph.compiler.native.strides import disjoint_extents
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.fused import GraphDecomposition
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.layout import StridedView
from tinytorch.op import Op

PRODUCTS: dict[str, Callable[..., None]] = {
    "linear": products.linear,
    "linear_weight": products.linear_weight,
    "matmul": products.matmul,
}
CONVOLUTIONS: dict[str, Callable[..., None]] = {
    "conv2d": conv2d, "conv2d_input": conv2d_input, "conv2d_weight": conv2d_weight,
}  # fmt: skip
HEADS = frozenset((*PRODUCTS, *CONVOLUTIONS))


def body_of(op: Op) -> Graph | None:
    """The graph of a fused group."""
    decomposition = op.decomposition
    return decomposition.graph if isinstance(decomposition, GraphDecomposition) else None


def head_of(body: Graph) -> Node | None:
    """The contraction of a group, if it has one."""
    nodes = [n for n in body.find_nodes(op="call_function") if n.target.name in HEADS]
    return nodes[0] if nodes else None


def add_to_loop(loop: Loop, nodes: list[Node], values: dict[Node, Operand]) -> None:
    """Instructions for elementwise nodes; `values` has what they use, and gets what they give."""
    for node in nodes:
        if node.op == "get_attr":
            raise Unsupported("a constant inside of a fused group")
        operands = [values[a] if isinstance(a, Node) else a for a in node.args]
        dtype = node.meta["tensor_meta"].dtype
        if node.target.name == "cast":
            values[node] = loop.convert(operands[0], dtype)
        elif node.target.scalar is None or node.target.kind != "elementwise":
            raise Unsupported(f"{node.target.name} in a fused group")
        else:
            values[node] = loop.op(node.target.name, node.target.scalar, operands, dtype)


def group_loop(step: Step, body: Graph) -> Loop:
    """A group of elementwise ops as a loop."""
    loop = Loop(step.output.shape)
    values: dict[Node, Any] = dict(zip(body.find_nodes(op="placeholder"), step.inputs, strict=True))
    add_to_loop(loop, body.find_nodes(op="call_function"), values)
    loop.store(values[body.output_node().args[0]], step.output)
    return loop


def with_head(code: Code, step: Step, body: Graph, head: Node) -> None:
    """A contraction, and elementwise ops on its result."""
    values: dict[Node, Any] = dict(zip(body.find_nodes(op="placeholder"), step.inputs, strict=True))
    inputs = [values[a] for a in head.args]
    rest = [n for n in body.find_nodes(op="call_function") if n is not head]
    name, last, epilogue = head.target.name, head, PLAIN
    if name in PRODUCTS:
        epilogue, last, rest = _absorbed(head, rest, values, step.output)
    # the product must not overwrite what is read after it, and has a type of its own
    read = [*inputs, *(values[a] for n in rest for a in n.all_input_nodes if a in values)]
    target = step.output
    dtype = head.meta["tensor_meta"].dtype
    if epilogue.start is not None and epilogue.start != target:
        read.append(epilogue.start)
    if dtype is not target.dtype or not all(disjoint_extents(target, view) for view in read):
        target = code.temporary(target.shape, dtype)
    if name in PRODUCTS:
        PRODUCTS[name](code, inputs, target, epilogue)
    else:
        convolution(code, step, body, head, target)
    loop = Loop(step.output.shape)
    values[last] = target
    add_to_loop(loop, rest, values)
    if rest or target is not step.output:
        loop.store(values[body.output_node().args[0]], step.output)
    emit(code, loop)


def convolution(code: Code, step: Step, body: Graph, head: Node, target: StridedView) -> None:
    """The convolution that a group begins with, and nothing of what is done to it."""
    values = dict(zip(body.find_nodes(op="placeholder"), step.inputs, strict=True))
    CONVOLUTIONS[head.target.name](code, [values[a] for a in head.args], target, head.kwargs)


def _absorbed(
    head: Node, rest: list[Node], values: dict[Node, Any], out: StridedView
) -> tuple[Epilogue, Node, list[Node]]:
    """What a product does itself of the nodes after it, the last of those, and what is left."""
    descent = _descent(head, rest, values, out)
    if descent is not None:
        return descent, rest[-1], []
    epilogue, absorbed = PLAIN, [head]
    is_matrix = head.target.name != "matmul" or len(out.shape) == 2
    has_bias = head.target.name == "linear" and len(head.args) == 3
    dtype = head.meta["tensor_meta"].dtype
    user = _only_user(head, rest)
    if user is not None and user.target.name == "add" and is_matrix and not has_bias:
        other = user.args[1] if user.args[0] is head else user.args[0]
        bias = values.get(other) if isinstance(other, Node) else None
        if isinstance(bias, StridedView) and bias.shape == out.shape[-1:] and bias.dtype is dtype:
            epilogue = replace(epilogue, start=bias)
            absorbed.append(user)
            user = _only_user(user, rest)
    if user is not None and user.target.name == "relu" and is_matrix:
        epilogue = replace(epilogue, relu=True)
        absorbed.append(user)
    return epilogue, absorbed[-1], [n for n in rest if n not in absorbed]


def _only_user(node: Node, rest: list[Node]) -> Node | None:
    """The one node that uses the value, and uses it once; None if there is no such node."""
    users = [n for n in rest for used in n.args if used is node]
    return users[0] if len(users) == 1 else None


def _descent(
    head: Node, rest: list[Node], values: dict[Node, Any], out: StridedView
) -> Epilogue | None:
    """P - product * factor, with a number or 0-d factor, as one product that starts from P."""
    if [n.target.name for n in rest] != ["mul", "sub"] or len(out.shape) != 2:
        return None
    scaled, difference = rest
    factors = [a for a in scaled.args if a is not head]
    if len(factors) != 1 or difference.args[1] is not scaled:
        return None
    start = values.get(difference.args[0]) if isinstance(difference.args[0], Node) else None
    factor = values[factors[0]] if isinstance(factors[0], Node) else factors[0]
    fits = (
        isinstance(start, StridedView)
        and (start.shape, start.dtype) == (out.shape, out.dtype)
        and start.is_contiguous
        and (start == out or disjoint_extents(start, out))
    )
    is_number = not isinstance(factor, StridedView) or (
        factor.shape == () and factor.dtype is out.dtype
    )
    return Epilogue(start=start, factor=factor) if fits and is_number else None
