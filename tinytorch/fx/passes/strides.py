"""What a change of memory layout does to the values downstream."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Node

from tinytorch.fx.capture.layouts import is_dense, layout_order
from tinytorch.fx.passes.fused_attention import FusedAttention
from tinytorch.fx.passes.nodes import aten, insert, is_call, value
from tinytorch.fx.passes.packed import PackedLayer
from tinytorch.graph.ir import GraphError

KERNELS = PackedLayer | FusedAttention  # what is called as a node and is no op
VIEWS = (aten.view.default, aten._unsafe_view.default)


def result_values(graph: torch.fx.Graph) -> list[Tensor | None]:
    """The fake values of the results of a graph."""
    return [value(node) for node in graph.output_node().all_input_nodes]


def refresh_values(graph: torch.fx.Graph, results: list[Tensor | None]) -> None:
    """Compute the fake values of a graph anew, after layouts have changed in it.

    A `view` that the new layout does not allow becomes a `reshape`; results of the graph get back
    the layout that they had.

    Args:
        results: the `result_values` of before.
    """
    mode = _mode(graph)
    for node in graph.nodes:
        if node.op == "call_function" and not isinstance(node.target, KERNELS):
            node.meta["val"] = _computed(node, mode)  # kernels know no fakes
    output = graph.output_node()
    for node, before in zip(output.all_input_nodes, results, strict=True):
        after = value(node)
        if before is None or after is None or str(before.stride()) == str(after.stride()):
            continue
        with graph.inserting_before(output):
            new = _in_layout_of(graph, node, before)
        new.meta["val"] = before
        output.replace_input_with(node, new)


def _in_layout_of(graph: torch.fx.Graph, node: Node, before: Tensor) -> Node:
    """A copy of a node in another layout; its sizes may be open."""
    whole = torch.contiguous_format
    if before.is_contiguous():
        return insert(graph, aten.clone.default, (node,), like=node, memory_format=whole)
    if is_dense(before):
        order = layout_order(before)
        ordered = insert(graph, aten.permute.default, (node, order), like=node)
        copy = insert(graph, aten.clone.default, (ordered,), like=node, memory_format=whole)
        ordered.meta["val"] = copy.meta["val"] = before.permute(order)
        back = [order.index(d) for d in range(len(order))]
        return insert(graph, aten.permute.default, (copy, back), like=node)
    if not all(isinstance(n, int) for n in (*before.shape, *before.stride())):
        raise GraphError(f"{node.name} has gaps in its memory, and its sizes are open")
    empty = insert(graph, aten.empty_strided.default, (list(before.shape), list(before.stride())),
                   like=node, dtype=before.dtype, device=before.device)  # fmt: skip
    return insert(graph, aten.copy.default, (empty, node), like=node)


def call(graph: torch.fx.Graph, target: Any, *args: Any, like: Node, **kwargs: Any) -> Node:
    """A new node at the place of insertion, with its fake value; of the phase that `like` is of."""
    node = insert(graph, target, args, like, **kwargs)
    node.meta["val"] = _computed(node, _mode(graph))
    return node


def _computed(node: Node, mode: FakeTensorMode) -> Any:
    """The fake value of a node from those of its inputs."""
    if any("val" not in n.meta for n in node.all_input_nodes):
        return node.meta.get("val")  # of a function that is no op
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    target: Any = node.target
    with mode, torch.no_grad():
        try:
            return target(*args, **kwargs)
        except (RuntimeError, ValueError):
            if not is_call(node, *VIEWS):
                raise
            node.target = aten.reshape.default
            return aten.reshape.default(*args, **kwargs)


def _mode(graph: torch.fx.Graph) -> FakeTensorMode:
    values = map(value, graph.nodes)
    return next((v.fake_mode for v in values if isinstance(v, FakeTensor)), FakeTensorMode())
