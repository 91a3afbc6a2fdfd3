"""Linear layers that are written as a product of matrices, over an input that is made flat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, has_static_shape, insert, is_call, only_user, value
from tinytorch.graph.passes.base import OptimizationPass, register_pass

VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


@dataclass
class FlatLinear:
    """A linear layer written as a product.

    Attributes:
        flat: what goes in, (M, I).
        product: the node.
        result: its view, (..., O).
        weight: (O, I).
        bias: the node of the bias, or None.
    """

    flat: Node
    product: Node
    result: Node
    weight: Tensor
    bias: Any


@register_pass
class FlatLinears(OptimizationPass):
    """Makes one `linear` of a matrix product of which only a view is used.

        view(addmm(b, x, W), (..., O)) = linear(view(x, (..., I)), W^T, b)

    GPT-2's layers are written so. Without the view, what follows a layer can be done on the way.
    Only for weights that do not change any more.
    """

    name = "flat-linear"
    exact = False  # the product may be computed in another order

    def analyze(self, graph: torch.fx.Graph) -> list[FlatLinear]:
        """The layers."""
        products = (n for n in graph.nodes if is_call(n, aten.addmm.default, aten.mm.default))
        return [layer for layer in map(self._match, products) if layer is not None]

    def transform(self, graph: torch.fx.Graph, found: list[FlatLinear]) -> bool:
        for layer in found:
            with graph.inserting_before(layer.product):
                weight = self.semantics.constant(graph, layer.weight)
                source = _shaped(graph, layer)
                args = (source, weight, layer.bias)
                new = insert(graph, aten.linear.default, args, like=layer.result)
            layer.result.replace_all_uses_with(new)
            graph.erase_node(layer.result)
            graph.erase_node(layer.product)
        return bool(found)

    def _match(self, product: Node) -> FlatLinear | None:
        result = only_user(product)
        if product.kwargs or result is None or not is_call(result, *VIEWS):
            return None
        *bias, flat, w = product.args
        if not isinstance(flat, Node) or not _is_vector(bias) or not has_static_shape(result):
            return None
        is_attribute = isinstance(w, Node) and w.op == "get_attr"
        weight = self.semantics.constant_value(w) if is_attribute else None
        after = value(result)
        if weight is None or after is None or after.shape[-1] != weight.shape[1]:
            return None
        return FlatLinear(flat, product, result, weight.detach().t(), bias[0] if bias else None)


def _shaped(graph: torch.fx.Graph, layer: FlatLinear) -> Node:
    """The input in the form of the result: as it was before it was made flat, or a view."""
    source, before, after = layer.flat, value(layer.flat), value(layer.result)
    assert before is not None and after is not None  # FlatLinears._match
    sizes = [*after.shape[:-1], before.shape[-1]]
    if is_call(source, *VIEWS):
        origin: Any = source.args[0]
        found = value(origin)
        if found is not None and list(found.shape) == sizes:
            return origin
    view = insert(graph, aten.reshape.default, (source, sizes), like=source)
    view.meta["val"] = before.reshape(sizes)
    return view


def _is_vector(bias: list[Any]) -> bool:
    """There is no bias, or one number for each output."""
    found = [value(b) for b in bias]
    return all(b is not None and b.ndim == 1 for b in found)
