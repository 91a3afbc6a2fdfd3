"""Gradients of elementwise functions, written over the gradients that they are computed from."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import insert, is_call, value
from tinytorch.fx.semantics.in_place import GRADIENT_WRITERS
from tinytorch.graph.passes.aliasing import Aliasing, readers_of
from tinytorch.graph.passes.base import OptimizationPass, register_pass


@register_pass
class GradientsInPlace(OptimizationPass):
    """Makes the backward of elementwise functions overwrite the gradient that comes in.

        dx = gelu_backward(dy, x)    becomes    dx = gelu_backward(dy, x, grad_input=dy)

    so that dy and dx are not in memory together: behind the widest layer of a model that is what
    decides its peak. Only where the backward itself made dy, and nothing reads it afterwards.
    """

    name = "gradients-in-place"

    def analyze(self, graph: torch.fx.Graph) -> list[Node]:
        """The nodes that can write over their first argument."""
        candidates = [n for n in graph.nodes if is_call(n, *GRADIENT_WRITERS)]
        if not candidates:
            return []
        memory = Aliasing(graph, self.semantics)
        rank = {node: i for i, node in enumerate(graph.nodes)}
        return [n for n in candidates if self._may_write(n, memory, rank)]

    def transform(self, graph: torch.fx.Graph, found: list[Node]) -> bool:
        for node in found:
            gradient: Any = node.args[0]
            with graph.inserting_before(node):
                new = insert(
                    graph, GRADIENT_WRITERS[node.target], node.args, like=node, **node.kwargs,
                    grad_input=gradient,
                )  # fmt: skip
            node.replace_all_uses_with(new)
            graph.erase_node(node)
        return bool(found)

    def _may_write(self, node: Node, memory: Aliasing, rank: dict[Node, int]) -> bool:
        gradient: Any = node.args[0]
        before, after = value(gradient), value(node)
        if before is None or after is None or node.meta.get("phase") != "backward":
            return False
        alike = (str(before.shape), str(before.stride()), before.dtype) == (
            str(after.shape), str(after.stride()), after.dtype
        )  # fmt: skip
        root = self._root(gradient)
        return (
            alike
            and root is not None
            and root not in node.args[1:]
            and all(rank[reader] <= rank[node] for reader in readers_of(root, self.semantics))
            and root not in memory.written
        )

    def _root(self, gradient: Node) -> Node | None:
        """What made the memory of a gradient in the backward; None if that is not known."""
        node = gradient
        while node.op == "call_function" and node.meta.get("phase") == "backward":
            views = self.semantics.aliases(node)
            if not views:
                return node if self.semantics.is_pure(node) else None
            if len(views) > 1:
                return None
            node = views[0]
        return None
