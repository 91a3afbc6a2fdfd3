"""A GPT: blocks of causal attention and an MLP; `gpt_config` has what may be chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tinytorch.nn import functional as F, init
from tinytorch.nn.containers import ModuleList
from tinytorch.nn.dropout import Dropout
from tinytorch.nn.embedding import Embedding
from tinytorch.nn.gpt_config import ACTIVATIONS, GPTConfig as GPTConfig
from tinytorch.nn.kv_cache import CacheAt, KVCache, causal_mask, split_heads
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm import RMSNorm
from tinytorch.nn.positions import rotary_table, rotate
from tinytorch.tensor import Tensor

Rotary = tuple[Tensor, Tensor] | None  # cosines and sines of the positions
Cache = KVCache | CacheAt | None


class CausalSelfAttention(Module):
    """Attention in which each token reads those before it. (batch, length, width) to the same."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.heads, self.kv_heads = config.heads, config.kv_heads or config.heads
        features = (config.heads + 2 * self.kv_heads) * config.head_width
        self.qkv = Linear(config.width, features, bias=config.bias)
        self.out = Linear(config.width, config.width, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        if config.qk_norm:
            self.q_norm, self.k_norm = (RMSNorm(config.head_width) for _ in "qk")

    def forward(self, x: Tensor, rotary: Rotary, mask: Tensor | None, cache: Cache) -> Tensor:
        heads, groups = self.heads, self.kv_heads
        parts = self.qkv(x).unflatten(-1, (heads + 2 * groups, self.config.head_width))
        q, k, v = split_heads(parts, [heads, groups, groups], as_ops=type(cache) is not KVCache)
        if self.config.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        y = F.scaled_dot_product_attention(
            q, k, v, mask, self.config.dropout if self.training else 0.0,
            is_causal=cache is None and mask is None, enable_gqa=groups != heads,
        )  # fmt: skip
        return cast(Tensor, self.dropout(self.out(y.transpose(1, 2).flatten(-2))))


class MLP(Module):
    """The feed-forward part, each token by itself: up, an activation (with a gate, for "swiglu"),
    down."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        hidden = config.hidden or 4 * config.width
        self.activation = ACTIVATIONS[config.activation]
        gated = config.activation == "swiglu"
        self.up = Linear(config.width, hidden, bias=config.bias)
        self.gate = Linear(config.width, hidden, bias=config.bias) if gated else None
        self.down = Linear(hidden, config.width, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width), and so the result."""
        up = self.up(x)
        y = self.activation(up) if self.gate is None else self.activation(self.gate(x)) * up
        return cast(Tensor, self.dropout(self.down(y)))


class Block(Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = config.make_norm(config.width)
        self.attention = CausalSelfAttention(config, layer)
        self.mlp_norm = config.make_norm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rotary: Rotary, mask: Tensor | None, cache: Cache) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary, mask, cache)
        return cast(Tensor, x + self.mlp(self.mlp_norm(x)))


class GPT(Module):
    """A language model: tokens (batch, length) to logits (batch, length, vocab_size).

    The logits at a place are those of the next token, and depend on no later one.

        model = GPT(GPTConfig(vocab_size=65, context=64, layers=4, heads=4, width=128))
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    Raises:
        ShapeError: more tokens than the context has, those in a cache included; or tokens that are
            not (batch, length).
        IndexError: a token is outside of the vocabulary.

    Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019,
    section 2.3.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.width)
        learned = config.positions == "learned"
        self.positions = Embedding(config.context, config.width) if learned else None
        turns = config.context, config.head_width, config.rotary_base
        self._turns = None if learned else rotary_table(*turns)
        self.dropout = Dropout(config.dropout)
        self.blocks = ModuleList([Block(config, i) for i in range(config.layers)])
        self.norm = config.make_norm(config.width)
        self.head = None if config.tied else Linear(config.width, config.vocab_size, bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                last = name.endswith(("attention.out.weight", "mlp.down.weight"))
                init.normal_(p, std=0.02 / (math.sqrt(2 * config.layers) if last else 1.0))
            elif name.endswith("bias"):
                init.zeros_(p)

    @classmethod
    def from_config(cls, config: GPTConfig | Mapping[str, Any]) -> GPT:
        """A model of a `GPTConfig`, or of its fields by name, as read from a file.

        Raises:
            TypeError: a field that there is not, or one that is missing.
            ValueError: what is chosen does not fit together.
        """
        return cls(config if isinstance(config, GPTConfig) else GPTConfig(**config))

    def forward(self, tokens: Tensor, cache: KVCache | None = None, keep: int = 0) -> Tensor:
        """Logits, or those of the last `keep` tokens. A cache has the tokens before these."""
        logits = self.transform(self.embed(tokens, cache), cache, keep)
        if cache is not None:
            cache.advance(tokens.shape[1])
        return logits

    def embed(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """(batch, length, width): vectors of the tokens, with those of learned positions."""
        length = self.config.check_tokens(tokens.shape, cache)
        x: Tensor = self.embedding(tokens)
        return x if self.positions is None else x + self.positions(_positions(length, cache))

    def transform(self, x: Tensor, cache: Cache = None, keep: int = 0) -> Tensor:
        """Logits of embedded tokens; a cache gets their keys and values, but does not advance."""
        c, length, rotary = self.config, x.shape[1], None
        mask = causal_mask(length, c.window) if cache is None else cache.mask(length, c.window)
        if self._turns is not None:
            where = _positions(length, cache)
            cos, sin = (table[where].unsqueeze(-3) for table in self._turns)  # for all heads
            rotary = cos, sin
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, rotary, mask, cache)
        x = self.norm(x[:, -keep:] if keep else x)
        return self.embedding.as_linear(x) if self.head is None else self.head(x)

    def make_cache(self, batch: int, length: int, starts: list[int] | None = None) -> KVCache:
        """An empty `KVCache` for this model."""
        heads, width = [block.attention.kv_heads for block in self.blocks], self.config.head_width
        return KVCache(heads, batch, length, width, starts, next(self.norm.parameters()).dtype)


def _positions(length: int, cache: Cache) -> Tensor:
    return Tensor.from_numpy(np.arange(length)) if cache is None else cache.positions(length)
