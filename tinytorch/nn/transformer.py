"""The transformer: encoder and decoder of attention and feed-forward layers.

Masks are as for `MultiheadAttention`: true (or -inf) for what does not take part.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from inspect import getdoc
from typing import Any, ClassVar

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F, init
from tinytorch.nn.attention import MultiheadAttention
from tinytorch.nn.containers import ModuleList
from tinytorch.nn.dropout import Dropout
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm import LayerNorm
from tinytorch.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]
Mask = Tensor | None


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise ValueError(f"activation must be 'relu', 'gelu' or a function, not {activation!r}")
    found: Callable[[Tensor], Tensor] = getattr(F, activation)
    return found


class _Layer(Module):
    """What encoder and decoder layers share: parts that are added to their input and normalized.

    Args:
        d_model: features.
        nhead: heads of the attention.
        dim_feedforward: features inside the feed-forward network.
        dropout: probability, at all places.
        activation: "relu", "gelu" or a function of a tensor.
        layer_norm_eps: of the normalizations.
        batch_first: tensors are (n, length, d_model) and not (length, n, d_model).
        norm_first: normalize what goes into each part, and not what comes out of it.
        bias: False to go without biases, in the normalizations too.
        device, dtype: of the parameters.

    Source: A. Vaswani et al., "Attention is all you need", 2017; R. Xiong et al., "On layer
    normalization in the transformer architecture", 2020 (norm_first).
    """

    reads_memory: ClassVar[bool]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = parameter_dtype(device, dtype)

        def attention() -> MultiheadAttention:
            return MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=kind
            )

        self.self_attn = attention()
        if self.reads_memory:
            self.multihead_attn = attention()
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=kind)
        self.norm_first = norm_first
        parts = 3 if self.reads_memory else 2
        for i in range(1, parts + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=kind))
        for i in range(1, parts + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _add(self, x: Tensor, part: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """x + dropout(compute(norm(x))), or norm(x + dropout(compute(x)))."""
        norm, dropout = getattr(self, f"norm{part}"), getattr(self, f"dropout{part}")
        if self.norm_first:
            return x + dropout(compute(norm(x)))  # type: ignore[no-any-return]
        return norm(x + dropout(compute(x)))  # type: ignore[no-any-return]

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.linear1(x)))
        return self.linear2(inner)  # type: ignore[no-any-return]


class TransformerEncoderLayer(_Layer):
    __doc__ = f"Self-attention and a feed-forward network.\n\n{getdoc(_Layer)}"
    reads_memory = False

    def forward(
        self,
        src: Tensor,
        src_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src (length, n, d_model), and so the result.

        Args:
            src_mask: (length, length), which positions each one does not see.
            src_key_padding_mask: (n, length), which positions nobody sees.
            is_causal: says that src_mask is causal.
        """

        def attend(x: Tensor) -> Tensor:
            out, _ = self.self_attn(
                x, x, x, src_key_padding_mask, need_weights=False, attn_mask=src_mask,
                is_causal=is_causal,
            )  # fmt: skip
            return out  # type: ignore[no-any-return]

        return self._add(self._add(src, 1, attend), 2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    __doc__ = (
        "Self-attention, attention to the encoder's result, and a feed-forward network.\n\n"
        f"{getdoc(_Layer)}"
    )
    reads_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt (length, n, d_model), and so the result; memory (source length, n, d_model).

        Args:
            tgt_mask, memory_mask: (length, length) and (length, source length).
            tgt_key_padding_mask, memory_key_padding_mask: (n, length) and (n, source length).
            tgt_is_causal, memory_is_causal: say that the masks are causal.
        """

        def attend(x: Tensor) -> Tensor:
            out, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, need_weights=False, attn_mask=tgt_mask,
                is_causal=tgt_is_causal,
            )  # fmt: skip
            return out  # type: ignore[no-any-return]

        def read(x: Tensor) -> Tensor:
            out, _ = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, need_weights=False,
                attn_mask=memory_mask, is_causal=memory_is_causal,
            )  # fmt: skip
            return out  # type: ignore[no-any-return]

        x = self._add(self._add(tgt, 1, attend), 2, read)
        return self._add(x, 3, self._feed_forward)


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after the other.

    Args:
        encoder_layer: what is copied; the copies begin with its values.
        num_layers: how many.
        norm: a module for the result.
        enable_nested_tensor, mask_check: change nothing; they are about PyTorch's kernels.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Mask = None,
        src_key_padding_mask: Mask = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """src through all layers; arguments as for `TransformerEncoderLayer`."""
        for layer in self.layers:
            src = layer(
                src, src_mask=mask, src_key_padding_mask=src_key_padding_mask,
                is_causal=bool(is_causal),
            )  # fmt: skip
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after the other; arguments as for `TransformerEncoder`."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt through all layers; arguments as for `TransformerDecoderLayer`."""
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                bool(tgt_is_causal), memory_is_causal,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder of the source and a decoder of the target that reads its result.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, device, dtype: as for `TransformerEncoderLayer`.
        num_encoder_layers, num_decoder_layers: how many layers.
        custom_encoder, custom_decoder: modules in their place.

    Source: A. Vaswani et al., "Attention is all you need", 2017.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = parameter_dtype(device, dtype)
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                   batch_first, norm_first, bias, None, kind)  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=kind)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options), num_decoder_layers, norm()
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Mask = None,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """src (s, n, d_model) and tgt (t, n, d_model) give (t, n, d_model).

        The masks are those of the encoder and of the decoder.

        Raises:
            ShapeError: the features are not d_model.
        """
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"Transformer: src {src.shape} and tgt {tgt.shape} must have {self.d_model} "
                f"features"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(  # type: ignore[no-any-return]
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            tgt_is_causal, memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """(sz, sz): 0 where j <= i and -inf elsewhere: no position sees those after it."""
        kind = parameter_dtype(device, dtype)
        return from_numpy(np.triu(np.full((sz, sz), -math.inf, kind.dtype), 1))
