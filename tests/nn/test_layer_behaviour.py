"""Layers beside the tables of `test_layers.py`: pairs of layers, resets, inputs that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tests.nn.twins import make_twins
from tinytorch import nn


def test_max_pooling_with_indices_and_back(agree, rng):
    for options in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}):
        x = rng.standard_normal((2, 3, 7, 6))
        ours, theirs = (m.MaxPool2d(**options, return_indices=True) for m in (nn, torch.nn))
        out, places = ours(tinytorch.tensor(x))
        expected, expected_places = theirs(torch.tensor(x))
        np.testing.assert_array_equal(out.numpy(), expected)
        np.testing.assert_array_equal(places.numpy(), expected_places)
        index = expected_places.numpy()
        back, their_back = (m.MaxUnpool2d(**options) for m in (nn, torch.nn))
        agree(
            lambda v, b=back, i=index: b(v, tinytorch.tensor(i), (7, 6)),
            lambda v, b=their_back, i=index: b(v, torch.tensor(i), (7, 6)),
            expected.numpy(),
        )


def test_an_empty_batch_leaves_running_statistics_alone():
    layer = nn.BatchNorm1d(3)
    layer(tinytorch.randn(4, 3))
    before = [b.tolist() for b in layer.buffers()]
    x = tinytorch.zeros(0, 3, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert out.shape == (0, 3) and x.grad.shape == (0, 3)
    assert [b.tolist() for b in layer.buffers()] == before


def test_transposed_convolution_to_a_given_size(agree, rng):
    ours, theirs = make_twins("ConvTranspose2d", 2, 3, 3, 2, 1)
    x = rng.standard_normal((1, 2, 4, 4))
    agree(lambda x: ours(x, (8, 7)), lambda x: theirs(x, output_size=(8, 7)), x)
    with pytest.raises(ValueError, match=r"output_size \(9, 7\) must be from \(7, 7\)"):
        ours(tinytorch.tensor(x), (9, 7))


@pytest.mark.parametrize(("size", "mode"), [(1, "nearest"), (2, "nearest"), (2, "bilinear")])
def test_an_image_that_keeps_its_size_is_copied(size, mode):
    x = tinytorch.ones(1, 1, size, size)
    resized = nn.Upsample((2, 2), mode=mode)(x)
    x += 5
    resized[0, 0, 0] *= 3
    assert resized.tolist() == [[[[3, 3], [1, 1]]]]


def test_batch_norm_resets():
    layer = nn.BatchNorm1d(2)
    layer(tinytorch.randn(5, 2) * 3 + 7)
    assert layer.num_batches_tracked.item() == 1
    layer.reset_parameters()
    assert layer.running_mean.tolist() == [0, 0]
    assert layer.running_var.tolist() == [1, 1]
    assert layer.num_batches_tracked.item() == 0


@pytest.mark.parametrize("layer", [nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.RMSNorm(3)])
def test_norms_reset(layer):
    with tinytorch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(5)
    layer.reset_parameters()
    assert layer.weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(1, 2, 3), nn.Embedding(5, 2)])
def test_layers_draw_anew(layer):
    before = layer.weight.tolist()
    layer.reset_parameters()
    assert layer.weight.tolist() != before


@pytest.mark.parametrize(
    ("layer", "shape", "text"),
    [
        (nn.BatchNorm1d(3), (2, 3, 4, 4), r"BatchNorm1d: .* 2 or 3 dimensions and 3 channels"),
        (nn.BatchNorm2d(3), (2, 4, 4, 4), r"BatchNorm2d: .* 4 dimensions and 3 .*\(2, 4, 4, 4\)"),
        (nn.Linear(3, 2), (5, 4), r"linear: input \(5, 4\) and weight \(2, 3\) do not fit"),
        (nn.Conv2d(3, 2, 3), (1, 1, 5, 5), r"input \(1, 1, 5, 5\) and weight \(2, 3, 3, 3\)"),
    ],
)
def test_inputs_that_do_not_fit(layer, shape, text):
    with pytest.raises(tinytorch.ShapeError, match=text):
        layer(tinytorch.ones(*shape))


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="Conv2d: in_channels 3 and out_channels 4 must be mul"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match="GroupNorm: 5 channels do not make 2 groups"):
        nn.GroupNorm(2, 5)


def test_layers_take_a_dtype():
    for layer in (
        nn.Linear(2, 3, dtype="float64"),
        nn.Conv2d(1, 1, 1, dtype="float64"),
        nn.Conv1d(1, 1, 1, dtype="float64"),
        nn.BatchNorm1d(2, dtype="float64"),
        nn.LayerNorm(2, dtype="float64"),
        nn.RMSNorm(2, dtype="float64"),
        nn.GroupNorm(1, 2, dtype="float64"),
        nn.Embedding(2, 2, dtype="float64"),
    ):
        tensors = [*layer.parameters(), *layer.buffers()]
        assert {t.dtype for t in tensors} <= {tinytorch.float64, tinytorch.int64}
