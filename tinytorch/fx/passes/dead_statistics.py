"""Ops that return statistics beside their result, where nobody reads them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import arguments, aten, insert, is_call
from tinytorch.graph.passes.base import OptimizationPass, register_pass

Call = tuple[Any, tuple[Any, ...]]  # a target and its arguments


def _layer_norm(given: dict[str, Any]) -> Call:
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    return aten.layer_norm.default, tuple(given[name] for name in names)


def _batch_norm_eval(given: dict[str, Any]) -> Call:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    operands = tuple(given[name] for name in names)
    return aten.batch_norm.default, (*operands, False, given["momentum"], given["eps"], True)


def _batch_norm_training(given: dict[str, Any]) -> Call:
    names = ("input", "weight", "bias", "training", "momentum", "eps")
    return aten._native_batch_norm_legit.no_stats, tuple(given[name] for name in names)


def _max_pool2d(given: dict[str, Any]) -> Call:
    names = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    return aten.max_pool2d.default, tuple(given[name] for name in names)


#: By op, which results it may be asked for, and what gives those alone. An op with one result left
#: stands for `getitem(op, 0)`.
CHEAPER: dict[Any, tuple[tuple[int, ...], Callable[[dict[str, Any]], Call]]] = {
    aten.native_layer_norm.default: ((0,), _layer_norm),
    aten._native_batch_norm_legit_no_training.default: ((0,), _batch_norm_eval),
    aten.max_pool2d_with_indices.default: ((0,), _max_pool2d),
    aten._native_batch_norm_legit_functional.default: ((0, 1, 2), _batch_norm_training),
}


@register_pass
class DeadStatistics(OptimizationPass):
    """Removes statistics, buffers and indices of normalizations and pools that are unused.

    Run dead-code elimination before it: a `getitem` that nothing uses counts as a use.
    """

    name = "dead-statistics"

    def analyze(self, graph: torch.fx.Graph) -> list[Node]:
        """The nodes whose further results nobody reads."""
        return [n for n in graph.nodes if is_call(n, *CHEAPER) and _has_dead_results(n)]

    def transform(self, graph: torch.fx.Graph, found: list[Node]) -> bool:
        for node in found:
            kept, cheaper = CHEAPER[node.target]
            target, operands = cheaper(arguments(node))
            with graph.inserting_before(node):
                new = insert(graph, target, operands, like=node)
            values = node.meta.get("val")
            if len(kept) == 1:
                _replace_items(graph, node, new)
                new.meta["val"] = values[0] if isinstance(values, Sequence) else None
            else:
                node.replace_all_uses_with(new)
                new.meta["val"] = None if values is None else tuple(values[i] for i in kept)
            graph.erase_node(node)
        return bool(found)


def _has_dead_results(node: Node) -> bool:
    kept, _ = CHEAPER[node.target]
    return all(is_call(u, operator.getitem) and u.args[1] in kept for u in node.users)


def _replace_items(graph: torch.fx.Graph, node: Node, new: Node) -> None:
    """Let a node stand for all `getitem(node, 0)`."""
    for item in list(node.users):
        item.replace_all_uses_with(new)
        graph.erase_node(item)
