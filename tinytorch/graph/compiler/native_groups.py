"""Fused groups: a loop for elementwise ops, or a contraction with what is done to its result.

What follows a contraction is its epilogue where it can be (a bias, relu, a step of gradient
descent) and otherwise a loop over the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tinytorch.graph.compiler import native_products
from tinytorch.graph.compiler.native_code import Code, Unsupported
from tinytorch.graph.compiler.native_images import conv2d, conv2d_input, conv2d_weight
from tinytorch.graph.compiler.native_loops import Loop, Operand, apart, emit
from tinytorch.graph.compiler.native_products import PLAIN, Epilogue
from tinytorch.graph.compiler.places import Place
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.fused import GraphDecomposition
from tinytorch.graph.ir import Graph, Node
from tinytorch.op import Op

PRODUCTS: dict[str, Callable[..., None]] = {
    "linear": native_products.linear,
    "linear_weight": native_products.linear_weight,
    "matmul": native_products.matmul,
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
    inputs = [values[a] for a in head.all_input_nodes]
    rest = [n for n in body.find_nodes(op="call_function") if n is not head]
    name, last, epilogue = head.target.name, head, PLAIN
    if name in PRODUCTS:
        epilogue, last, rest = _absorbed(head, rest, values, step.output)
    # where the result goes, nothing may stand that is read later
    read = [*inputs, *(values[a] for n in rest for a in n.all_input_nodes if a in values)]
    target = step.output
    if not all(apart(target, place) for place in read):
        target = code.temporary(target.shape, target.dtype)
    if name in PRODUCTS:
        PRODUCTS[name](code, inputs, target, epilogue)
    else:
        CONVOLUTIONS[name](code, inputs, target, head.kwargs)
    loop = Loop(step.output.shape)
    values[last] = target
    add_to_loop(loop, rest, values)
    if rest or target is not step.output:
        loop.store(values[body.output_node().args[0]], step.output)
    emit(code, loop)


def _absorbed(
    head: Node, rest: list[Node], values: dict[Node, Any], out: Place
) -> tuple[Epilogue, Node, list[Node]]:
    """What a product does itself of the nodes after it, the last of those, and what is left."""
    descent = _descent(head, rest, values, out)
    if descent is not None:
        return descent, rest[-1], []
    epilogue, last = PLAIN, head
    is_matrix = head.target.name != "matmul" or len(out.shape) == 2
    has_bias = head.target.name == "linear" and len(head.args) == 3
    if rest and is_matrix and not has_bias and rest[0].target.name == "add":
        (other,) = [a for a in rest[0].args if a is not last] or [None]
        bias = values.get(other) if isinstance(other, Node) else None
        if isinstance(bias, Place) and bias.shape == out.shape[-1:] and bias.dtype is out.dtype:
            epilogue, last, rest = replace(epilogue, start=bias), rest[0], rest[1:]
    if rest and is_matrix and rest[0].target.name == "relu" and rest[0].args == (last,):
        epilogue, last, rest = replace(epilogue, relu=True), rest[0], rest[1:]
    if any(used is head for n in rest for used in n.all_input_nodes) and last is not head:
        raise Unsupported("a product that is used before and after its epilogue")
    return epilogue, last, rest


def _descent(head: Node, rest: list[Node], values: dict[Node, Any], out: Place) -> Epilogue | None:
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
        isinstance(start, Place)
        and (start.shape, start.dtype) == (out.shape, out.dtype)
        and start.is_contiguous
        and (start == out or apart(start, out))
    )
    is_number = not isinstance(factor, Place) or (factor.shape == () and factor.dtype is out.dtype)
    return Epilogue(start=start, factor=factor) if fits and is_number else None
