"""Attention and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.attention.loops import Sizes, entries
from tinytorch.backends.optimized.symbols.table import REALS, declare
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.views import strided, view, words


def _declare(real: Any) -> None:
    of_dtype = entries(np.dtype(real).itemsize)
    forward, backward = of_dtype.kernel("forward"), of_dtype.kernel("backward")
    itemsize = np.dtype(real).itemsize

    @kernel
    def operands(plan: int, q: int, k: int, v: int, mask: int) -> tuple[Array, ...]:
        """Query, key, value, and the mask as one of bool and as one of floats.

        Args:
            plan: address of 26 int64: batch, heads, group, queries, keys, e, v, causal order, kind
                of mask, block and pitch (see `Sizes`); strides of the query for batch, head, group
                and row, of key and value for batch, head and row, of the mask for all five
                dimensions. The elements of a row are adjacent.
        """
        w = words(plan, 26)
        batch, heads, group, queries, keys, e, wide = w[0], w[1], w[2], w[3], w[4], w[5], w[6]
        shape = (batch, heads, group, queries, keys)
        steps = (w[21], w[22], w[23], w[24], w[25])
        return (
            strided(
                real, q, (batch, heads, group, queries, e), (w[11], w[12], w[13], w[14], itemsize)
            ),
            strided(real, k, (batch, heads, keys, e), (w[15], w[16], w[17], itemsize)),
            strided(real, v, (batch, heads, keys, wide), (w[18], w[19], w[20], itemsize)),
            strided(np.uint8, mask, shape, steps),
            strided(real, mask, shape, steps),
        )

    @kernel
    def sizes(plan: int, scale: float, dropout_p: float, seed: int) -> Sizes:
        w = words(plan, 26)
        number: int = view(np.int64, seed, 1)[0] if dropout_p > 0 else 0
        return Sizes(w[3], w[4], w[5], w[6], w[7] != 0, w[8], scale, dropout_p, number, w[9], w[10])

    @declare(
        "scaled_dot_product_attention", real, "plan *scale *dropout_p q k v mask seed out scratch"
    )
    def attention(
        plan: int, scale: float, dropout_p: float, q: int, k: int, v: int, mask: int, seed: int,
        out: int, scratch: int,
    ) -> None:  # fmt: skip
        s = sizes(plan, scale, dropout_p, seed)
        query, key, value, hides, adds = operands(plan, q, k, v, mask)
        batch, heads, group = query.shape[0], query.shape[1], query.shape[2]
        shape = (batch, heads, group, s.queries, s.v)
        forward(
            s, 0, batch * heads, query, key, value, hides, adds, view(real, out, shape), scratch
        )

    @declare(
        "scaled_dot_product_attention_backward", real,
        "plan *scale *dropout_p g q k v mask seed out scratch",
    )  # fmt: skip
    def attention_backward(
        plan: int, scale: float, dropout_p: float, g: int, q: int, k: int, v: int, mask: int,
        seed: int, out: int, scratch: int,
    ) -> None:  # fmt: skip
        s = sizes(plan, scale, dropout_p, seed)
        query, key, value, hides, adds = operands(plan, q, k, v, mask)
        batch, heads, group = query.shape[0], query.shape[1], query.shape[2]
        dk = out + batch * heads * group * s.queries * s.e * itemsize
        dv = dk + batch * heads * s.keys * s.e * itemsize
        backward(
            s, 0, batch * heads, view(real, g, (batch, heads, group, s.queries, s.v)), query, key,
            value, hides, adds, view(real, out, (batch, heads, group, s.queries, s.e)),
            view(real, dk, (batch, heads, s.keys, s.e)),
            view(real, dv, (batch, heads, s.keys, s.v)), scratch,
        )  # fmt: skip


for _real in REALS:
    _declare(_real)
