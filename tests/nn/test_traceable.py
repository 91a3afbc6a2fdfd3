"""Layers and losses read shapes and dtypes only, so that a tracer can run them without values."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.dispatch import Mode, wrap
from tinytorch.dtypes import as_dtype, tensor_meta


class Unknown:
    """What is in a tensor that has no values."""

    def concrete(self, asked: str) -> NoReturn:
        raise AssertionError(f"{asked} was asked of a tensor without values")


class Shapes(Mode):
    """Computes no values, and notes what would be computed and written."""

    def __init__(self, decompose: bool) -> None:
        self.decompose = decompose
        self.ops: list[str] = []
        self.written: list[tinytorch.Tensor] = []

    def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Unknown:
        self.ops.append(op.name)
        return Unknown()

    def write(self, target: tinytorch.Tensor, data: Any) -> None:
        self.written.append(target)


def unknown(*shape: int, dtype: str = "float32") -> tinytorch.Tensor:
    return wrap(Unknown(), tensor_meta(shape, as_dtype(dtype)))


LAYERS = [
    (nn.Linear(3, 2), (4, 3)),
    (nn.Conv2d(2, 4, 3, padding="same"), (2, 2, 5, 5)),
    (nn.Conv2d(2, 4, 2, padding="same"), (2, 2, 5, 5)),
    (nn.Conv1d(2, 4, 3), (2, 2, 5)),
    (nn.MaxPool2d(2), (1, 2, 4, 4)),
    (nn.AvgPool2d(2), (1, 2, 4, 4)),
    (nn.AdaptiveAvgPool2d(3), (1, 2, 7, 6)),
    (nn.BatchNorm2d(2), (3, 2, 4, 4)),
    (nn.BatchNorm1d(2, momentum=None), (3, 2)),
    (nn.BatchNorm1d(2).eval(), (3, 2)),
    (nn.LayerNorm((2, 3)), (4, 2, 3)),
    (nn.RMSNorm(3), (4, 3)),
    (nn.GroupNorm(2, 4), (2, 4, 3)),
    (nn.Dropout(0.5), (3, 4)),
    (nn.Dropout2d(0.5), (3, 4, 2, 2)),
    (nn.Flatten(), (3, 4, 2)),
    *((layer(), (3, 4)) for layer in (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU)),
    *((layer(), (3, 4)) for layer in (nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.LogSigmoid)),
    *((layer(), (3, 4)) for layer in (nn.Tanh, nn.Hardtanh, nn.Softplus, nn.Softsign)),
    (nn.Softmax(1), (3, 4)),
    (nn.LogSoftmax(1), (3, 4)),
    *((layer(), (3, 4)) for layer in (nn.CELU, nn.Hardsigmoid, nn.Hardswish, nn.Hardshrink)),
    *((layer(), (3, 4)) for layer in (nn.Softshrink, nn.Tanhshrink, nn.GLU, nn.RReLU)),
    *((layer(2), (2, 3, 4, 4)) for layer in (nn.ZeroPad2d, nn.ReflectionPad2d)),
    (nn.ConvTranspose2d(2, 3, 4, 2, 1), (1, 2, 3, 3)),
    (nn.ConvTranspose1d(2, 3, 4, 2, 1), (1, 2, 3)),
    (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (1, 2, 4, 4)),
    (nn.MaxPool2d(2, ceil_mode=True), (1, 2, 5, 5)),
    (nn.MaxPool1d(2), (1, 2, 5)),
    (nn.AvgPool2d(2, ceil_mode=True), (1, 2, 5, 5)),
    (nn.AdaptiveMaxPool2d(2), (1, 2, 5, 5)),
    (nn.InstanceNorm2d(2), (2, 2, 3, 3)),
    (nn.LocalResponseNorm(2), (1, 4, 3, 3)),
    (nn.Upsample(scale_factor=2), (1, 2, 3, 3)),
    (nn.Upsample((5, 4), mode="bilinear"), (1, 2, 3, 3)),
    (nn.PixelShuffle(2), (1, 4, 3, 3)),
    (nn.Unfold(2), (1, 2, 3, 3)),
    (nn.Fold(4, 2), (1, 8, 9)),
    (nn.Dropout1d(0.5), (3, 4, 2)),
    (nn.AlphaDropout(0.5), (3, 4)),
]


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda v: type(v).__name__)
def test_layers(layer, shape, decompose):
    expected = layer(tinytorch.ones(*shape)).shape
    x = unknown(*shape).requires_grad_()
    with Shapes(decompose) as mode:
        out = layer(x)
        assert out.shape == expected
        out.sum().backward()
    assert x.grad.shape == shape
    buffers = [b for b in layer.buffers() if layer.training]
    assert {id(t) for t in mode.written} == {id(b) for b in buffers}
    layer.zero_grad()


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize(
    ("loss", "dtype"),
    [
        (nn.MSELoss(), "float32"),
        (nn.L1Loss(), "float32"),
        (nn.HuberLoss(), "float32"),
        (nn.SmoothL1Loss(), "float32"),
        (nn.BCELoss(), "float32"),
        (nn.BCEWithLogitsLoss(), "float32"),
        (nn.KLDivLoss("batchmean"), "float32"),
        (nn.CrossEntropyLoss(), "float32"),
        (nn.CrossEntropyLoss(), "int64"),
        (nn.CrossEntropyLoss(ignore_index=0), "int64"),
        (nn.CrossEntropyLoss(tinytorch.ones(3), label_smoothing=0.1), "int64"),
        (nn.NLLLoss(), "int64"),
    ],
)
def test_losses(loss, dtype, decompose):
    x = unknown(4, 3).requires_grad_()
    target = unknown(4, dtype=dtype) if dtype == "int64" else unknown(4, 3)
    with Shapes(decompose):
        out = loss(x, target)
        assert out.shape == ()
        out.backward()
    assert x.grad.shape == (4, 3)


def test_the_plain_cross_entropy_is_one_op():
    with Shapes(decompose=False) as mode:
        nn.CrossEntropyLoss()(unknown(4, 3), tinytorch.tensor([0, 2, 1, 0]))
    assert mode.ops == ["cross_entropy"]


def test_of_labels_that_are_not_known_any_may_be_ignored():
    with Shapes(decompose=False) as mode:
        nn.CrossEntropyLoss()(unknown(4, 3), unknown(4, dtype="int64"))
    assert "cross_entropy" not in mode.ops and "where" in mode.ops


def test_embedding():
    layer = nn.Embedding(5, 2, padding_idx=0)
    with Shapes(decompose=False):
        out = layer(unknown(3, 4, dtype="int64"))
        assert out.shape == (3, 4, 2)
        out.sum().backward()
    assert layer.weight.grad.shape == (5, 2)


def test_a_conversion_needs_values():
    layer = nn.Linear(2, 2)
    layer.bias._data = Unknown()
    with pytest.raises(AssertionError, match="to was asked of a tensor without values"):
        layer.double()
    assert isinstance(nn.Linear(2, 2).bias._data, np.ndarray)
