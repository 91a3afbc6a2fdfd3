"""What attention and its gradient mean, in terms of the other ops.

Importing this module attaches them to the op table by name, as `decompositions.py` does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tinytorch import ops
from tinytorch.decompositions import decomposition
from tinytorch.dispatch import apply
from tinytorch.dtypes import DEFAULT_FLOAT, DEFAULT_INT, Shape, bool_, float64
from tinytorch.functions.elementwise import le, logical_and, ne, where
from tinytorch.functions.movement import cat, expand, in_shape, narrow, unsqueeze
from tinytorch.functions.reductions import softmax, sum as sum_, sum_to

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Mask = Any  # a Tensor; or None or True, by which every query sees every key
Seed = Any  # a Tensor; or None or 0, where nothing is dropped


@decomposition
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    seed: Seed = None,
    *,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """dropout(softmax(query @ key.T * scale + mask)) @ value; a query that sees no key gives 0.

    Args:
        query: (..., heads, l, e), or (l, e).
        key, value: (..., kv heads, s, e) and (..., kv heads, s, v); the heads divide the query's,
            and neighbouring query heads share one.
        mask: broadcasts to (..., heads, l, s): bool, true for what takes part; or floats to add,
            where -inf is what does not.
        seed: of `uniform`, of which element (..., i, j) below `dropout_p` drops the weight (i, j).
        is_causal: query i sees the keys 0 to i only.

    Returns:
        (..., heads, l, v)

    Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.2.1.
    """
    weights, kept = attention_weights(query, key, mask, seed, is_causal, scale, dropout_p)
    if kept is not None:
        weights = weights * kept
    return apply(ops.matmul, weights, _for_each_query_head(value, query))


@decomposition
def scaled_dot_product_attention_backward(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    seed: Seed = None,
    *,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """The gradients for query, key and value, flat, one after the other.

        dvalue = weights.T @ g,   dquery = dscores @ key * scale,   dkey = dscores.T @ query * scale
        dscores = weights * (dweights - sum(weights * dweights)),   dweights = g @ value.T

    The scores are computed once more, and not kept from the forward: see `FlashAttention`.

    Source: T. Dao et al., "FlashAttention", 2022, algorithm 4.
    """
    weights, kept = attention_weights(query, key, mask, seed, is_causal, scale, dropout_p)
    scores_gradient = _scores_gradient(g, weights, kept, _for_each_query_head(value, query))
    dropped = weights if kept is None else weights * kept
    keys = _for_each_query_head(key, query)
    parts = (
        apply(ops.matmul, scores_gradient, keys) * scale,
        _over_shared_heads(apply(ops.matmul, scores_gradient.mT, query) * scale, key.shape),
        _over_shared_heads(apply(ops.matmul, dropped.mT, g), value.shape),
    )
    return cat([in_shape(part, (part.meta.size,)) for part in parts], 0)


def mask_gradient(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    seed: Seed,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """The gradient of the attention for a mask of floats: that of the scores it was added to."""
    weights, kept = attention_weights(query, key, mask, seed, is_causal, scale, dropout_p)
    return sum_to(
        _scores_gradient(g, weights, kept, _for_each_query_head(value, query)), mask.shape
    )


def part_of_gradients(flat: Tensor, position: int, shapes: tuple[Shape, ...]) -> Tensor:
    """The gradient of the input at `position`, out of all that lie one after the other."""
    start = sum(map(math.prod, shapes[:position]))
    size = math.prod(shapes[position])
    return in_shape(narrow(flat, 0, start, size), shapes[position])


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Mask,
    seed: Seed,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> tuple[Tensor, Tensor | None]:
    """The weights (..., heads, l, s), and what dropout multiplies them with (None: no dropout)."""
    scores = apply(ops.matmul, query * scale, _for_each_query_head(key, query).mT)
    visible = _is_earlier(*scores.shape[-2:]) if is_causal else None
    if mask is not None and mask is not True:
        seen = mask
        if mask.dtype is not bool_:
            seen, scores = ne(mask, -math.inf), scores + mask
        visible = seen if visible is None else logical_and(visible, seen)
    if visible is None:
        weights = softmax(scores, -1)
    else:
        # a row of -inf is not a distribution: softmax and its gradient are NaN there, this is 0
        weights = where(visible, softmax(where(visible, scores, -math.inf), -1), 0.0)
    return weights, _kept(weights, seed, dropout_p)


def _is_earlier(length: int, size: int) -> Tensor:
    """(length, size): whether key j does not come after query i."""
    rows, columns = (
        apply(ops.arange, start=0, stop=n, step=1, dtype=DEFAULT_INT) for n in (length, size)
    )
    return le(columns, unsqueeze(rows, 1))


def _kept(weights: Tensor, seed: Seed, p: float) -> Tensor | None:
    """0 where a weight is dropped, 1 / (1 - p) elsewhere; None where nothing is."""
    if p == 0:
        return None
    if p == 1:
        return weights.detach() * 0.0
    kind = float64 if weights.dtype is float64 else DEFAULT_FLOAT
    drawn = apply(ops.uniform, seed, shape=weights.shape, dtype=kind)
    return (drawn >= p).to(weights.dtype) * (1 / (1 - p))


def _scores_gradient(g: Tensor, weights: Tensor, kept: Tensor | None, values: Tensor) -> Tensor:
    change = apply(ops.matmul, g, values.mT)
    if kept is not None:
        change = change * kept
    return weights * (change - sum_(weights * change, -1, True))


def _for_each_query_head(x: Tensor, query: Tensor) -> Tensor:
    """(..., kv heads, s, e) with each head repeated until there are the query's."""
    if x.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    times = query.shape[-3] // x.shape[-3]
    spread = expand(unsqueeze(x, -3), (*x.shape[:-2], times, *x.shape[-2:]))
    return in_shape(spread, (*query.shape[:-2], *x.shape[-2:]))


def _over_shared_heads(gradient: Tensor, shape: Shape) -> Tensor:
    """Gradients for heads that were repeated, summed for each head that there is."""
    if gradient.shape == shape:
        return gradient
    times = gradient.shape[-3] // shape[-3]
    return sum_(in_shape(gradient, (*shape[:-2], times, *shape[-2:])), -3)
