"""Attention written out in products and a softmax, as `scaled_dot_product_attention`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, insert, is_call, only_user, value
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass

PRODUCTS = (aten.matmul.default, aten.bmm.default)
SOFTMAXES = (aten.softmax.int, aten._softmax.default)
SCALINGS = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar)
FILLS = (aten.masked_fill.Scalar,)


@dataclass
class Attention:
    """softmax(scale * query @ keys + mask) @ values.

    Attributes:
        last: the node of the result.
        query, keys, values: (..., L, E), (..., E, S), (..., S, V): the keys transposed.
        scale: a number.
        mask: what is added to the scores; None for nothing.
        fill: (mask, number): scores where the mask is true become this number; None for none.
    """

    last: Node
    query: Node
    keys: Node
    values: Node
    scale: float = 1.0
    mask: Node | None = None
    fill: tuple[Node, float] | None = None


@register_pass
class AttentionPattern(OptimizationPass):
    """Finds attention that is written out, and makes it the one fused op.

        softmax(q @ k.transpose(-2, -1) * scale + mask, -1) @ v

    The scale may be missing, multiply or divide; the mask may be missing, be added, or fill in a
    number. What is filled in must be a constant that leaves something in every row: what attends to
    nothing is NaN when -inf is filled in, and has no gradient; both are otherwise in the fused op.
    (Where nothing is differentiated, a finite number may be filled in anywhere.) Nothing else may
    use the scores or weights, and with dropout, whose random numbers would be others, all stays.

    Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.2.1; T. Dao et al.,
    "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022.
    """

    name = "attention"
    exact = False

    def analyze(self, graph: torch.fx.Graph) -> list[Attention]:
        """The attentions that are written out."""
        products = [n for n in graph.nodes if is_call(n, *PRODUCTS)]
        if not products:
            return []
        memory = Aliasing(graph, self.semantics)
        return [a for n in products if (a := self._match(n, memory)) is not None]

    def transform(self, graph: torch.fx.Graph, found: list[Attention]) -> bool:
        for each in found:
            with graph.inserting_before(each.last):
                self._rewrite(graph, each)
        return bool(found)

    def _match(self, last: Node, memory: Aliasing) -> Attention | None:
        softmax, values = last.args
        if not is_call(softmax, *SOFTMAXES) or not _is_over_last(softmax):  # type: ignore[arg-type]
            return None
        chain: list[Any] = [softmax]
        scores, mask, fill = chain[0].args[0], None, None
        if is_call(scores, *FILLS):
            chain.append(scores)
            scores, *fill = scores.args
        elif is_call(scores, aten.add.Tensor) and not scores.kwargs:
            split = _scores_and_mask(scores)
            if split is None:
                return None
            chain.append(scores)
            scores, mask = split
        scale = _scale(scores)
        if scale is not None:
            chain.append(scores)
            scores = scores.args[0]
        if not is_call(scores, *PRODUCTS):
            return None
        chain.append(scores)
        if any(only_user(n) is None or memory.touches_written(n) for n in (*chain,)):
            return None
        query, keys = scores.args
        pair = (fill[0], float(fill[1])) if fill else None
        each = Attention(last, query, keys, values, scale or 1.0, mask, pair)  # type: ignore[arg-type]
        return each if self._fits(each) else None

    def _fits(self, each: Attention) -> bool:
        """Shapes and dtypes are those that the fused op takes, and the mask leaves something."""
        q, k, v = value(each.query), value(each.keys), value(each.values)
        if q is None or k is None or v is None or not q.dtype == k.dtype == v.dtype:
            return False
        if q.ndim < 3 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
            return False
        if each.mask is not None:
            mask = value(each.mask)
            return mask is not None and mask.dtype == q.dtype and mask.ndim <= q.ndim
        if each.fill is None:
            return True
        is_forward = self.semantics.is_closed(each.last.graph)
        if is_forward and math.isfinite(each.fill[1]):
            return True
        constant = self._constant(each.fill[0])
        return constant is not None and not bool(constant.all(-1).any())

    def _constant(self, node: Node) -> Tensor | None:
        """The value of a node that depends on no input; None if it does."""
        s = self.semantics
        if node.op == "get_attr":
            found: Tensor | None = s.constant_value(node)
            return found
        if node.op != "call_function" or not s.is_pure(node) or s.is_random(node):
            return None
        known = {a: self._constant(a) for a in node.all_input_nodes}
        if any(v is None for v in known.values()):
            return None
        result: Tensor = s.evaluate(
            node, s.map_arg(node.args, known.__getitem__), s.map_arg(node.kwargs, known.__getitem__)
        )
        return result

    def _rewrite(self, graph: torch.fx.Graph, each: Attention) -> None:
        key = insert(graph, aten.transpose.int, (each.keys, -2, -1), like=each.keys)
        keys = value(each.keys)
        assert keys is not None  # _fits
        key.meta["val"] = keys.transpose(-2, -1)
        mask = each.mask if each.fill is None else self._as_added(graph, each)
        new = insert(
            graph, aten.scaled_dot_product_attention.default,
            (each.query, key, each.values, mask, 0.0, False), like=each.last, scale=each.scale,
        )  # fmt: skip
        each.last.replace_all_uses_with(new)
        graph.erase_node(each.last)

    def _as_added(self, graph: torch.fx.Graph, each: Attention) -> Node:
        """The mask that fills in a number as one that adds it, to zeros."""
        assert each.fill is not None
        filled, number = each.fill
        query, shape = value(each.query), value(filled)
        assert query is not None and shape is not None  # _fits
        zeros = insert(
            graph, aten.zeros_like.default, (filled,), like=filled, dtype=query.dtype
        )  # fmt: skip
        zeros.meta["val"] = torch.empty_like(shape, dtype=query.dtype)
        added = insert(graph, aten.masked_fill.Scalar, (zeros, filled, number), like=zeros)
        return added


def _is_over_last(softmax: Node) -> bool:
    """A softmax over the last dimension, in the dtype of its input."""
    source, own = value(softmax.args[0]), value(softmax)
    if source is None or own is None or own.dtype != source.dtype:
        return False
    dim: Any = softmax.args[1]
    return dim % source.ndim == source.ndim - 1


def _scores_and_mask(total: Node) -> tuple[Node, Node] | None:
    """Which of two terms is the mask: the one that does not come out of a product."""
    terms: tuple[Any, ...] = total.args
    for scores, mask in (terms, terms[::-1]):
        source = scores.args[0] if _scale(scores) is not None else scores
        if is_call(source, *PRODUCTS) and isinstance(mask, Node):
            a, b = value(scores), value(total)
            if a is not None and b is not None and a.shape == b.shape:
                return scores, mask
    return None


def _scale(node: Any) -> float | None:
    """The number by which a node multiplies; None if it does something else."""
    if not is_call(node, *SCALINGS) or node.kwargs or len(node.args) != 2:
        return None
    number = node.args[1]
    if not isinstance(number, (int, float)) or number == 0:
        return None
    divides = node.target in (aten.div.Tensor, aten.div.Scalar)
    return 1.0 / number if divides else float(number)
