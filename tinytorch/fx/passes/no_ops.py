"""Removal of ops that do nothing: dropout outside of training, conversions to what already is."""

from __future__ import annotations

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import arguments, aten, has_static_shape, is_call, value
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass

CONVERSIONS = (aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.contiguous.default)
CHECKS = (aten._assert_tensor_metadata.default,)


@register_pass
class NoOps(OptimizationPass):
    """Takes out nodes whose value is their input, and checks that a static graph always meets.

    No-ops are dropout with p = 0 or outside of training, `to` and `contiguous` of what is so
    already, slices of everything and sums of one term. On paper most return their input itself,
    not a copy, so nobody can tell the difference.
    """

    name = "no-ops"

    def analyze(self, graph: torch.fx.Graph) -> list[Node]:
        """The nodes to take out."""
        checks = [node for node in graph.nodes if _is_met_check(node)]
        same = [node for node in graph.nodes if _returns_input(node)]
        if same:
            memory = Aliasing(graph, self.semantics)
            same = [node for node in same if memory.may_replace(node.args[0], node)]
        return checks + same

    def transform(self, graph: torch.fx.Graph, found: list[Node]) -> bool:
        for node in found:
            if not is_call(node, *CHECKS):
                node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            graph.erase_node(node)
        return bool(found)


def _is_met_check(node: Node) -> bool:
    """A check of what was known when the graph was captured."""
    if not is_call(node, *CHECKS) or not has_static_shape(node.args[0]):  # type: ignore[arg-type]
        return False
    found, expected = value(node.args[0]), arguments(node)
    assert found is not None  # has_static_shape
    known = {"size": list(found.shape), "stride": list(found.stride()), "dtype": found.dtype,
             "device": found.device, "layout": found.layout}  # fmt: skip
    return all(expected.get(k) is None or expected[k] == v for k, v in known.items())


def _returns_input(node: Node) -> bool:
    """The op gives back its first argument, and not a copy."""
    if is_call(node, aten.dropout.default):
        rate, training = float(node.args[1]), bool(node.args[2])  # type: ignore[arg-type]
        return not training or rate == 0
    own = value(node)
    source = value(node.args[0]) if node.args else None
    if own is None or source is None:
        return False
    if is_call(node, *CONVERSIONS):
        # a fake that shares memory says that the conversion made no copy
        return own.untyped_storage()._cdata == source.untyped_storage()._cdata
    if is_call(node, aten.slice.Tensor):
        static = has_static_shape(node) and has_static_shape(node.args[0])  # type: ignore[arg-type]
        return static and own.shape == source.shape  # an open size is compared by its example
    return False
