"""ATen's scaled dot-product attention, forward and backward, in its parts.

Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.2.1.
"""

from __future__ import annotations

import math

import numpy as np

from tinytorch.dispatch import wrap
from tinytorch.dtypes import meta_of_array
from tinytorch.functions import elementwise as e, linalg, reductions as r
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.tensor import Tensor


def _scores(
    q: Tensor, k: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None
) -> Tensor:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = linalg.matmul(q * factor, k.mT)
    if is_causal:
        below = np.tri(*scores.shape[-2:], dtype=np.bool_)
        scores = e.where(wrap(below, meta_of_array(below)), scores, -math.inf)
    if mask is not None and mask.dtype.name == "bool":
        return e.where(mask, scores, -math.inf)
    return scores if mask is None else scores + mask


def _weights(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax; 0 for a query that sees no key, of which softmax and its gradient would be NaN."""
    if mask is None:
        return r.softmax(scores, -1)
    is_seen = e.ne(scores, -math.inf)
    return e.where(is_seen, r.softmax(e.where(is_seen, scores, -math.inf), -1), 0.0)


def _no_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise NotImplementedError("attention with dropout: its random numbers are PyTorch's")


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The result (n, heads, length, size), and logsumexp of the scores (n, heads, length)."""
    _no_dropout(dropout_p)
    scores = _scores(q, k, is_causal, attn_mask, scale)
    return linalg.matmul(_weights(scores, attn_mask), v), r.logsumexp(scores, -1)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The softmax is computed again from the scores."""
    _no_dropout(dropout_p)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    weights = _weights(_scores(q, k, is_causal, attn_mask, scale), attn_mask)
    grad_weights = linalg.matmul(grad, v.mT)
    grad_scores = weights * (grad_weights - r.sum(grad * out, -1, True)) * factor
    return (
        linalg.matmul(grad_scores, k),
        linalg.matmul(grad_scores.mT, q),
        linalg.matmul(weights.mT, grad),
    )


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    _no_dropout(dropout_p)
    if enable_gqa:
        raise NotImplementedError("attention with grouped queries")
    scores = _scores(q, k, is_causal, attn_mask, scale)
    return linalg.matmul(_weights(scores, attn_mask), v)
