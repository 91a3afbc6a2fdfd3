"""Attention and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.attention.loops import Gradients, Operands, Sizes, entries
from tinytorch.backends.optimized.symbols.records import ATTENTION_WORDS, AttentionRecord
from tinytorch.backends.optimized.symbols.table import REALS, declare
from tinytorch.jit.library import kernel
from tinytorch.jit.views import strided, view, words


def _declare(real: Any) -> None:
    of_dtype = entries(np.dtype(real).itemsize)
    forward, backward = of_dtype.kernel("forward"), of_dtype.kernel("backward")
    itemsize = np.dtype(real).itemsize

    @kernel
    def operands(plan: int, q: int, k: int, v: int, mask: int) -> Operands:
        """Query, key, value, and the mask as one of bool and as one of floats."""
        r = AttentionRecord(*words(plan, ATTENTION_WORDS))
        shape = (r.batch, r.heads, r.group, r.queries, r.keys)
        steps = (r.mask_batch, r.mask_head, r.mask_group, r.mask_row, r.mask_column)
        q_shape = (r.batch, r.heads, r.group, r.queries, r.e)
        q_steps = (r.q_batch, r.q_head, r.q_group, r.q_row, itemsize)
        k_steps = (r.k_batch, r.k_head, r.k_row, itemsize)
        v_steps = (r.v_batch, r.v_head, r.v_row, itemsize)
        return Operands(
            strided(real, q, q_shape, q_steps),
            strided(real, k, (r.batch, r.heads, r.keys, r.e), k_steps),
            strided(real, v, (r.batch, r.heads, r.keys, r.v), v_steps),
            strided(np.uint8, mask, shape, steps),
            strided(real, mask, shape, steps),
        )

    @kernel
    def sizes(plan: int, scale: float, dropout_p: float, seed: int) -> Sizes:
        r = AttentionRecord(*words(plan, ATTENTION_WORDS))
        number: int = view(np.int64, seed, 1)[0] if dropout_p > 0 else 0
        lengths, is_causal = (r.queries, r.keys, r.e, r.v), r.is_causal != 0
        return Sizes(*lengths, is_causal, r.mask, scale, dropout_p, number, r.block, r.pitch)

    @declare(
        "scaled_dot_product_attention", real, "plan *scale *dropout_p q k v mask seed out scratch"
    )
    def attention(
        plan: int,
        scale: float,
        dropout_p: float,
        q: int,
        k: int,
        v: int,
        mask: int,
        seed: int,
        out: int,
        scratch: int,
    ) -> None:
        s = sizes(plan, scale, dropout_p, seed)
        x = operands(plan, q, k, v, mask)
        batch, heads, group = x.q.shape[0], x.q.shape[1], x.q.shape[2]
        shape = (batch, heads, group, s.queries, s.v)
        forward(s, 0, batch * heads, x, view(real, out, shape), scratch)

    @declare(
        "scaled_dot_product_attention_backward", real,
        "plan *scale *dropout_p g q k v mask seed out scratch",
    )  # fmt: skip
    def attention_backward(
        plan: int,
        scale: float,
        dropout_p: float,
        g: int,
        q: int,
        k: int,
        v: int,
        mask: int,
        seed: int,
        out: int,
        scratch: int,
    ) -> None:
        s = sizes(plan, scale, dropout_p, seed)
        x = operands(plan, q, k, v, mask)
        batch, heads, group = x.q.shape[0], x.q.shape[1], x.q.shape[2]
        dk = out + batch * heads * group * s.queries * s.e * itemsize
        dv = dk + batch * heads * s.keys * s.e * itemsize
        upper = view(real, g, (batch, heads, group, s.queries, s.v))
        gradients = Gradients(
            view(real, out, (batch, heads, group, s.queries, s.e)),
            view(real, dk, (batch, heads, s.keys, s.e)),
            view(real, dv, (batch, heads, s.keys, s.v)),
        )
        backward(s, 0, batch * heads, upper, x, gradients, scratch)


for _real in REALS:
    _declare(_real)
