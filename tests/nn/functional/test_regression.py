from __future__ import annotations

import math

import numpy as np
import pytest
import torch.nn.functional as TF
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import ShapeError

LOSSES = {
    "mse_loss": {},
    "l1_loss": {},
    "huber_loss": {"delta": 0.7},
    "smooth_l1_loss": {"beta": 0.7},
}


@pytest.mark.parametrize("name", LOSSES)
@given(
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    reduction=st.sampled_from(["none", "mean", "sum"]),
    seed=st.integers(0, 999),
)
def test_equals_pytorch(agree, name, shape, reduction, seed):
    rng = np.random.default_rng(seed)
    options = {**LOSSES[name], "reduction": reduction}
    agree(
        lambda x, y: getattr(F, name)(x, y, **options),
        lambda x, y: getattr(TF, name)(x, y, **options),
        rng.standard_normal(shape),
        rng.standard_normal(shape),
    )


@pytest.mark.parametrize("name", LOSSES)
def test_edge_values(agree, name):
    """Equal numbers, where parabola and line meet, and beyond what can be subtracted."""
    options = {"huber_loss": {"delta": 1.0}, "smooth_l1_loss": {"beta": 1.0}}.get(name, {})
    agree(
        lambda x, y: getattr(F, name)(x, y, reduction="none", **options),
        lambda x, y: getattr(TF, name)(x, y, reduction="none", **options),
        np.array([0.0, 1, -1, 0.5, 1e200, -1e200, math.inf, -math.inf, math.nan]),
        np.zeros(9),
    )


def test_smooth_l1_without_a_parabola_is_l1(agree, rng):
    agree(
        lambda x, y: F.smooth_l1_loss(x, y, beta=0.0),
        lambda x, y: TF.smooth_l1_loss(x, y, beta=0.0),
        rng.standard_normal(5),
        rng.standard_normal(5),
    )


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives(check_twice, rng, name):
    def loss(x, y):
        return getattr(F, name)(x, y, **LOSSES[name])

    check_twice(loss, rng.standard_normal((4, 3)), rng.standard_normal((4, 3)))


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_second_derivative_where_the_difference_is_zero(name):
    x = tinytorch.tensor([0.0], requires_grad=True)
    loss = getattr(F, name)(x, tinytorch.tensor([0.0]))
    (first,) = tinytorch.autograd.grad(loss, x, create_graph=True)
    (second,) = tinytorch.autograd.grad(first.sum(), x)
    assert second.tolist() == [1]


@pytest.mark.parametrize("name", LOSSES)
def test_shapes_must_be_equal(name):
    text = rf"{name}: input \(3, 1\) and target \(3,\) must have the same shape"
    with pytest.raises(ShapeError, match=text):
        getattr(F, name)(tinytorch.ones(3, 1), tinytorch.ones(3))


def test_errors():
    x = tinytorch.ones(2)
    with pytest.raises(ValueError, match="huber_loss: delta must be positive, not 0"):
        F.huber_loss(x, x, delta=0)
    with pytest.raises(ValueError, match="smooth_l1_loss: beta cannot be negative: -1"):
        F.smooth_l1_loss(x, x, beta=-1)
    with pytest.raises(ValueError, match="reduction must be one of none, mean, sum, not 'max'"):
        F.mse_loss(x, x, reduction="max")


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weighted_losses_equal_pytorch(agree, rng, name, reduction):
    arrays = [rng.standard_normal((4, 3)), rng.standard_normal((4, 3)), rng.random((4, 3))]
    agree(
        lambda x, y, w: getattr(F, name)(x, y, reduction=reduction, weight=w),
        lambda x, y, w: getattr(TF, name)(x, y, reduction=reduction, weight=w),
        *arrays,
    )
