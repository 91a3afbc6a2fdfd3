"""Attention: means of values, weighted by how well keys fit queries."""

from __future__ import annotations

from typing import Any

from tinytorch import ops
from tinytorch.decompositions_attention import attention_weights
from tinytorch.dispatch import apply
from tinytorch.dtypes import Shape, bool_
from tinytorch.errors import DTypeError
from tinytorch.functions.linalg import matmul
from tinytorch.functions.movement import expand
from tinytorch.nn.functional.dropout import check_probability
from tinytorch.random import seed_tensor
from tinytorch.shapes import broadcast
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
        (..., l, v). A query that sees no key (all false, or all -inf) gives 0, and gradients of 0.

    The dimensions before the last two broadcast. The weights (..., l, s) are nowhere in memory as a
    whole where the backend has a kernel for this op, and those that dropout drops are drawn again,
    from the same seed, in the backward.

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: the mask is of integers.
        ValueError: both a mask and is_causal, or dropout_p is no probability.

    >>> from tinytorch import ones
    >>> scaled_dot_product_attention(ones(2, 4), ones(3, 4), ones(3, 5)).shape
    (2, 5)

    Source: A. Vaswani et al., "Attention is all you need", 2017, equation 1; J. Ainslie et al.,
    "GQA", 2023.
    """
    if attn_mask is not None and is_causal:
        raise ValueError("attention: give either attn_mask or is_causal=True")
    if attn_mask is not None:
        check_mask("attn_mask", attn_mask)
    query, key, value = _broadcast(query, key, value, enable_gqa)
    inputs: list[Any] = [query, key, value]
    if check_probability(dropout_p):
        inputs += [True if attn_mask is None else attn_mask, seed_tensor()]
    elif attn_mask is not None:
        inputs.append(attn_mask)
    return apply(
        ops.scaled_dot_product_attention, *inputs,
        is_causal=is_causal, scale=_scale(query, scale), dropout_p=float(dropout_p),
    )  # fmt: skip


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`scaled_dot_product_attention`, and the weights (..., l, s), dropped where dropped."""
    query, key, value = _broadcast(query, key, value, False)
    seed = seed_tensor() if check_probability(dropout_p) else None
    weights, kept = attention_weights(
        query, key, mask, seed, False, _scale(query, None), float(dropout_p)
    )
    weights = weights if kept is None else weights * kept
    return matmul(weights, value), weights


def check_mask(name: str, mask: Tensor) -> None:
    """Raise DTypeError for a mask of integers, which could mean either kind."""
    if mask.dtype is not bool_ and not mask.dtype.is_floating_point:
        raise DTypeError(
            f"{name} must be bool, or floats to add, not {mask.dtype.name}; use mask.bool()"
        )


def _scale(query: Tensor, scale: float | None) -> float:
    return float(max(query.shape[-1], 1) ** -0.5 if scale is None else scale)


def _broadcast(
    query: Tensor, key: Tensor, value: Tensor, grouped: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """With the same dimensions in front; if `grouped`, the heads (dimension -3) stay as they are.

    The op's own rule says what is wrong with shapes that do not fit.
    """
    tensors = (query, key, value)
    fronts = [x.shape[: -3 if grouped else -2] for x in tensors]
    if min(x.ndim for x in tensors) < (3 if grouped else 2) or fronts[0] == fronts[1] == fronts[2]:
        return tensors
    front: Shape = broadcast("attention (dimensions in front)", fronts)
    q, k, v = (
        expand(x, (*front, *x.shape[-3 if grouped else -2 :])) if old != front else x
        for x, old in zip(tensors, fronts, strict=True)
    )
    return q, k, v
