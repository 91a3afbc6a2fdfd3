"""Layers that draw random numbers in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import nn


def test_dropout_layers_drop_in_training_only():
    for layer in (nn.Dropout(0.4), nn.Dropout2d(0.4), nn.AlphaDropout(0.4)):
        x = tinytorch.ones(4, 8, 2, 2)
        dropped = (layer(x) < 0.5).sum().item()
        assert 0 < dropped < x.numel()
        assert layer.eval()(x) is x
    assert repr(nn.Dropout(0.4)) == "Dropout(p=0.4)"
    with pytest.raises(ValueError, match="dropout: p must be from 0 to 1, not 2"):
        nn.Dropout(2)


@pytest.mark.parametrize("layer", [nn.Dropout1d(0.5), nn.Dropout2d(0.5), nn.Dropout3d(0.5)])
def test_channels_are_dropped_as_a_whole(layer):
    dims = int(type(layer).__name__[-2])
    for batch in ((40, 5), (8,))[: 1 if dims == 2 else 2]:
        out = layer(tinytorch.ones(*batch, *(3,) * dims))
        rows = out.reshape(-1, 3**dims)
        assert set(rows.sum(1).tolist()) <= {0.0, 2.0 * 3**dims}
    with pytest.raises(tinytorch.ShapeError, match=f"dropout{dims}d: the input must be"):
        layer(tinytorch.ones(2))


def test_alpha_dropout_keeps_mean_and_variance():
    tinytorch.manual_seed(0)
    out = nn.AlphaDropout(0.3)(tinytorch.randn(200_000))
    assert out.mean().item() == pytest.approx(0, abs=0.02)
    assert out.std().item() == pytest.approx(1, abs=0.02)


def test_rrelu_draws_slopes_in_training_and_takes_the_mean_in_evaluation(agree, rng):
    tinytorch.manual_seed(0)
    layer = nn.RReLU(0.2, 0.6)
    slopes = layer(-tinytorch.ones(1000)).numpy()
    assert -0.6 < slopes.min() < -0.55 and -0.25 < slopes.max() < -0.2
    agree(layer.eval(), torch.nn.RReLU(0.2, 0.6).eval(), rng.standard_normal((3, 4)))
    edges = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 2.0, -2.0])
    for training, upper in [(False, 0.5), (True, 0.25)]:  # in training of one slope, not drawn
        ours, theirs = (m.tensor(edges, requires_grad=True) for m in (tinytorch, torch))
        out = tinytorch.nn.functional.rrelu(ours, 0.25, upper, training)
        expected = torch.nn.functional.rrelu(theirs, 0.25, upper, training)
        out.sum().backward(), expected.sum().backward()
        np.testing.assert_array_equal(out.detach().numpy(), expected.detach().numpy())
        np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())
