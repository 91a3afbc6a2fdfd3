"""Quantization-aware training: the forward pass rounds as the quantized model will.

Weights and inputs are rounded to codes and back (fake quantization), and the gradient passes as if
they were not: the straight-through estimator. So the weights learn to be rounded.

Source: B. Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", 2018, section 3; Y. Bengio, N. Leonard and A. Courville,
"Estimating or propagating gradients through stochastic neurons for conditional computation", 2013.
"""

from __future__ import annotations

from typing import TypeVar

from tinytorch import ops
from tinytorch.autograd import no_grad
from tinytorch.compression.replacement import has_weight, replace_layers
from tinytorch.compression.schemes import Scheme, find_scheme
from tinytorch.creation import zeros
from tinytorch.decompositions_quantized import rounded_rows, straight_through
from tinytorch.dispatch import apply
from tinytorch.functions.elementwise import maximum, round as round_
from tinytorch.functions.movement import cat
from tinytorch.functions.reductions import amax
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.shapes_quantized import LEAST, stored_columns
from tinytorch.tensor import Tensor

M = TypeVar("M", bound=Module)


def fake_quantize(x: Tensor, bits: int = 8, group_size: int = 0) -> Tensor:
    """Each row, or each group of its columns, rounded to symmetric codes and back.

    The gradient is that of the identity.

    Args:
        x: (rows, columns)
        bits: 2 to 8.
        group_size: columns that share a scale; the last group may have fewer. 0 for all.

    Raises:
        ValueError: x is no matrix or has no columns, bits are not 2 to 8, or a group is negative.

    >>> from tinytorch import tensor
    >>> fake_quantize(tensor([[1.0, 0.4, -3.0]]), bits=2)
    tensor([[ 0.,  0., -3.]])
    """
    if x.ndim != 2 or not x.shape[1] or not 2 <= bits <= 8 or group_size < 0:
        raise ValueError(
            f"fake_quantize: needs a matrix with columns, 2 to 8 bits and groups of 0 or more, not "
            f"{x.shape}, {bits}, {group_size}"
        )
    rows, columns = x.shape
    stored = stored_columns(columns, 8, group_size)
    values = x.detach()
    if stored > columns:
        values = cat([values, zeros(rows, stored - columns, dtype=x.dtype)], 1)
    groups = values.reshape(rows, stored // (group_size or stored), group_size or stored)
    scale = maximum(amax(abs(groups), -1, True), LEAST) / (2 ** (bits - 1) - 1)
    rounded = (round_(groups / scale) * scale).reshape(rows, stored)[:, :columns]
    return straight_through(x, rounded)


class FakeQuantizedLinear(Linear):
    """A `Linear` that computes with the rounded weight, and the rounded input where that is.

    It shares the parameters of the layer it is made from.
    """

    def __init__(self, layer: Linear, scheme: Scheme) -> None:
        Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.scheme = scheme

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) gives (..., out_features)."""
        if self.scheme.activation == "dynamic":
            x = straight_through(x, rounded_rows(x))
        operands = [x, self._rounded()] + ([] if self.bias is None else [self.bias])
        return apply(ops.linear, *operands)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.scheme.name}"

    def to_linear(self) -> Linear:
        """The plain layer with the same parameters, rounded: their codes are those of training."""
        layer = Linear(self.in_features, self.out_features, bias=False, dtype=self.weight.dtype)
        layer.weight, layer.bias = self.weight, self.bias
        with no_grad():
            layer.weight.copy_(self._rounded())
        return layer

    def _rounded(self) -> Tensor:
        return fake_quantize(self.weight, self.scheme.bits, self.scheme.group_size)


def prepare_qat_(
    model: M, scheme: str | Scheme = "int8_dynamic", *, group_size: int | None = None
) -> M:
    """Make the `Linear` layers round while they train, in place; then train, then `convert_qat_`.

    Optimizers made before go on working: the parameters are the same.

    Raises:
        ValueError: no such scheme; one that rounds activations statically, or weights to bfloat16;
            nothing to prepare.
    """
    chosen = find_scheme(scheme, group_size)
    if chosen.bits == 16:
        raise ValueError(
            f"{chosen.name} has no codes to train for: train in float32, then quantize_"
        )
    if chosen.activation == "static":
        raise ValueError(f"{chosen.name}: ranges are not learned in training; use int8_dynamic")

    def make(layer: Module) -> Module | None:
        plain = type(layer) is Linear and has_weight(layer)
        return FakeQuantizedLinear(layer, chosen) if isinstance(layer, Linear) and plain else None

    if not replace_layers(model, make):
        raise ValueError(f"{type(model).__name__} has no Linear layer to prepare")
    return model


def convert_qat_(model: M) -> M:
    """Turn the layers of `prepare_qat_` into plain ones again, for `quantize_` to replace.

    Their weights are rounded in place, so that a scheme that chooses its ranges by the error finds
    the codes that were trained.

    Raises:
        ValueError: there are none.
    """

    def make(layer: Module) -> Module | None:
        return layer.to_linear() if isinstance(layer, FakeQuantizedLinear) else None

    if not replace_layers(model, make):
        raise ValueError(f"{type(model).__name__} was not prepared: use prepare_qat_ first")
    return model
