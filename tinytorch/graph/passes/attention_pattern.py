"""Attention written out in products and a softmax, as the one fused op, in either world.

`RecognizedAttention` finds it in our graphs and in PyTorch's alike; how a node is read, what may be
replaced, and by what, is each world's own. The backward of a training step that was traced with it
is replaced too, where the world has an op for it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

from tinytorch.graph.passes.attention_backward import AttentionBackward
from tinytorch.graph.passes.attention_parts import WrittenOut
from tinytorch.graph.passes.matrix_reader import inherit
from tinytorch.graph.semantics import AnyGraph, AnyNode


class RecognizedAttention(AttentionBackward):
    """Finds attention that is written out.

        softmax(q @ k.mT * scale + mask, -1) @ v

    The scale may be missing, multiply or divide; the mask may be missing, be added, or fill in a
    number; after the softmax there may be a dropout. Nothing else may use the scores or weights,
    but for the backward.

    Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.2.1.
    """

    exact = False

    def analyze(self, graph: AnyGraph) -> list[WrittenOut]:
        """The attentions that are written out."""
        products = [n for n in graph.nodes if self._is(n, "matmul")]
        if not products:
            return []
        self.read(graph)
        found = [self._match(node) for node in products]
        return [each for each in found if each is not None]

    def transform(self, graph: AnyGraph, found: list[WrittenOut]) -> bool:
        self._replaced: dict[AnyNode, AnyNode] = {}  # one attention may read another's result
        for each in found:
            for part in filter(None, (each, each.backward)):
                for name, value in vars(part).items():
                    if self.semantics.is_node(value):
                        setattr(part, name, self._replaced.get(value, value))
            with graph.inserting_before(each.last):
                self.rewrite(graph, each)
        return bool(found)

    def replace(self, graph: AnyGraph, old: AnyNode, new: AnyNode) -> None:
        """Put a new node in the place of one that was found, and of its views in the same shape."""
        shape = self.semantics.meta(new).shape
        inherit(new, old)
        for view in [n for n in self._through(old) if self.semantics.meta(n).shape == shape]:
            view.replace_all_uses_with(new)
        if old.users:
            with graph.inserting_before(old):
                new = self.with_front(graph, new, self.semantics.meta(old).shape[:-2])
        old.replace_all_uses_with(new)
        graph.erase_node(old)
        self._replaced[old] = new

    @abstractmethod
    def fits(self, each: WrittenOut) -> bool:
        """Whether the fused op takes these masks, and means the same."""

    @abstractmethod
    def rewrite(self, graph: AnyGraph, each: WrittenOut) -> None:
        """Put the fused op in the place of `each.last`; nodes are inserted before that."""

    # -- reading -----------------------------------------------------------------------------------

    def _match(self, last: AnyNode) -> WrittenOut | None:
        """Follow the weights from the last product back to the first; None if it is none."""
        weights, values = self._operands(last)
        each = WrittenOut(last, last, last, values)
        chain = each.chain
        chain.append(weights)
        if self._is(weights, "mul") and self._take_dropout(weights, each):
            chain.append(weights := self._other(weights, "softmax"))
        if not self._is(weights, "softmax") or not self._is_over_last(weights):
            return None
        each.softmax, each.front = weights, tuple(self.semantics.meta(weights).shape[:-2])
        scores = self._operands(weights)[0]
        chain.append(scores)
        if self._is(scores, "where") or self._is(scores, "add"):
            each.front = tuple(self.semantics.meta(scores).shape[:-2])
            scores = self._take_mask(scores, each)
            chain.append(scores)
        if self._is(scores, "mul") or self._is(scores, "div"):
            scores, each.scale = self._scaled(scores)
            chain.append(scores)
        if not self._is(scores, "matmul"):
            return None
        each.query, each.keys = self._operands(scores)
        if any(self._memory.touches_written(n) for n in chain):
            return None
        if any(len(self._users(n)) != 1 for n in chain) and not self._take_backward(each):
            return None
        return each if self._has_one_front(each) and self.fits(each) else None

    def _is_over_last(self, softmax: AnyNode) -> bool:
        last = len(self.semantics.meta(softmax).shape) - 1
        return bool(self._parameter(softmax, "dim") == last)

    def _take_dropout(self, node: AnyNode, each: WrittenOut) -> bool:
        """softmax * (cast(p <= uniform(seed)) * (1 / (1 - p)))"""
        s, kept = self.semantics, self._other(node, "mul")
        cast = None if kept is None else self._other(kept, "cast")
        is_drawn: Any = None if cast is None else self._operands(cast)[0]
        if self._other(node, "softmax") is None or not self._is(is_drawn, "le"):
            return False
        p, drawn = self._operands(is_drawn)
        a, b = self._operands(kept)
        factor = b if a is cast else a
        if not self._is(drawn, "uniform") or type(p) is not float or not 0 < p < 1:
            return False
        # the op draws in the type of the weights, one number for each
        same = s.interchangeable(drawn, node) and s.interchangeable(cast, node)
        if not same or type(factor) is not float or not math.isclose(factor, 1 / (1 - p)):
            return False
        each.seed, each.dropout_p, each.kept = self._operands(drawn)[0], p, kept
        return True

    def _take_mask(self, node: AnyNode, each: WrittenOut) -> Any:
        """The scores before the mask, which have its shape; None if it is no mask."""
        operands = self._given(node)
        scores = None
        if self._is(node, "where"):
            each.mask, yes, no = operands
            each.hides = not self.semantics.is_node(yes)
            fill, scores = (yes, no) if each.hides else (no, yes)
            if not isinstance(fill, float):
                return None
            each.fill = fill
        else:
            for first, second in (operands, operands[::-1]):
                if self._is_product(first) and self.semantics.is_node(second):
                    scores, each.mask = first, second
                    break
        meta = self.semantics.meta
        is_whole = self.semantics.is_node(scores) and meta(scores).shape == meta(node).shape
        return self._behind(scores) if is_whole else None

    def _is_product(self, value: Any) -> bool:
        """A product of matrices, perhaps scaled."""
        value = self._behind(value)
        if self._is(value, "mul") or self._is(value, "div"):
            value = self._scaled(value)[0]
        return self._is(value, "matmul")

    def _has_one_front(self, each: WrittenOut) -> bool:
        """Dtypes are equal, and as many matrices are in each: none is expanded."""
        q, k, v = (self.semantics.meta(n) for n in (each.query, each.keys, each.values))
        if q is None or k is None or v is None or not q.dtype == k.dtype == v.dtype:
            return False
        return all(math.prod(x.shape[:-2]) == math.prod(each.front) for x in (q, k, v))
