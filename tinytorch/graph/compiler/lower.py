"""Lowering: a graph in which every node is one kernel call, or a view that moves nothing.

What `dispatch.apply` does on the way to a kernel, the graph says here explicitly: casts of
operands, the parts of fused ops that nothing runs as a whole, and the copy in a `reshape` that no
strides can express. And what a call must not share with its caller is copied before it is returned.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import wrap
from tinytorch.dtypes import TensorMeta
from tinytorch.graph.compiler.memory_order import (
    CanWrite,
    assign_memory_orders,
    place_parts,
    view_in_memory,
)
from tinytorch.graph.fused import GraphDecomposition
from tinytorch.graph.ir import Graph, GraphError, Node, map_arg
from tinytorch.graph.layout import Buffer, Memory, StridedView, view_of
from tinytorch.graph.pytree import tree_flatten
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.graph.trace import trace
from tinytorch.op import Op, Plan

INHERITED = ("phase", "stack_trace")


@dataclass(frozen=True)
class CallingConvention:
    """Which inputs a call overwrites or takes by value, and which results must not be shared.

    Attributes:
        updates: results that are written into an input in place: position of the result, position
            of the input.
        unaliased: results that nobody else may hold the memory of (gradients).
        numbers: inputs that are no memory but numbers of the call (seeds, learning rates).
    """

    updates: Mapping[int, int] = field(default_factory=dict)
    unaliased: Collection[int] = ()
    numbers: Collection[int] = ()


def plan_of(node: Node) -> Plan:
    """The plan under which `apply` would run a node: the same object, so kernels are shared.

    Raises:
        GraphError: it calls something else than an op.
    """
    if not isinstance(node.target, Op):
        raise GraphError(f"`{node.format_node()}` calls {node.target!r}, which is no op")
    operands = [a.meta["tensor_meta"] if isinstance(a, Node) else type(a) for a in node.args]
    return node.target.plan(operands, node.kwargs)


def lower(
    graph: Graph,
    convention: CallingConvention,
    is_kept: Callable[[Node], bool],
    can_write: CanWrite = lambda node, *views: False,
) -> Graph:
    """A lowered copy. Its output is a flat tuple of nodes.

    Args:
        is_kept: asked for a node of a fused op, whether something runs it as a whole.
        can_write: asked for a node and a view that is not in C order, whether the node's kernel can
            write there (`memory_order`).

    Raises:
        GraphError: a result is not a value of the graph, or a shape is not known.
    """
    for node in graph.nodes:
        if node.op != "output" and "tensor_meta" not in node.meta:
            raise GraphError(
                f"`{node.format_node()}`: its shape is not known; run "
                f"ShapeProp(graph).propagate() first"
            )
    result_nodes(graph)
    lowered = copy.deepcopy(graph)
    for node in lowered.find_nodes(op="call_function"):
        _inline(lowered, node, is_kept)
    for node in lowered.find_nodes(op="call_function"):
        _spell_out_casts(lowered, node)
    assign_memory_orders(lowered, result_nodes(lowered), can_write)
    _spell_out_copies(lowered)
    _separate_results(lowered, convention)
    place_parts(lowered, result_nodes(lowered), can_write)
    return lowered


def result_nodes(graph: Graph) -> list[Node]:
    """The nodes of a graph's results, flat.

    Raises:
        GraphError: a result is a number or another argument.
    """
    leaves, _ = tree_flatten(graph.output_node().args[0])
    for leaf in leaves:
        if not isinstance(leaf, Node):
            raise GraphError(f"the result {leaf!r} is no value of the graph, so no code returns it")
    return leaves


def without_detach(graph: Graph) -> Graph:
    """A copy without `detach`, for a graph that is not going to be differentiated.

    A detach that is a result itself stays: it must not become one tensor with what it detaches.
    """
    plain = copy.deepcopy(graph)
    for node in plain.find_nodes(op="call_function", target=ops.detach):
        node.replace_all_uses_with(node.args[0], lambda user: user.op != "output")
    plain.eliminate_dead_code()
    return plain


# -- fused ops -------------------------------------------------------------------------------------


def _inline(graph: Graph, node: Node, is_kept: Callable[[Node], bool]) -> None:
    """Put the parts of a fused op in its place, unless it is kept; parts may be fused ops too."""
    op = node.target
    if not isinstance(op, Op) or op.decomposition is None or is_kept(node):
        return
    body = _body_of(node, op)
    values = dict(
        zip(
            body.find_nodes(op="placeholder"),
            [a for a in node.args if isinstance(a, Node)],
            strict=True,
        )
    )
    parts = []
    with graph.inserting_before(node):
        for inner in body.nodes:
            if inner.op == "get_attr":
                values[inner] = TINYTORCH.constant(graph, body.constants[inner.target])
            elif inner.op == "call_function":
                new = graph.call_function(
                    inner.target,
                    map_arg(inner.args, values.__getitem__),
                    map_arg(inner.kwargs, values.__getitem__),
                )
                new.meta["tensor_meta"] = inner.meta["tensor_meta"]
                inherit(new, node)
                values[inner] = new
                parts.append(new)
    (result,) = result_nodes(body)
    node.replace_all_uses_with(values[result])
    graph.erase_node(node)
    for part in parts:
        _inline(graph, part, is_kept)


def _body_of(node: Node, op: Op) -> Graph:
    """What a fused op means at these operands, as a graph."""
    if isinstance(op.decomposition, GraphDecomposition):
        return op.decomposition.graph
    operands = [example_of(a) if isinstance(a, Node) else a for a in node.args]
    assert op.decomposition is not None
    return trace(partial(op.decomposition, **node.kwargs), *operands).graph


def example_of(node: Node) -> Any:
    """A tensor of a node's shape and dtype: its example if it has one, or zeros without memory."""
    meta: TensorMeta = node.meta["tensor_meta"]
    example = node.meta.get("example")
    if example is None:
        example = np.broadcast_to(np.zeros((), meta.dtype.dtype), meta.shape)
    return wrap(example, meta)


def inherit(new: Node, node: Node) -> None:
    """Give a new node the phase and user's line of the one that it was made for."""
    new.meta.update({key: value for key, value in node.meta.items() if key in INHERITED})


# -- casts and copies ------------------------------------------------------------------------------


def _call(graph: Graph, before: Node, name: str, source: Node, **params: Any) -> Node:
    with graph.inserting_before(before):
        new: Node = TINYTORCH.call(graph, name, [source], params)
    inherit(new, before if before.op == "call_function" else source)
    return new


def _spell_out_casts(graph: Graph, node: Node) -> None:
    if not isinstance(node.target, Op):
        return
    for i, dtype in enumerate(plan_of(node).casts or ()):
        if dtype is not None:
            node.update_arg(i, _call(graph, node, "cast", node.args[i], dtype=dtype))


def _spell_out_copies(graph: Graph) -> None:
    """A copy before each reshape that is not a view of its input; one copy for all of them.

    What a kernel makes, and what a call is given, is taken to be in C order, unless the node says
    otherwise (`memory_order`).
    """
    views: dict[Node, StridedView] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        view = None
        if isinstance(node.target, Op) and node.target.view:
            view = view_of(node.target, views[node.args[0]], node.kwargs)
            if view is None:
                node.update_arg(0, _call(graph, node, "copy", node.args[0]))
        views[node] = view or view_in_memory(node, Buffer(Memory.ARENA), 0)


# -- results ---------------------------------------------------------------------------------------


def _separate_results(graph: Graph, convention: CallingConvention) -> None:
    """Copy what is returned or written where its memory is going to change, or not the caller's."""
    inputs = graph.find_nodes(op="placeholder")
    roots = TINYTORCH.storages(graph).roots
    written = {inputs[i] for i in convention.updates.values()}
    lasting = {*graph.find_nodes(op="get_attr"), *(inputs[i] for i in convention.numbers)}
    lasting.update(n for n in roots if is_creation(n))
    output = graph.output_node()
    results = result_nodes(graph)
    held = [roots[n] for i, n in enumerate(results) if i not in convention.updates]
    for i, node in enumerate(results):
        root = roots[node]
        if i in convention.updates:
            copied = root in written and node is not inputs[convention.updates[i]]
        elif i in convention.unaliased:
            whole = node.meta["tensor_meta"].size == root.meta["tensor_meta"].size
            shared = held.count(root) > 1 or root.op != "call_function" or root in lasting
            copied = shared or not whole or _repeats(node)
        else:
            copied = root in written or root in lasting
        if copied:
            results[i] = _call(graph, output, "copy", node)
    output.args = (tuple(results),)


def _repeats(node: Node) -> bool:
    """A view on the way to the root shows elements more than once, or leaves some out."""
    while isinstance(node.target, Op) and node.target.view:
        if node.target.name in ("expand", "unfold", "slice"):
            return True
        (node,) = node.all_input_nodes
    return False


def is_creation(node: Node) -> bool:
    """Whether a node makes its value from nothing, so that every call has the same value."""
    return node.op == "call_function" and not node.args and not TINYTORCH.is_random(node)
