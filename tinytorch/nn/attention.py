"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

from tinytorch.creation import zeros
from tinytorch.dtypes import DType, bool_
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.functions.movement import (
    cat,
    expand,
    flatten,
    pad,
    reshape,
    split,
    squeeze,
    transpose,
    unsqueeze,
)
from tinytorch.functions.reductions import mean
from tinytorch.nn import functional as F, init
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.functional.attention import (
    attention_with_weights,
    check_mask,
    scaled_dot_product_attention,
)
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class MultiheadAttention(Module):
    """Several attentions at once, each on its own projection; their results are joined and mixed.

    Args:
        embed_dim: features of the query and of the result; a multiple of num_heads.
        num_heads: how many attentions.
        dropout: probability with which a weight is dropped in training.
        bias: False to go without biases.
        add_bias_kv: a trained key and value more.
        add_zero_attn: a key and value of zeros more.
        kdim, vdim: features of key and value, by default embed_dim.
        batch_first: tensors are (n, length, features) and not (length, n, features).
        device, dtype: of the parameters.

    Attributes:
        in_proj_weight: (3 * embed_dim, embed_dim), for query, key and value; or, with kdim or vdim,
            q_proj_weight, k_proj_weight, v_proj_weight.
        in_proj_bias: (3 * embed_dim,); or None.
        out_proj: the `Linear` that mixes the results.

    Raises:
        ValueError: embed_dim is no multiple of num_heads.

    Source: A. Vaswani et al., "Attention is all you need", 2017, section 3.2.2.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter
    k_proj_weight: Parameter
    v_proj_weight: Parameter

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if min(embed_dim, num_heads) < 1 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim {embed_dim} must be a multiple of num_heads "
                f"{num_heads}"
            )
        kind = parameter_dtype(device, dtype)
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim, self.batch_first = embed_dim // num_heads, batch_first
        self.add_zero_attn = add_zero_attn
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = Parameter(zeros(3 * embed_dim, embed_dim, dtype=kind))
        else:
            self.in_proj_weight = None
            for name, width in zip("qkv", (embed_dim, self.kdim, self.vdim), strict=True):
                weight = Parameter(zeros(embed_dim, width, dtype=kind))
                setattr(self, f"{name}_proj_weight", weight)
        self.in_proj_bias = Parameter(zeros(3 * embed_dim, dtype=kind)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=kind)
        row = (1, 1, embed_dim)
        self.bias_k = Parameter(zeros(row, dtype=kind)) if add_bias_kv else None
        self.bias_v = Parameter(zeros(row, dtype=kind)) if add_bias_kv else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew; the biases become 0."""
        for name, weight in self.own_parameters():
            if name.endswith("weight"):
                init.xavier_uniform_(weight)
            elif name in ("bias_k", "bias_v"):
                init.xavier_normal_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The values, weighted by how well their keys fit the queries.

        Args:
            query: (l, n, embed_dim); key: (s, n, kdim); value: (s, n, vdim). With batch_first n
                comes first; one sequence may be without n.
            key_padding_mask: (n, s): true for keys that do not take part, or floats to add.
            need_weights: give the weights too, else None.
            attn_mask: (l, s) or (n * num_heads, l, s): likewise.
            average_attn_weights: the mean of the weights over the heads, and not each head's.
            is_causal: says that attn_mask is causal; it changes nothing.

        Returns:
            (l, n, embed_dim), and weights (n, l, s) or (n, num_heads, l, s).

        Raises:
            ShapeError: the shapes do not fit.
            DTypeError: a mask is of integers.
            ValueError: is_causal without attn_mask.
        """
        if is_causal and attn_mask is None:
            raise ValueError(
                "MultiheadAttention: is_causal=True only says that attn_mask is causal; pass "
                "attn_mask=Transformer.generate_square_subsequent_mask(length) too"
            )
        if query.ndim == 2:
            mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
            at = 0 if self.batch_first else 1
            q, k, v = (unsqueeze(x, at) for x in (query, key, value))
            out, weights = self.forward(
                q, k, v, mask, need_weights, attn_mask, average_attn_weights
            )
            return squeeze(out, at), None if weights is None else squeeze(weights, 0)
        if not self.batch_first:
            query, key, value = (transpose(x, 0, 1) for x in (query, key, value))
        out, weights = self._attend(query, key, value, key_padding_mask, attn_mask, need_weights)
        out = out if self.batch_first else transpose(out, 0, 1)
        if weights is None:
            return out, None
        return out, mean(weights, 1) if average_attn_weights else weights

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding: Tensor | None,
        mask: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Tensors (n, length, features) give the result and the weights (n, heads, l, s)."""
        fits = query.ndim == key.ndim == value.ndim == 3 and key.shape[:2] == value.shape[:2]
        widths = (query.shape[-1], key.shape[-1], value.shape[-1])
        if not fits or widths != (self.embed_dim, self.kdim, self.vdim):
            raise ShapeError(
                f"MultiheadAttention: query {query.shape}, key {key.shape} and value {value.shape} "
                f"(n, length, features) must have {self.embed_dim}, {self.kdim} and {self.vdim} "
                f"features"
            )
        n, length, size = query.shape[0], query.shape[1], key.shape[1]
        q, k, v = self._projected(query, key, value)
        added = self._mask(padding, mask, (n, length, size), q.dtype)
        for extra_k, extra_v in self._more_keys(n, q.dtype):
            k, v = cat([k, extra_k], 1), cat([v, extra_v], 1)
            added = None if added is None else pad(added, (0, 1))
        q, k, v = (
            transpose(reshape(x, (n, x.shape[1], self.num_heads, self.head_dim)), 1, 2)
            for x in (q, k, v)
        )
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            out, weights = attention_with_weights(q, k, v, added, dropout)
        else:
            out = scaled_dot_product_attention(q, k, v, added, dropout)
        joined = flatten(transpose(out, 1, 2), 2)
        return self.out_proj(joined), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        e = self.num_heads * self.head_dim
        if self.in_proj_weight is not None and query is key is value:  # one product for all three
            return list(split(F.linear(query, self.in_proj_weight, self.in_proj_bias), e, -1))
        if self.in_proj_weight is not None:
            weights = split(self.in_proj_weight, e, 0)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases: Any = (None,) * 3 if self.in_proj_bias is None else split(self.in_proj_bias, e, 0)
        inputs = (query, key, value)
        return [F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]

    def _more_keys(self, n: int, dtype: DType) -> list[tuple[Tensor, Tensor]]:
        more = []
        row = (n, 1, self.num_heads * self.head_dim)
        if self.bias_k is not None and self.bias_v is not None:
            more.append((expand(self.bias_k, row), expand(self.bias_v, row)))
        if self.add_zero_attn:
            more.append((zeros(row, dtype=dtype), zeros(row, dtype=dtype)))
        return more

    def _mask(
        self, padding: Tensor | None, mask: Tensor | None, sizes: tuple[int, int, int], dtype: DType
    ) -> Tensor | None:
        """Both masks as one to add, which broadcasts to (n, heads, l, s)."""
        n, length, size = sizes
        parts = []
        if mask is not None:
            check_mask("attn_mask", mask)
            if mask.shape not in ((length, size), (n * self.num_heads, length, size)):
                raise ShapeError(
                    f"MultiheadAttention: attn_mask {mask.shape} must be ({length}, {size}) or "
                    f"({n * self.num_heads}, {length}, {size})"
                )
            if mask.ndim == 3:
                mask = reshape(mask, (n, self.num_heads, length, size))
            parts.append(_to_add(mask, dtype))
        if padding is not None:
            check_mask("key_padding_mask", padding)
            if padding.shape != (n, size):
                raise ShapeError(
                    f"MultiheadAttention: key_padding_mask {padding.shape} must be ({n}, {size})"
                )
            parts.append(_to_add(reshape(padding, (n, 1, 1, size)), dtype))
        return None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _to_add(mask: Tensor, dtype: DType) -> Tensor:
    """0 where a bool mask is false and -inf where it is true; floats as they are."""
    if mask.dtype is not bool_:
        return mask
    return where(mask, -math.inf, zeros(mask.shape, dtype=dtype))
