"""Channels-last: the layout in which convolutions of images are fastest."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.autotune import AutotunedPass
from tinytorch.fx.passes.conv_bn import CONVOLUTIONS
from tinytorch.fx.passes.nodes import arguments, is_call
from tinytorch.fx.passes.strides import refresh_values, result_values
from tinytorch.graph.passes.base import register_pass


@register_pass
class ChannelsLast(AutotunedPass):
    """Stores the weights of two-dimensional convolutions with the channels innermost.

    A convolution gives its result in the layout of its weight, and what follows keeps it, so the
    images change layout once. Results of the graph have the layout they had. Only for weights that
    do not change any more; kept only if the graph is faster with it.

    Source: PyTorch, "Channels last memory format in PyTorch", tutorial.
    """

    name = "channels-last"
    exact = False

    def analyze(self, graph: torch.fx.Graph) -> list[Node]:
        """The convolutions whose weights are to be stored anew."""
        return [n for n in graph.nodes if is_call(n, *CONVOLUTIONS) and self._has_other_layout(n)]

    def transform(self, graph: torch.fx.Graph, found: list[Node]) -> bool:
        stored: dict[Any, Node] = {}
        for node in found:
            given = arguments(node)
            old = given["weight"]
            if old.target not in stored:
                weight = self.semantics.constant_value(old)
                with graph.inserting_before(next(iter(graph.nodes))):
                    stored[old.target] = self.semantics.constant(
                        graph, weight.detach().contiguous(memory_format=torch.channels_last)
                    )
            node.replace_input_with(old, stored[old.target])
        if found:
            refresh_values(graph, result_values(graph))  # those of before: values are not yet new
        return bool(found)

    def _has_other_layout(self, node: Node) -> bool:
        weight = arguments(node)["weight"]
        if not isinstance(weight, Node) or weight.op != "get_attr":
            return False
        stored = self.semantics.constant_value(weight)
        return (
            stored is not None
            and stored.ndim == 4
            and not stored.is_mkldnn
            and not stored.is_contiguous(memory_format=torch.channels_last)
        )
