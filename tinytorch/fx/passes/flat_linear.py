"""Linear layers that are written as a product of matrices, over an input that is made flat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, insert, is_call, only_user, value
from tinytorch.graph.passes.base import OptimizationPass, register_pass

VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


@dataclass
class FlatLinear:
    """A linear layer in three nodes.

    Attributes:
        source: what goes in, (..., I).
        product: of the flat input (M, I).
        result: its view, (..., O).
        weight: (O, I).
        bias: the node of the bias, or None.
    """

    source: Node
    product: Node
    result: Node
    weight: Tensor
    bias: Any


@register_pass
class FlatLinears(OptimizationPass):
    """Makes one `linear` of a matrix product between two views.

        view(addmm(b, view(x, (M, I)), W), (..., O)) = linear(x, W^T, b)

    GPT-2's layers are written so. Without the views, what follows a layer can be done on the way.
    Only for weights that do not change any more.
    """

    name = "flat-linear"
    exact = False  # the product may be computed in another order

    def analyze(self, graph: torch.fx.Graph) -> list[FlatLinear]:
        """The layers."""
        found = (
            self._match(n) for n in graph.nodes if is_call(n, aten.addmm.default, aten.mm.default)
        )
        return [layer for layer in found if layer is not None]

    def transform(self, graph: torch.fx.Graph, found: list[FlatLinear]) -> bool:
        for layer in found:
            with graph.inserting_before(layer.product):
                weight = self.semantics.constant(graph, layer.weight)
                args = (layer.source, weight, layer.bias)
                new = insert(graph, aten.linear.default, args, like=layer.result)
            layer.result.replace_all_uses_with(new)
            graph.erase_node(layer.result)
            graph.erase_node(layer.product)
        return bool(found)

    def _match(self, product: Node) -> FlatLinear | None:
        if product.kwargs:
            return None
        *bias, flat, w = product.args
        result = only_user(product)
        if not is_call(flat, *VIEWS) or result is None or not is_call(result, *VIEWS):
            return None
        source: Any = flat.args[0]  # type: ignore[union-attr]
        before, after = value(source), value(result)
        is_attribute = isinstance(w, Node) and w.op == "get_attr"
        weight = self.semantics.constant_value(w) if is_attribute else None
        if weight is None or before is None or after is None or not _is_vector(bias):
            return None
        outside = [[str(n) for n in x.shape[:-1]] for x in (before, after)]  # sizes may be open
        ends = (before.shape[-1], after.shape[-1])
        if outside[0] != outside[1] or ends != tuple(weight.shape):
            return None
        return FlatLinear(source, product, result, weight.detach().t(), bias[0] if bias else None)


def _is_vector(bias: list[Any]) -> bool:
    """There is no bias, or one number for each output."""
    found = [value(b) for b in bias]
    return all(b is not None and b.ndim == 1 for b in found)
