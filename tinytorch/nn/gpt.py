"""A GPT: blocks of causal attention and an MLP, and the choices by which its descendants differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tinytorch.creation import arange
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F, init
from tinytorch.nn.containers import ModuleList
from tinytorch.nn.dropout import Dropout
from tinytorch.nn.embedding import Embedding
from tinytorch.nn.kv_cache import KVCache
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm import LayerNorm, RMSNorm
from tinytorch.nn.positions import rotary_table, rotate
from tinytorch.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: F.gelu(x, "tanh"),
    "relu2": lambda x: F.relu(x).square(),
    "swiglu": F.silu,
}


@dataclass(frozen=True)
class GPTConfig:
    """Sizes and choices; the defaults are those of GPT-2.

    Attributes:
        vocab_size, context: how many tokens there are, and how many the model sees at once.
        layers, heads, width: of the blocks; a head has width / heads elements.
        kv_heads: heads of keys and values, a divisor of `heads`: grouped queries (Ainslie, 2023).
        hidden: width of the MLP; 4 width unless given.
        dropout: of embeddings, attention weights and results of a block.
        bias: in linear layers and layer norms.
        norm: "layer" or "rms" (Zhang and Sennrich, 2019).
        norm_eps: of the norms.
        positions: "learned" or "rotary" (Su and others, 2021).
        rotary_base: of "rotary".
        activation: "gelu", "relu2" (So and others, 2021) or "swiglu" (Shazeer, 2020).
        qk_norm: RMS norm of queries and keys (Henry and others, 2020).
        window: how many tokens back attention looks, itself included; None for all of them.
        tied: the output layer has the embedding's weight (Press and Wolf, 2017).
    """

    vocab_size: int
    context: int
    layers: int
    heads: int
    width: int
    kv_heads: int | None = None
    hidden: int | None = None
    dropout: float = 0.0
    bias: bool = True
    norm: str = "layer"
    norm_eps: float = 1e-5
    positions: str = "learned"
    rotary_base: float = 10_000.0
    activation: str = "gelu"
    qk_norm: bool = False
    window: int | None = None
    tied: bool = True

    def __post_init__(self) -> None:
        kv_heads = self.kv_heads or self.heads
        if self.width % self.heads or self.heads % kv_heads:
            raise ValueError(
                f"width {self.width} must be a multiple of heads {self.heads}, and that of "
                f"kv_heads {kv_heads}"
            )
        for name, known in (
            ("norm", ("layer", "rms")),
            ("positions", ("learned", "rotary")),
            ("activation", tuple(ACTIVATIONS)),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}, must be one of {known}")

    def make_norm(self, width: int) -> Module:
        """The norm that was chosen, of vectors of this width."""
        if self.norm == "rms":
            return RMSNorm(width, self.norm_eps)
        return LayerNorm(width, self.norm_eps, bias=self.bias)


class CausalSelfAttention(Module):
    """Each token takes from those before it. (batch, length, width) to the same."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.kv_heads = config.kv_heads or config.heads
        self.head_width = config.width // config.heads
        own = (config.heads + 2 * self.kv_heads) * self.head_width
        self.qkv = Linear(config.width, own, bias=config.bias)
        self.out = Linear(config.width, config.width, bias=config.bias)
        self.dropout = Dropout(config.dropout)
        if config.qk_norm:
            self.q_norm, self.k_norm = RMSNorm(self.head_width), RMSNorm(self.head_width)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor] | None, mask: Tensor | None,
        cache: KVCache | None,
    ) -> Tensor:  # fmt: skip
        batch, length, width = x.shape
        heads, groups = self.config.heads, self.kv_heads
        parts = self.qkv(x).reshape(batch, length, heads + 2 * groups, self.head_width)
        q, k, v = parts.transpose(1, 2).split([heads, groups, groups], 1)
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
        result: Tensor = self.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return result


class MLP(Module):
    """Each token by itself: up, an activation (with a gate, for "swiglu"), down."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        hidden = config.hidden or 4 * config.width
        self.activation = ACTIVATIONS[config.activation]
        self.up = Linear(config.width, hidden, bias=config.bias)
        self.gate = (
            Linear(config.width, hidden, bias=config.bias)
            if config.activation == "swiglu"
            else None
        )
        self.down = Linear(hidden, config.width, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width), and so the result."""
        if self.gate is None:
            y = self.activation(self.up(x))
        else:
            y = self.activation(self.gate(x)) * self.up(x)
        result: Tensor = self.dropout(self.down(y))
        return result


class Block(Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = config.make_norm(config.width)
        self.attention = CausalSelfAttention(config, layer)
        self.mlp_norm = config.make_norm(config.width)
        self.mlp = MLP(config)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor] | None, mask: Tensor | None,
        cache: KVCache | None,
    ) -> Tensor:  # fmt: skip
        x = x + self.attention(self.attention_norm(x), rotary, mask, cache)
        result: Tensor = x + self.mlp(self.mlp_norm(x))
        return result


class GPT(Module):
    """A language model: tokens (batch, length) to logits (batch, length, vocab_size).

    The logits at a place are those of the next token, and depend on no later one.

        model = GPT(GPTConfig(vocab_size=65, context=64, layers=4, heads=4, width=128))
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    Args:
        config: a `GPTConfig`, or its fields by name.

    Raises:
        ShapeError: more tokens than the context has.
        IndexError: a token is outside of the vocabulary.

    Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019,
    section 2.3.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.width)
        self.positions = (
            Embedding(config.context, config.width) if config.positions == "learned" else None
        )
        self.dropout = Dropout(config.dropout)
        self.blocks = ModuleList([Block(config, i) for i in range(config.layers)])
        self.norm = config.make_norm(config.width)
        self.head = None if config.tied else Linear(config.width, config.vocab_size, bias=False)
        self._rotary = (
            rotary_table(config.context, config.width // config.heads, config.rotary_base)
            if config.positions == "rotary"
            else None
        )
        for name, p in self.named_parameters():
            if p.ndim == 2:
                last = name.endswith(("attention.out.weight", "mlp.down.weight"))
                init.normal_(p, std=0.02 / (math.sqrt(2 * config.layers) if last else 1.0))
            elif name.endswith("bias"):
                init.zeros_(p)

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits. With a cache the tokens stand behind those that it has."""
        _, length = tokens.shape
        context = self.config.context
        if length > context:
            raise ShapeError(f"{length} tokens, but the model sees {context} (its context)")
        if cache is None:
            where, mask = arange(length), self._window(length)
        else:
            places = cache.positions(length)
            if int(places.max()) >= context:
                raise ShapeError(f"token {int(places.max()) + 1} of a context of {context}")
            where, mask = Tensor.from_numpy(places), cache.mask(length, self.config.window)
        x = self.embedding(tokens)
        rotary = None
        if self.positions is not None:
            x = x + self.positions(where)
        elif self._rotary is not None:
            cos, sin = (t[where] for t in self._rotary)
            rotary = (cos, sin) if cache is None else (cos.unsqueeze(1), sin.unsqueeze(1))
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, rotary, mask, cache)
        if cache is not None:
            cache.advance(length)
        x = self.norm(x)
        return F.linear(x, self.embedding.weight if self.head is None else self.head.weight)

    def make_cache(self, batch: int, length: int, starts: list[int] | None = None) -> KVCache:
        """An empty `KVCache` for this model."""
        c = self.config
        return KVCache(
            c.layers, batch, c.kv_heads or c.heads, length, c.width // c.heads, starts,
            self.embedding.weight.dtype,
        )  # fmt: skip

    def _window(self, length: int) -> Tensor | None:
        """The mask of a sliding window; None where attention is causal and no more."""
        window = self.config.window
        if window is None or window >= length:
            return None
        query, key = np.arange(length)[:, None], np.arange(length)[None]
        return Tensor.from_numpy((key <= query) & (key > query - window))
