"""What a change of memory layout does to the values downstream."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, insert, is_call, value

VIEWS = (aten.view.default, aten._unsafe_view.default)


def refresh_values(graph: torch.fx.Graph) -> None:
    """Compute the fake values of a graph anew, after layouts have changed in it.

    A `view` that the new layout does not allow becomes a `reshape`; results of the graph get back
    the layout that they had.
    """
    old = {node: value(node) for node in graph.nodes}
    mode = _mode(old)
    for node in graph.nodes:
        if node.op == "call_function" and not getattr(node.target, "is_pure", False):
            node.meta["val"] = _computed(node, mode)  # functions of ours know no fakes
    output = graph.output_node()
    for node in output.all_input_nodes:
        before, after = old[node], value(node)
        if before is None or after is None or str(before.stride()) == str(after.stride()):
            continue
        with graph.inserting_before(output):
            if before.is_contiguous():
                new = insert(graph, aten.clone.default, (node,), like=node,
                             memory_format=torch.contiguous_format)  # fmt: skip
            else:
                target = aten.empty_strided.default
                sizes = (list(before.shape), list(before.stride()))
                empty = insert(graph, target, sizes, like=node,
                               dtype=before.dtype, device=before.device)  # fmt: skip
                new = insert(graph, aten.copy.default, (empty, node), like=node)
        new.meta["val"] = before
        output.replace_input_with(node, new)


def _computed(node: Node, mode: FakeTensorMode) -> Any:
    """The fake value of a node from those of its inputs."""
    if any("val" not in n.meta for n in node.all_input_nodes):
        return node.meta.get("val")  # of a function that is no op
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    target: Any = node.target
    with mode, torch.no_grad():
        try:
            return target(*args, **kwargs)
        except RuntimeError:
            if not is_call(node, *VIEWS):
                raise
            node.target = aten.reshape.default
            return aten.reshape.default(*args, **kwargs)


def _mode(values: dict[Node, Tensor | None]) -> FakeTensorMode:
    modes = [v.fake_mode for v in values.values() if isinstance(v, torch._subclasses.FakeTensor)]
    return modes[0] if modes else FakeTensorMode()

