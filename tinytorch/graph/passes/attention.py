"""Attention written out in products and a softmax, as the one fused op."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass, register_pass
from tinytorch.graph.semantics import AnyGraph, AnyNode


@dataclass
class WrittenOut:
    """dropout(softmax(query @ keys * scale, masked)) @ values, and the node of the result.

    Attributes:
        query, keys, values: (..., l, e), (..., e, s), (..., s, v): the keys transposed.
        mask: bool, of what takes part, or floats that are added; None for none.
        hides: the mask is true for what does not take part.
        is_causal: in place of a mask, query i sees the keys 0 to i.
        seed, dropout_p: of the random numbers below which a weight is dropped.
    """

    last: AnyNode
    query: AnyNode
    keys: AnyNode
    values: AnyNode
    scale: float = 1.0
    mask: AnyNode | None = None
    hides: bool = False
    is_causal: bool = False
    seed: AnyNode | None = None
    dropout_p: float = 0.0


@register_pass
class FusedAttention(OptimizationPass):
    """Finds attention that is written out, and makes it `scaled_dot_product_attention`.

        softmax(q @ k.mT * scale + mask, -1) @ v

    The scale may be missing, multiply or divide; the mask may be missing, be added, or fill in
    -inf; after the softmax there may be a dropout. A constant mask that is causal becomes
    `is_causal`, by which half of the work is left out. A query that sees no key gives NaN written
    out, and 0 in the fused op. A finite number that is filled in stays: a row of nothing else would
    be a mean of all values. So does all whose scores or weights something else uses, such as a
    backward that was traced with it: let the pass run before one differentiates.

    Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.2.1.
    """

    name = "fused-attention"
    exact = False

    def analyze(self, graph: AnyGraph) -> list[WrittenOut]:
        """The attentions that are written out."""
        memory = Aliasing(graph, self.semantics)
        found = [self._match(node, memory) for node in graph.nodes]
        return [each for each in found if each is not None]

    def transform(self, graph: AnyGraph, found: list[WrittenOut]) -> bool:
        for each in found:
            with graph.inserting_before(each.last):
                new = self._build(graph, each)
            new.meta.update({k: v for k, v in each.last.meta.items() if k != "tensor_meta"})
            each.last.replace_all_uses_with(new)
            graph.erase_node(each.last)
        return bool(found)

    def _match(self, last: AnyNode, memory: Aliasing) -> WrittenOut | None:
        """Follow the weights from the last product back to the first; None if it is none."""
        if not self._is(last, "matmul"):
            return None
        weights, values = last.args
        each = WrittenOut(last, last, last, values)
        chain = [weights]
        if self._is(weights, "mul") and self._take_dropout(weights, each):
            chain.append(weights := self._other(weights, "softmax"))
        if not self._is(weights, "softmax") or not self._is_over_last(weights):
            return None
        scores = weights.args[0]
        chain.append(scores)
        if self._is(scores, "where") or self._is(scores, "add"):
            scores = self._take_mask(scores, each)
            chain.append(scores)
        if self._is(scores, "mul") or self._is(scores, "div"):
            scores = self._take_scale(scores, each)
            chain.append(scores)
        if not self._is(scores, "matmul"):
            return None
        each.query, each.keys = scores.args
        if any(len(n.users) != 1 or memory.touches_written(n) for n in chain):
            return None
        return each if self._fits(each, scores) else None

    def _is(self, value: Any, name: str) -> bool:
        s = self.semantics
        return s.is_node(value) and value.op == "call_function" and s.op_name(value) == name

    def _other(self, node: AnyNode, name: str) -> Any:
        """The operand of this op; None if there is none."""
        return next((x for x in node.args if self._is(x, name)), None)

    def _is_over_last(self, softmax: AnyNode) -> bool:
        return bool(softmax.kwargs["dim"] == len(self.semantics.meta(softmax).shape) - 1)

    def _take_dropout(self, node: AnyNode, each: WrittenOut) -> bool:
        """softmax * (cast(p <= uniform(seed)) * (1 / (1 - p)))"""
        s, kept = self.semantics, self._other(node, "mul")
        cast = None if kept is None else self._other(kept, "cast")
        is_drawn: Any = None if cast is None else cast.args[0]
        if self._other(node, "softmax") is None or not self._is(is_drawn, "le"):
            return False
        p, drawn = is_drawn.args
        assert kept is not None and cast is not None
        factor = kept.args[1] if kept.args[0] is cast else kept.args[0]
        if not self._is(drawn, "uniform") or type(p) is not float or not 0 < p < 1:
            return False
        # the op draws in the type of the weights, one number for each
        same = s.interchangeable(drawn, node) and s.interchangeable(cast, node)
        if not same or type(factor) is not float or not math.isclose(factor, 1 / (1 - p)):
            return False
        each.seed, each.dropout_p = drawn.args[0], p
        return True

    def _take_mask(self, node: AnyNode, each: WrittenOut) -> Any:
        """The scores before the mask; None if it is no mask."""
        if self._is(node, "where"):
            condition, yes, no = node.args
            each.mask, each.hides = condition, self._is_lowest(yes)
            return no if each.hides else yes if self._is_lowest(no) else None
        for scores, mask in (node.args, node.args[::-1]):
            if any(self._is(scores, name) for name in ("matmul", "mul", "div")):
                each.mask = mask
                return scores if self.semantics.is_node(mask) else None
        return None

    def _is_lowest(self, value: Any) -> bool:
        return isinstance(value, float) and value == -math.inf

    def _take_scale(self, node: AnyNode, each: WrittenOut) -> Any:
        """The scores before the scale; None if it is none."""
        a, b = node.args
        if self._is(node, "mul") and isinstance(a, (int, float)):
            a, b = b, a
        if not isinstance(b, (int, float)) or b == 0 or not math.isfinite(b):
            return None
        each.scale = float(b) if self._is(node, "mul") else 1.0 / b
        return a

    def _fits(self, each: WrittenOut, scores: AnyNode) -> bool:
        """Shapes and dtypes are those that the fused op takes."""
        meta = self.semantics.meta
        q, k, v = (meta(n) for n in (each.query, each.keys, each.values))
        if not q.dtype == k.dtype == v.dtype or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
            return False
        if each.mask is None:
            return True
        mask, shape = meta(each.mask), meta(scores).shape
        is_bool, added = mask.dtype.name == "bool", mask.dtype == q.dtype
        known = self._constant(each.mask) if is_bool else None
        if known is not None:
            seen = ~known if each.hides else known
            if seen.ndim >= 2 and np.array_equal(
                np.broadcast_to(seen, np.broadcast_shapes(seen.shape, shape)),
                np.broadcast_to(np.tri(shape[-2], shape[-1], dtype=np.bool_), shape),
            ):
                each.mask, each.is_causal = None, True
                return True
        fits = len(mask.shape) <= len(shape) and all(
            n in (1, m) for n, m in zip(mask.shape[::-1], shape[::-1], strict=False)
        )
        return fits and (is_bool or added)

    def _constant(self, node: AnyNode) -> Any:
        """The array of a node that depends on no input; None if it does."""
        s = self.semantics
        if node.op == "get_attr":
            found = s.constant_value(node)
        elif node.op != "call_function" or not s.is_pure(node) or s.is_random(node):
            return None
        else:
            known = {a: self._constant(a) for a in node.all_input_nodes}
            if any(value is None for value in known.values()):
                return None
            found = s.evaluate(node, s.map_arg(node.args, known.__getitem__), dict(node.kwargs))
        return None if found is None else np.asarray(found.numpy())

    def _build(self, graph: AnyGraph, each: WrittenOut) -> AnyNode:
        s, keys, mask = self.semantics, each.keys, each.mask
        ndim = len(s.meta(keys).shape)
        turned = (*range(ndim - 2), ndim - 1, ndim - 2)
        if self._is(keys, "permute") and keys.kwargs["dims"] == turned:
            key = keys.args[0]
        else:
            key = s.call(graph, "permute", (keys,), {"dims": turned})
        if mask is not None and each.hides:
            mask = s.call(graph, "logical_not", (mask,), {})
        inputs = [each.query, key, each.values]
        if each.seed is not None:
            inputs += [True if mask is None else mask, each.seed]
        elif mask is not None:
            inputs.append(mask)
        params = {"is_causal": each.is_causal, "scale": each.scale, "dropout_p": each.dropout_p}
        return s.call(graph, "scaled_dot_product_attention", inputs, params)
