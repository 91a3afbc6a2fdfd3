"""The sizes of a GPT, and the choices by which its descendants differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F
from tinytorch.nn.kv_cache import KVCache
from tinytorch.nn.module import Module
from tinytorch.nn.norm import LayerNorm, RMSNorm
from tinytorch.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: F.gelu(x, "tanh"),
    "relu2": lambda x: F.relu(x).square(),
    "swiglu": F.silu,
}


OPTIONAL_SIZES = ("kv_heads", "hidden", "window")


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

    Raises:
        ValueError: a size below 1, an unknown choice, or what does not fit together.
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
        for name in ("vocab_size", "context", "layers", "heads", "width", *OPTIONAL_SIZES):
            size = getattr(self, name)
            if size is None and name in OPTIONAL_SIZES:
                continue
            if not isinstance(size, (int, np.integer)) or size < 1:
                raise ValueError(f"{name} must be an integer of at least 1, not {size!r}")
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

    def check_tokens(self, shape: Shape, cache: KVCache | None) -> int:
        """How many tokens of each sequence are new, (batch, length), behind those of a cache.

        Raises:
            ShapeError: another number of dimensions, a cache for another batch, or more tokens than
                cache or context have room for.
        """
        if len(shape) != 2:
            raise ShapeError(f"tokens must be (batch, length), got shape {shape}")
        if cache is not None and len(cache.starts) != shape[0]:
            raise ShapeError(f"{shape[0]} sequences, but the cache is for {len(cache.starts)}")
        seen = shape[1] if cache is None else cache.reach(shape[1])
        if seen > self.context:
            raise ShapeError(f"{seen} tokens, but the model sees {self.context}")
        return shape[1]

    @property
    def head_width(self) -> int:
        """Elements of a head."""
        return self.width // self.heads

    def make_norm(self, width: int) -> Module:
        """The norm that was chosen, of vectors of this width."""
        if self.norm == "rms":
            return RMSNorm(width, self.norm_eps)
        return LayerNorm(width, self.norm_eps, bias=self.bias)
