"""Layers whose weights are codes. The float weights they were made from are not kept."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.compression.calibration import Calibration, check_finite
from tinytorch.compression.codes import choose_qparams, pack_int4, quantize
from tinytorch.compression.schemes import Scheme
from tinytorch.creation import from_numpy, ones, zeros
from tinytorch.decompositions_quantized import dequantized
from tinytorch.dispatch import apply
from tinytorch.dtypes import bfloat16, float32
from tinytorch.functions.indexing import take_rows
from tinytorch.nn.conv import Conv2d
from tinytorch.nn.embedding import Embedding
from tinytorch.nn.functional.conv import conv2d
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.shapes_quantized import stored_columns
from tinytorch.tensor import Tensor


def check_layer(layer: Linear | Embedding | Conv2d, scheme: Scheme) -> None:
    """Raise ValueError if a layer has no quantized form.

    Its weight is not float32, or has a value that is NaN, infinite, or too large for bfloat16; it
    is an embedding that renormalizes its vectors, or a convolution whose border is not of zeros.
    """
    kind, dtype = type(layer).__name__, layer.weight.dtype
    if dtype is not float32:
        raise ValueError(f"this {kind} has weights of {dtype.name}; use model.float()")
    if isinstance(layer, Embedding) and layer.max_norm is not None:
        raise ValueError(f"this {kind} changes its vectors when they are read (max_norm)")
    if isinstance(layer, Conv2d) and layer.padding_mode != "zeros":
        raise ValueError(
            f"this {kind} has padding_mode={layer.padding_mode!r}; only a border of zeros can be "
            f"quantized"
        )
    values = layer.weight.detach()
    check_finite((values.to(bfloat16).float() if scheme.bits == 16 else values).numpy())


def quantized_weight(layer: Linear | Embedding | Conv2d, scheme: Scheme) -> tuple[Tensor, Tensor]:
    """Codes (out, stored) and scales (out, groups) of a layer's weight (out, ...).

    Rows are filled up with zeros to whole groups and bytes. Codes of 16 bits are the weight as
    bfloat16, and their scales 1.

    Raises:
        ValueError: as of `check_layer`.
    """
    check_layer(layer, scheme)
    given = layer.weight
    rows, columns = given.shape[0], prod(given.shape[1:])
    stored = stored_columns(columns, scheme.bits, scheme.group_size)
    padded = np.zeros((rows, stored), np.float32)
    padded[:, :columns] = given.detach().numpy().reshape(rows, columns)
    if scheme.bits == 16:
        return from_numpy(padded).to(bfloat16), ones(rows, 1)
    qparams = choose_qparams(
        padded, scheme.bits, granularity="group", group_size=scheme.group_size or stored,
        calibration=Calibration(scheme.calibration),
    )  # fmt: skip
    codes = quantize(padded, qparams)
    if scheme.bits == 4:
        codes = pack_int4(codes)
    return from_numpy(codes), from_numpy(qparams.scale)


class _Quantized(Module):
    """What layers share whose weight is codes with scales, buffers both.

    Attributes:
        codes: (out, stored): int8, uint8 with two codes of 4 bits in a byte, or bfloat16.
        scale: (out, groups), float32.
        scheme: how they were made.
    """

    codes: Tensor
    scale: Tensor
    _codes = ("codes",)

    def __init__(self, codes: Tensor, scale: Tensor, columns: int, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme
        self.columns = columns
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)

    @property
    def weight(self) -> Tensor:
        """The weight as floats, made anew, in the shape that it had: for code that reads it."""
        return self.dequantized_weight()

    def dequantized_weight(self) -> Tensor:
        """The weight that the codes stand for, as new floats (out, columns)."""
        return dequantized(self.codes, self.scale, self.columns, self.scheme.bits)

    def _product(self, x: Tensor, activation: str, *others: Tensor | None) -> Tensor:
        """x @ (codes * scale).T, and what else the op takes."""
        s = self.scheme
        given = [x, self.codes, self.scale, *(t for t in others if t is not None)]
        options: dict[str, Any] = {"bits": s.bits, "group_size": s.group_size}
        return apply(ops.quantized_linear, *given, **options, activation=activation)

    def extra_repr(self) -> str:
        s = self.scheme
        group = f" by {f'groups of {s.group_size}' if s.group_size else 'rows'}"
        stored = f"{s.bits} bits{'' if s.bits == 16 else group}"
        return f"{self.columns} -> {self.codes.shape[0]}, {s.name}: {stored}"


def _shared(bias: Tensor | None) -> Parameter | None:
    """A parameter in the memory of a layer's bias, frozen if that is."""
    return None if bias is None else Parameter(bias.detach(), bias.requires_grad)


class QuantizedLinear(_Quantized):
    """x @ (codes * scale).T + bias

    Made by `quantize_`, or from a layer by `from_float`; gradients reach x and the bias.

    Args:
        codes, scale: see `quantized_weight`.
        in_features: columns of the weight.
        scheme: how they were made.
        bias: (out_features,), or None.

    Shapes: (..., in_features) gives (..., out_features).

    >>> import tinytorch
    >>> from tinytorch.compression.schemes import SCHEMES
    >>> QuantizedLinear.from_float(Linear(64, 3), SCHEMES["int4"])(tinytorch.ones(5, 64)).shape
    (5, 3)
    """

    range: Tensor | None

    def __init__(
        self,
        codes: Tensor,
        scale: Tensor,
        in_features: int,
        scheme: Scheme,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__(codes, scale, in_features, scheme)
        self.in_features = in_features
        self.out_features = codes.shape[0]
        static = scheme.activation == "static"
        if static and bias is None:
            bias = zeros(self.out_features, requires_grad=True)
        self.bias = _shared(bias)
        self.register_buffer("range", zeros(2) if static else None)

    @classmethod
    def from_float(
        cls, layer: Linear, scheme: Scheme, range: tuple[float, float] | None = None
    ) -> QuantizedLinear:
        """The quantized form of a layer.

        Args:
            layer: its weight is float32.
            scheme: how to store it.
            range: scale and zero point of its inputs, where the scheme rounds them statically.

        Raises:
            ValueError: as of `check_layer`, or a range is missing.
        """
        codes, scale = quantized_weight(layer, scheme)
        made = cls(codes, scale, layer.in_features, scheme, layer.bias)
        if made.range is not None:
            if range is None:
                raise ValueError(f"{scheme.name} needs the range of the inputs of the layer")
            made.range = Tensor(np.array(range, np.float32))
        return made

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) gives (..., out_features)."""
        return self._product(x, self.scheme.activation, self.bias, self.range)


class QuantizedEmbedding(_Quantized):
    """Rows of codes * scale.

    Args:
        codes, scale: see `quantized_weight`.
        embedding_dim: length of a vector.
        scheme: how they were made.

    Shapes: integers (...) give (..., embedding_dim).
    """

    def __init__(self, codes: Tensor, scale: Tensor, embedding_dim: int, scheme: Scheme) -> None:
        super().__init__(codes, scale, embedding_dim, scheme)
        self.num_embeddings = codes.shape[0]
        self.embedding_dim = embedding_dim

    @classmethod
    def from_float(cls, layer: Embedding, scheme: Scheme) -> QuantizedEmbedding:
        """The quantized form of a layer.

        Raises:
            ValueError: as of `check_layer`.
        """
        codes, scale = quantized_weight(layer, scheme)
        return cls(codes, scale, layer.embedding_dim, scheme)

    def forward(self, input: Tensor) -> Tensor:
        """Indices (...) give (..., embedding_dim). Only the rows that are asked for are read."""
        index = input.reshape(-1)
        rows = dequantized(
            take_rows(self.codes, index), take_rows(self.scale, index), self.columns,
            self.scheme.bits,
        )  # fmt: skip
        return rows.reshape(*input.shape, self.columns)

    def as_linear(self, x: Tensor) -> Tensor:
        """x @ (codes * scale).T: (..., embedding_dim) gives (..., num_embeddings)."""
        activation = self.scheme.activation
        return self._product(x, "dynamic" if activation == "static" else activation)


class QuantizedConv2d(_Quantized):
    """A convolution whose kernels are stored as codes, a scale for each output channel or group.

    The kernels become floats when the layer runs, and are let go after it: they are small beside
    the images. So the layer takes less memory, and not less time.

    Args:
        layer: gives sizes, stride, padding and bias.
        scheme: how to store the kernels; its `activation` is of no account here.

    Raises:
        ValueError: as of `check_layer`.
    """

    def __init__(self, layer: Conv2d, scheme: Scheme) -> None:
        codes, scale = quantized_weight(layer, scheme)
        super().__init__(codes, scale, prod(layer.weight.shape[1:]), scheme)
        self.shape = layer.weight.shape
        self.stride, self.padding = layer.stride, layer.padding
        self.dilation, self.groups = layer.dilation, layer.groups
        self.bias = _shared(layer.bias)

    def dequantized_weight(self) -> Tensor:
        """The kernels that the codes stand for, as new floats (o, c, kh, kw)."""
        return super().dequantized_weight().reshape(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, c, h, w) gives (n, o, oh, ow), as `nn.Conv2d` does."""
        return conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )
