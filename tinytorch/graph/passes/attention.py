"""Attention that is written out in our graphs, as `scaled_dot_product_attention`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from tinytorch.graph.passes.attention_parts import HIDES_ALL, HIDES_SOME, Gradients, WrittenOut
from tinytorch.graph.passes.attention_pattern import RecognizedAttention
from tinytorch.graph.passes.base import register_pass
from tinytorch.graph.passes.matrix_reader import inherit, transposed_dims
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, Semantics


@register_pass
class FusedAttention(RecognizedAttention):
    """Makes attention that is written out `scaled_dot_product_attention`, and its backward, too.

    A constant mask that is causal becomes `is_causal`, by which half of the work is left out. A
    query that sees no key gives NaN written out, and 0 in the fused op.

    A large negative number that is filled in is as good as -inf where a constant mask leaves
    something in every row. Under another mask a row of nothing else is the mean of all values: such
    a number is added, if the scores are lost in its rounding.

    Args:
        least_bytes: of the scores of one head, from which on a step with a backward is rewritten:
            the op computes them again in the backward, which takes longer than to read them where
            they are near.
    """

    name = "fused-attention"

    def __init__(self, semantics: Semantics = TINYTORCH, *, least_bytes: int = 0) -> None:
        super().__init__(semantics)
        self.least_bytes = least_bytes

    def fits(self, each: WrittenOut) -> bool:
        scores = self.semantics.meta(each.chain[-1])
        nbytes = math.prod(scores.shape[-2:]) * scores.dtype.itemsize
        if each.backward is not None and nbytes < self.least_bytes:
            return False
        if each.mask is None:
            return True
        if each.fill is None:  # floats that are added, with a gradient of their own
            is_added = self.semantics.meta(each.mask).dtype == self.semantics.meta(each.query).dtype
            return bool(is_added)
        if self.semantics.meta(each.mask).dtype.name != "bool":
            return False
        known = self.constant(each.mask)
        if known is None:
            return each.fill <= HIDES_ALL
        shape = (*each.front, *scores.shape[-2:])
        seen = np.broadcast_to(known.numpy() ^ each.hides, shape)
        if each.fill != -math.inf:
            if not (seen.any(-1).all() and each.fill <= HIDES_SOME):
                return False
            each.fill = -math.inf
        if (seen == np.tri(*scores.shape[-2:], dtype=np.bool_)).all():
            each.mask, each.is_causal = None, True
        return True

    def rewrite(self, graph: AnyGraph, each: WrittenOut) -> None:
        s, keys, mask = self.semantics, each.keys, each.mask
        turned = transposed_dims(len(s.meta(keys).shape))
        if self._is(keys, "permute") and keys.kwargs["dims"] == turned:
            key = keys.args[0]
        else:
            key = s.call(graph, "permute", (keys,), {"dims": turned})
        if mask is not None:
            mask = self._mask(graph, each)
        inputs = [self.with_front(graph, x, each.front) for x in (each.query, key, each.values)]
        if each.seed is not None:
            inputs += [True if mask is None else mask, each.seed]
        elif mask is not None:
            inputs.append(mask)
        params = {"is_causal": each.is_causal, "scale": each.scale, "dropout_p": each.dropout_p}
        new = s.call(graph, "scaled_dot_product_attention", inputs, params)
        self.replace(graph, each.last, new)
        if each.backward is not None:
            readers = each.backward.readers
            first = next(node for node in graph.nodes if node in readers)
            with graph.inserting_before(first):
                each.backward.g = self.with_front(graph, each.backward.g, each.front)
                self._rewrite_backward(graph, each.backward, inputs, params)

    def _mask(self, graph: AnyGraph, each: WrittenOut) -> Any:
        """The mask as the op takes it: true for what takes part, or floats that are added."""
        s, mask = self.semantics, each.mask
        if each.fill is None:
            return mask
        is_added = each.fill != -math.inf
        if each.hides is not is_added:
            mask = s.call(graph, "logical_not", (mask,), {})
        if not is_added:
            return mask
        ones = s.call(graph, "cast", (mask,), {"dtype": s.meta(each.query).dtype})
        return s.call(graph, "mul", (ones, each.fill), {})

    def _rewrite_backward(
        self, graph: AnyGraph, found: Gradients, inputs: Sequence[Any], params: dict[str, Any]
    ) -> None:
        """All gradients out of one op, which has them one after the other."""
        s = self.semantics
        name = "scaled_dot_product_attention_backward"
        flat = s.call(graph, name, (found.g, *inputs), params)
        inherit(flat, found.readers[0])
        shapes = [s.meta(x).shape for x in inputs[:3]]
        ends = [0, *accumulate(map(math.prod, shapes))]
        for number, old in ((0, found.query), (1, found.key), (1, found.keys), (2, found.values)):
            if old is None:
                continue
            shape = shapes[number]
            bounds = ((ends[number], ends[number + 1], 1),)
            new = s.call(graph, "slice", (flat,), {"bounds": bounds})
            inherit(new, old)
            new = s.call(graph, "reshape", (new,), {"shape": shape})
            if old is found.keys:
                inherit(new, old)
                new = s.call(graph, "permute", (new,), {"dims": transposed_dims(len(shape))})
            self.replace(graph, old, new)
