"""softmax(q k.T / sqrt(e)) v, and what a gradient of it gives to q, k and v.

q (n, h, l, e), k and v (n, h, s, e), the gradient g of the result (n, h, l, e), all float32. What
is called is TinyTorch's `F.scaled_dot_product_attention` and its backward, on the entry's kernels:
one fused kernel, or products and a softmax.

Source: A. Vaswani et al., "Attention is all you need", 2017, equation 1; T. Dao et al.,
"FlashAttention", 2022, algorithm 4 (the backward, and D = rowsum(dO * O)).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tinytorch.bench.accuracy import rounding_bound
from tito.compete.event import Array, Problem
from tito.compete.steps import Torch, run_step

__all__ = ["Torch", "call", "make", "reference"]

EPS = float(np.finfo(np.float32).eps)
ROUNDINGS = 8.0  # in units of eps: of exp, the quotient, the scale and a few products
TINY = float(np.finfo(np.float32).tiny)


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Sizes from the case's ranges; every row has a scale of its own."""

    def size(name: str) -> int:
        return int(draw.integers(*case[name], endpoint=True))

    front, queries, width = (size("batch"), size("heads")), size("queries"), size("width")
    keys = size("keys") if "keys" in case else queries
    causal, forward = case.get("causal", False), case.get("forward", False)
    # larger scores would give all the weight to one key: there is nothing to compute then
    q, k = _values(draw, (*front, queries, width), 0.5), _values(draw, (*front, keys, width), 0.5)
    v, g = _values(draw, (*front, keys, width), 2), _values(draw, (*front, queries, width), 2)
    pairs = queries * (queries + 1) / 2 if causal else queries * keys
    products = 2 if forward else 6  # q k.T and w v; g v.T, w.T g, ds k, ds.T q
    return Problem(
        [q, k, v] if forward else [q, k, v, g],
        [(a.shape, "f4") for a in ((q,) if forward else (q, q, k, v))],
        flops=2.0 * products * front[0] * front[1] * pairs * width,
        parameters={"causal": causal},
    )


def _values(draw: np.random.Generator, shape: tuple[int, ...], decades: float) -> Array:
    scales = 10 ** draw.uniform(-decades, decades, (*shape[:-1], 1))
    return (draw.standard_normal(shape) * scales).astype(np.float32)


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """The result, and unless it is forward only the gradients of q, k and v."""
    return run_step(partial(_attention, parameters["causal"]), entry, inputs)


def _attention(
    causal: bool, from_array: Any, functional: Any, inputs: Sequence[Array]
) -> list[Array]:
    q, k, v, *rest = map(from_array, inputs)
    for x in (q, k, v) if rest else ():
        x.requires_grad_()
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    if not rest:
        return [out.numpy()]
    out.backward(rest[0])
    return [out.detach().numpy(), q.grad.numpy(), k.grad.numpy(), v.grad.numpy()]


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64, with a bound for each element that follows errors through the formulas.

    Let s be the scores and w the weights. What a score is off, `off_s`, moves its weight by as much
    relative to it, and the sum of its row too: `off_w`. What follows are products with w, each with
    the error of w and that of its own sum.
    """
    q, k, v, *rest = (a.astype(np.float64) for a in inputs)
    scale, width = q.shape[-1] ** -0.5, q.shape[-1]
    one = np.ones(())  # of sums: how far they may be off relative to their terms' sizes
    over_width = rounding_bound(width, one)
    over_queries, over_keys = (rounding_bound(x.shape[-2], one) for x in (q, k))
    w, below = _weights(q @ k.mT * scale, parameters["causal"])
    off_s = (over_width + EPS) * scale * (np.abs(q) @ np.abs(k).mT)
    off_w = off_s + (w * off_s).sum(-1, keepdims=True)  # relative, as all that follows
    off_w += over_keys / 2 + EPS * (ROUNDINGS + 2 * below)  # the sum has no products to round
    found = [(w @ v, (w * (off_w + over_keys)) @ np.abs(v) + TINY)]
    if not rest:
        return found
    g = rest[0]
    dw, most = g @ v.mT, np.abs(g) @ np.abs(v).mT
    off_dw = over_width * most
    total = (w * dw).sum(-1, keepdims=True)  # over keys, or g times the result: the same number
    off_total = (w * (off_w + over_keys + over_width) * most).sum(-1, keepdims=True)
    ds = w * (dw - total)
    rounded = ROUNDINGS * EPS * (np.abs(dw) + np.abs(total))
    off_ds = w * (off_w * np.abs(dw - total) + off_dw + off_total + rounded)

    def gradient(left: Array, off: Array, right: Array, sum_: Array) -> tuple[Array, Array]:
        bound = (off + (sum_ + 2 * EPS) * np.abs(left)) @ np.abs(right)
        return left @ right, bound + TINY

    return [
        *found,
        gradient(ds * scale, off_ds * scale, k, over_keys),
        gradient(ds.mT * scale, off_ds.mT * scale, q, over_queries),
        gradient(w.mT, (w * off_w).mT, g, over_queries),
    ]


def _weights(scores: Array, causal: bool) -> tuple[Array, Array]:
    """softmax of the scores, and how far below its row's largest each of them is."""
    if causal:
        seen = np.tri(*scores.shape[-2:], dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    below = scores.max(-1, keepdims=True) - scores
    w = np.exp(-below)
    return w / w.sum(-1, keepdims=True), np.where(np.isfinite(below), below, 0.0)
