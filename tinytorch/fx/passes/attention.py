"""Attention written out in products and a softmax, as PyTorch's `scaled_dot_product_attention`."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from tinytorch.fx.passes.nodes import aten, has_static_shape, is_call, on_cpu, value
from tinytorch.fx.passes.strides import call
from tinytorch.graph.passes.attention_parts import HIDES_ALL, HIDES_SOME, Gradients, WrittenOut
from tinytorch.graph.passes.attention_pattern import RecognizedAttention
from tinytorch.graph.passes.base import register_pass
from tinytorch.graph.passes.matrix_reader import Call

PRODUCTS = (aten.matmul.default, aten.bmm.default)
SOFTMAXES = (aten.softmax.int, aten._softmax.default)
SELECTIONS = (aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther)


@register_pass
class AttentionPattern(RecognizedAttention):
    """Makes attention that is written out the one fused op, and its traced backward, too.

    What attends to nothing is NaN when -inf is filled in, and stays so; where it is known to, all
    stays. A finite number that is filled in, or what is added where there is a backward, must be
    known to leave something in every row: otherwise gradients differ. (Where nothing is
    differentiated, any row may be filled with a number so low that it hides the scores.) With
    dropout, whose random numbers would be others, all stays.

    A backward that is in the graph is replaced on the CPU, where there is one fused op for all
    dtypes and masks; sizes must be known, and those of query and value equal. What was kept for it
    of the size of the scores is gone after dead code elimination.

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
        if is_call(node, aten._softmax_backward_data.default):
            own = value(node)
            is_same = own is not None and own.dtype == node.args[3]
            return ("softmax_backward", tuple(node.args[:2]), {}) if is_same else None
        if is_call(node, aten.masked_fill.Scalar):
            x, mask, number = node.args
            return "where", (mask, float(number), x), {}  # type: ignore[arg-type]
        if is_call(node, *SELECTIONS):
            mask, *branches = node.args
            return "where", (mask, *map(self._number, branches)), {}
        if is_call(node, aten.clone.default):  # in whatever layout
            return "clone", tuple(node.args), {}
        return super().call_of(node)

    def _number(self, branch: Any) -> Any:
        """A number that is written as one, or as a tensor without dimensions; all else as it is."""
        found = value(branch)
        if found is None:
            return float(branch) if isinstance(branch, (int, float)) else branch
        known = self.constant(branch) if found.ndim == 0 else None
        return branch if known is None else float(known)

    def fits(self, each: WrittenOut) -> bool:
        """Shapes and dtypes are those that the fused op takes, and the mask leaves something."""
        query, values, weights = map(value, (each.query, each.values, each.softmax))
        if query is None or values is None or weights is None or not each.front:
            return False
        if each.backward is not None:
            are_known = all(map(has_static_shape, (each.query, each.keys, each.values)))
            is_one_size = query.shape[-1] == values.shape[-1]
            if not (are_known and is_one_size and on_cpu(each.last.graph)):
                return False
        if each.mask is None:
            return True
        mask, known = value(each.mask), self.constant(each.mask)
        if mask is None or mask.ndim > len(each.front) + 2:
            return False
        if each.backward is not None and len(each.front) > 2 and mask.ndim > 3:
            return False
        if each.fill is None:
            if mask.dtype != query.dtype:
                return False
            return each.backward is None or (known is not None and _leaves(known > HIDES_SOME))
        if known is not None and _leaves(seen := known ^ each.hides):
            if seen.shape[-2:] == weights.shape[-2:] and is_causal_mask(seen):
                each.mask, each.is_causal = None, True
            return each.fill <= HIDES_SOME
        if each.fill == -math.inf:
            return known is None
        is_forward = self.semantics.is_closed(each.last.graph) and each.backward is None
        return is_forward and each.fill <= HIDES_ALL

    def rewrite(self, graph: torch.fx.Graph, each: WrittenOut) -> None:
        front, last = each.front, each.last
        if each.backward is not None and len(front) != 2:  # as many as its op has
            front = (math.prod(front[:-1]), front[-1])
        query, keys, values = (
            self.with_front(graph, x, front) for x in (each.query, each.keys, each.values)
        )
        key = call(graph, aten.transpose.int, keys, -2, -1, like=keys)
        mask = each.mask
        if mask is not None and each.fill is not None:
            mask = self._as_added(graph, mask, each)
        if each.backward is None:
            target, scale = aten.scaled_dot_product_attention.default, each.scale
            operands = (query, key, values, mask, 0.0, each.is_causal)
            new = call(graph, target, *operands, like=last, scale=scale)
            is_result = last in self._memory.returned  # whose layout the caller sees
            self.replace(graph, last, _contiguous(graph, new) if is_result else new)
            return
        if mask is not None:
            sizes = list(mask.meta["val"].shape)
            sizes = [1] * (4 - len(sizes)) + sizes
            mask = call(graph, aten.view.default, mask, sizes, like=mask)
        inputs = [_with_dense_rows(graph, x) for x in (query, key, values)]
        options = {"attn_mask": mask, "scale": each.scale}
        forward = aten._scaled_dot_product_flash_attention_for_cpu.default
        both = call(graph, forward, *inputs, 0.0, each.is_causal, like=last, **options)
        results = [call(graph, operator.getitem, both, i, like=last) for i in range(2)]
        self.replace(graph, last, _contiguous(graph, results[0]))
        kept = (*inputs, *results, 0.0, each.is_causal)
        self._rewrite_backward(graph, each.backward, front, kept, options)

    def _rewrite_backward(
        self,
        graph: torch.fx.Graph,
        found: Gradients,
        front: tuple[Any, ...],
        kept: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        """All gradients out of one op, from what the forward has kept: none of it is (l, s)."""
        first = next(node for node in graph.nodes if node in found.readers)
        target = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        with graph.inserting_before(first):
            g = _with_dense_rows(graph, self.with_front(graph, found.g, front))
            flash = call(graph, target, g, *kept, like=first, **options)
            new = [call(graph, operator.getitem, flash, i, like=first) for i in range(3)]
            new.append(call(graph, aten.transpose.int, new[1], -2, -1, like=first))
            new = [_contiguous(graph, x) for x in new]
        olds = (found.query, found.key, found.values, found.keys)
        for old, gradient in zip(olds, new, strict=True):
            if old is not None:
                self.replace(graph, old, gradient)

    def _as_added(self, graph: torch.fx.Graph, mask: Node, each: WrittenOut) -> Node:
        """The mask that fills in a number as one that adds it, to zeros.

        A row of -inf alone becomes one of NaN, as which it comes out written out.
        """
        filled, dtype = mask, each.query.meta["val"].dtype
        if not each.hides:
            filled = call(graph, aten.logical_not.default, filled, like=filled)
        zeros = call(graph, aten.zeros_like.default, filled, like=filled, dtype=dtype)
        added = call(graph, aten.masked_fill.Scalar, zeros, filled, each.fill, like=zeros)
        if each.fill != -math.inf or self.constant(mask) is not None:
            return added
        highest = call(graph, aten.amax.default, added, [-1], True, like=added)
        return call(graph, aten.sub.Tensor, added, highest, like=added)


def _leaves(seen: Any) -> bool:
    """Whether there is something in every row."""
    return bool(seen.any(-1).all())


def is_causal_mask(seen: Any) -> bool:
    """Whether query i sees the keys 0 to i, in all matrices."""
    return bool((seen == torch.ones_like(seen).tril()).all())


def _with_dense_rows(graph: torch.fx.Graph, node: Node) -> Node:
    """The op for the CPU reads wrong numbers where a row's elements lie apart, and says nothing."""
    found = value(node)
    return node if found is None or found.stride(-1) == 1 else _contiguous(graph, node)


def _contiguous(graph: torch.fx.Graph, node: Node) -> Node:
    """In the layout of a product, by which its readers may view it."""
    found = value(node)
    if found is None or found.is_contiguous():
        return node
    return call(graph, aten.clone.default, node, like=node, memory_format=torch.contiguous_format)
