"""Attention: means of values, weighted by how well keys fit queries."""

from __future__ import annotations

import math

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.dtypes import bool_
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.elementwise import logical_not, where
from tinytorch.functions.linalg import matmul
from tinytorch.functions.movement import expand, reshape, unsqueeze
from tinytorch.functions.reductions import softmax
from tinytorch.nn.functional.dropout import dropout
from tinytorch.tensor import Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value

    Args:
        query: (..., l, e)
        key: (..., s, e)
        value: (..., s, v)
        attn_mask: broadcasts to (..., l, s): bool, true for what takes part; or floats to add.
        dropout_p: probability with which a weight is dropped, in evaluation too: pass 0 there.
        is_causal: query i sees the keys 0 to i only.
        scale: by default 1 / sqrt(e).
        enable_gqa: dimension -3 of key and value may be a divisor of query's: groups of query
            heads share a head (grouped-query attention).

    Returns:
        (..., l, v); a query that sees no key gives 0.

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: the mask is of integers.
        ValueError: both a mask and is_causal.

    Source: A. Vaswani et al., "Attention is all you need", 2017, equation 1; J. Ainslie et al.,
    "GQA", 2023.
    """
    out, _ = attention_with_weights(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )
    return out


def attention_with_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """`scaled_dot_product_attention`, and the weights (..., l, s), dropped where dropped."""
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"attention: query {query.shape} must be (..., l, e), key {key.shape} (..., s, e) and "
            f"value {value.shape} (..., s, v)"
        )
    if attn_mask is not None:
        check_mask("attn_mask", attn_mask)
    if attn_mask is not None and is_causal:
        raise ValueError("attention: give either attn_mask or is_causal=True")
    if enable_gqa:
        heads = query.shape[-3]
        key, value = (_repeated(x, heads) for x in (key, value))
    scores = matmul(query * (query.shape[-1] ** -0.5 if scale is None else scale), key.mT)
    if is_causal:
        attn_mask = from_numpy(np.tri(query.shape[-2], key.shape[-2], dtype=bool))
    if attn_mask is None:
        weights = softmax(scores, -1)
    else:
        if attn_mask.dtype is bool_:
            blocked = logical_not(attn_mask)
        else:
            blocked, scores = attn_mask == -math.inf, scores + attn_mask
        # a row of -inf is not a distribution: softmax and its gradient are NaN there, PyTorch's 0
        weights = where(blocked, 0.0, softmax(where(blocked, -math.inf, scores), -1))
    weights = dropout(weights, dropout_p)
    return matmul(weights, value), weights


def check_mask(name: str, mask: Tensor) -> None:
    """Raise DTypeError for a mask of integers, which could mean either kind."""
    if mask.dtype is not bool_ and not mask.dtype.is_floating_point:
        raise DTypeError(
            f"{name} must be bool, or floats to add, not {mask.dtype.name}; use mask.bool()"
        )


def _repeated(x: Tensor, heads: int) -> Tensor:
    """(..., kv heads, s, e) with each head repeated until there are `heads`."""
    if x.ndim < 3 or heads % x.shape[-3]:
        raise ShapeError(f"attention: {heads} query heads cannot share the heads of {x.shape}")
    times = heads // x.shape[-3]
    spread = expand(unsqueeze(x, -3), (*x.shape[:-2], times, *x.shape[-2:]))
    return reshape(spread, (*x.shape[:-3], heads, *x.shape[-2:]))
