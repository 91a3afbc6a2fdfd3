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
        shape = (r.batch, r.heads * r.group, r.queries, r.keys)
        steps = (r.mask_batch, r.mask_head, r.mask_row, r.mask_column)
        q_shape = (r.batch, r.heads * r.group, r.queries, r.e)
        q_steps = (r.q_batch, r.q_head, r.q_row, itemsize)
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
        r = AttentionRecord(*words(plan, ATTENTION_WORDS))
        shape = (r.batch, r.heads * r.group, s.queries, s.v)
        steps = (r.out_batch, r.out_head, r.out_row, itemsize)
        x, to = operands(plan, q, k, v, mask), strided(real, out, shape, steps)
        forward(s, 0, r.batch * r.heads, x, to, scratch)

    @declare(
        "scaled_dot_product_attention_backward", real,
        "plan *scale *dropout_p upper q k v mask seed dq dk dv scratch",
    )  # fmt: skip
    def attention_backward(
        plan: int,
        scale: float,
        dropout_p: float,
        upper: int,
        q: int,
        k: int,
        v: int,
        mask: int,
        seed: int,
        dq: int,
        dk: int,
        dv: int,
        scratch: int,
    ) -> None:
        s = sizes(plan, scale, dropout_p, seed)
        r = AttentionRecord(*words(plan, ATTENTION_WORDS))
        front = (r.batch, r.heads * r.group, s.queries)
        steps = (r.upper_batch, r.upper_head, r.upper_row, itemsize)
        dq_steps = (r.out_batch, r.out_head, r.out_row, itemsize)
        dk_steps = (r.dk_batch, r.dk_head, r.dk_row, itemsize)
        dv_steps = (r.dv_batch, r.dv_head, r.dv_row, itemsize)
        gradients = Gradients(
            strided(real, dq, (*front, s.e), dq_steps),
            strided(real, dk, (r.batch, r.heads, s.keys, s.e), dk_steps),
            strided(real, dv, (r.batch, r.heads, s.keys, s.v), dv_steps),
        )
        g, x = strided(real, upper, (*front, s.v), steps), operands(plan, q, k, v, mask)
        backward(s, 0, r.batch * r.heads, g, x, gradients, scratch)


for _real in REALS:
    _declare(_real)
