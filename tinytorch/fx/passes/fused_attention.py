"""Scaled dot-product attention by TinyTorch's kernel, as a function that a node can call."""

from __future__ import annotations

import torch
from torch import Tensor

from tinytorch.fx.passes.packed import as_array


class FusedAttention:
    """softmax(q k^T scale + mask) v on the CPU, on no more threads than PyTorch has.

    Args:
        scale: of the scores.
        is_causal: query i sees the keys 0 to i.
        rows_first: the result of a query is stored beside those of its other heads, (B, L, H, V),
            as PyTorch's own kernel stores it; otherwise (B, H, L, V).
    """

    is_pure = True

    def __init__(self, scale: float, is_causal: bool, rows_first: bool) -> None:
        # here, because it needs numba
        from tinytorch.backends.optimized.attention.attention import scaled_dot_product_attention

        self.kernel = scaled_dot_product_attention
        self.scale, self.is_causal, self.rows_first = scale, is_causal, rows_first
        self.__name__ = f"fused_attention{'_causal' if is_causal else ''}"
        self.__module__ = __name__

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """(B, H, L, V) of query (B, H, L, E), key (B, G, S, E) and value (B, G, S, V).

        Args:
            mask: of bool or the dtype of the query, broadcasts to (B, H, L, S).
        """
        batch, heads, length, _ = query.shape
        if self.rows_first:
            sizes = (batch, length, heads, value.shape[-1])
            result = torch.empty(sizes, dtype=query.dtype).transpose(1, 2)
        else:
            result = torch.empty((batch, heads, length, value.shape[-1]), dtype=query.dtype)
        if mask is not None:
            mask = as_array(mask.expand(batch, heads, length, key.shape[2]))
        self.kernel(
            as_array(query), as_array(key), as_array(value), mask,
            is_causal=self.is_causal, scale=self.scale, dropout_p=0.0, out=result.numpy(),
            most_threads=torch.get_num_threads(),
        )  # fmt: skip
        return result
