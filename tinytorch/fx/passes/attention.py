"""Attention written out in products and a softmax, as PyTorch's `scaled_dot_product_attention`."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, insert, is_call, value
from tinytorch.graph.passes.attention_pattern import Call, RecognizedAttention, WrittenOut
from tinytorch.graph.passes.base import register_pass

PRODUCTS = (aten.matmul.default, aten.bmm.default)
SOFTMAXES = (aten.softmax.int, aten._softmax.default)


@register_pass
class AttentionPattern(RecognizedAttention):
    """Makes attention that is written out the one fused op.

    What is filled in must be a constant that leaves something in every row: what attends to nothing
    is NaN when -inf is filled in, and has no gradient; both are otherwise in the fused op. (Where
    nothing is differentiated, a finite number may be filled in anywhere.) With dropout, whose
    random numbers would be others, all stays.

    Source: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with
    IO-awareness", 2022.
    """

    name = "attention"

    def call_of(self, node: Node) -> Call | None:
        """Products, a softmax that keeps its dtype, `masked_fill`; the others by their names."""
        if is_call(node, *PRODUCTS):
            return "matmul", tuple(node.args[:2]), {}
        if is_call(node, *SOFTMAXES):
            source, own, dim = value(node.args[0]), value(node), node.args[1]
            if source is None or own is None or own.dtype != source.dtype:
                return None
            return "softmax", tuple(node.args[:1]), {"dim": dim % source.ndim}  # type: ignore[operator]
        if is_call(node, aten.masked_fill.Scalar):
            x, mask, number = node.args
            return "where", (mask, float(number), x), {}  # type: ignore[arg-type]
        return super().call_of(node)

    def fits(self, each: WrittenOut) -> bool:
        """Shapes and dtypes are those that the fused op takes, and the mask leaves something."""
        query = value(each.query)
        if query is None or query.ndim < 3:
            return False
        if each.mask is None:
            return True
        if each.fill is None:
            mask = value(each.mask)
            return mask is not None and mask.dtype == query.dtype and mask.ndim <= query.ndim
        if self.semantics.is_closed(each.last.graph) and math.isfinite(each.fill):
            return True
        constant = self.constant(each.mask)
        return constant is not None and not bool(constant.all(-1).any())

    def rewrite(self, graph: torch.fx.Graph, each: WrittenOut) -> None:
        key = insert(graph, aten.transpose.int, (each.keys, -2, -1), like=each.keys)
        keys = value(each.keys)
        assert keys is not None  # `fits`
        key.meta["val"] = keys.transpose(-2, -1)
        mask = each.mask if each.fill is None else self._as_added(graph, each)
        new = insert(
            graph, aten.scaled_dot_product_attention.default,
            (each.query, key, each.values, mask, 0.0, False), like=each.last, scale=each.scale,
        )  # fmt: skip
        self.replace(graph, each.last, new)

    def _as_added(self, graph: torch.fx.Graph, each: WrittenOut) -> Node:
        """The mask that fills in a number as one that adds it, to zeros."""
        filled: Any = each.mask
        query, shape = value(each.query), value(filled)
        assert query is not None and shape is not None  # `fits`
        zeros = insert(
            graph, aten.zeros_like.default, (filled,), like=filled, dtype=query.dtype
        )  # fmt: skip
        zeros.meta["val"] = torch.empty_like(shape, dtype=query.dtype)
        added = insert(graph, aten.masked_fill.Scalar, (zeros, filled, each.fill), like=zeros)
        return added
