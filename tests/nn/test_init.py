from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tinytorch import Generator, nn
from tinytorch.errors import ShapeError
from tinytorch.nn import init

NONLINEARITIES = [
    *("linear", "conv1d", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "selu"),
    "leaky_relu",
]
BIG = (100, 30, 3, 3)


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_gains_equal_pytorchs(name):
    assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))


def test_gain_of_a_slope():
    expected = torch.nn.init.calculate_gain("leaky_relu", 0.3)
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(expected)
    with pytest.raises(
        ValueError, match="no gain is known for 'gelu'; there are conv1d, conv2d, conv3d"
    ):
        init.calculate_gain("gelu")


@given(shape=st.lists(st.integers(0, 5), min_size=2, max_size=4))
def test_fans(shape):
    fan_in, fan_out = init.fan_in_and_fan_out(tuple(shape))
    field = math.prod(shape[2:])
    assert (fan_in, fan_out) == (shape[1] * field, shape[0] * field)


def test_fans_need_a_matrix():
    with pytest.raises(ShapeError, match=r"need at least two dimensions, not shape \(3,\)"):
        init.kaiming_normal_(tinytorch.zeros(3))


UNIFORM = {
    "uniform_": (lambda t, g: init.uniform_(t, -2.0, 2.0, g), 2.0),
    "xavier_uniform_": (
        lambda t, g: init.xavier_uniform_(t, 1.5, g),
        1.5 * math.sqrt(6 / (130 * 9)),
    ),
    "kaiming_uniform_": (
        lambda t, g: init.kaiming_uniform_(t, nonlinearity="relu", generator=g),
        math.sqrt(6 / 270),
    ),
    "kaiming_uniform_ fan_out": (
        lambda t, g: init.kaiming_uniform_(t, 0.5, "fan_out", generator=g),
        math.sqrt(3 * 2 / (1.25 * 900)),
    ),
}
NORMAL = {
    "normal_": (lambda t, g: init.normal_(t, 0.0, 0.5, g), 0.5),
    "xavier_normal_": (lambda t, g: init.xavier_normal_(t, generator=g), math.sqrt(2 / (130 * 9))),
    "kaiming_normal_": (
        lambda t, g: init.kaiming_normal_(t, nonlinearity="tanh", generator=g),
        5 / 3 / math.sqrt(270),
    ),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform(name):
    fill, bound = UNIFORM[name]
    values = fill(nn.Parameter(tinytorch.zeros(BIG)), Generator(0)).detach().numpy()
    assert np.abs(values).max() <= bound
    assert np.abs(values).max() == pytest.approx(bound, rel=0.01)
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert abs(values.mean()) < 0.02 * bound


@pytest.mark.parametrize("name", NORMAL)
def test_normal(name):
    fill, std = NORMAL[name]
    values = fill(nn.Parameter(tinytorch.zeros(BIG)), Generator(0)).detach().numpy()
    assert values.std() == pytest.approx(std, rel=0.02)
    assert abs(values.mean()) < 0.02 * std
    # as many beyond two standard deviations as a normal distribution has
    assert (np.abs(values) > 2 * std).mean() == pytest.approx(0.0455, abs=0.005)


def test_constants():
    parameter = nn.Parameter(tinytorch.zeros(2))
    assert init.ones_(parameter) is parameter
    assert parameter.tolist() == [1, 1]
    assert init.constant_(parameter, 3.5).tolist() == [3.5, 3.5]
    assert init.zeros_(parameter).tolist() == [0, 0]
    assert parameter.requires_grad


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (4, 2, 3)])
def test_orthogonal(shape):
    matrix = init.orthogonal_(tinytorch.zeros(shape, dtype="float64"), 2.0, Generator(1)).numpy()
    matrix = matrix.reshape(shape[0], -1)
    short = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    np.testing.assert_allclose(short @ short.T, 4 * np.eye(len(short)), atol=1e-12)
    with pytest.raises(ShapeError, match="orthogonal_ needs at least two dimensions"):
        init.orthogonal_(tinytorch.zeros(3))


def test_orthogonal_has_no_preferred_sign():
    corners = [
        init.orthogonal_(tinytorch.zeros(2, 2), generator=Generator(seed))[0, 0].item()
        for seed in range(60)
    ]
    # five standard deviations of 60 coins
    assert 10 < sum(corner > 0 for corner in corners) < 50


def test_the_seed_determines_the_values():
    first, second, third = (
        init.normal_(tinytorch.zeros(5), generator=Generator(seed)).tolist() for seed in (1, 1, 2)
    )
    assert first == second != third
    tinytorch.manual_seed(4)
    drawn = nn.Linear(3, 2).weight.tolist()
    tinytorch.manual_seed(4)
    assert nn.Linear(3, 2).weight.tolist() == drawn


def test_mode_is_checked():
    with pytest.raises(ValueError, match="mode must be 'fan_in' or 'fan_out', not 'fan'"):
        init.kaiming_uniform_(tinytorch.zeros(2, 2), mode="fan")


def test_truncated_normal():
    tensor = init.trunc_normal_(tinytorch.zeros(200, 300), 1.0, 2.0, -1.0, 2.0, Generator(0))
    values = tensor.numpy()
    assert values.min() >= -1 and values.max() <= 2
    torch.manual_seed(0)
    expected = torch.nn.init.trunc_normal_(torch.zeros(200, 300), 1.0, 2.0, -1.0, 2.0)
    assert values.mean() == pytest.approx(expected.mean().item(), abs=0.02)
    assert values.std() == pytest.approx(expected.std().item(), rel=0.02)
    for bounds in ((1.0, 1.0), (100.0, 101.0)):
        with pytest.raises(ValueError, match="trunc_normal_: nothing to draw from"):
            init.trunc_normal_(tensor, a=bounds[0], b=bounds[1])


def test_eye_and_dirac_equal_pytorch():
    np.testing.assert_array_equal(
        init.eye_(tinytorch.zeros(3, 4)).numpy(), torch.nn.init.eye_(torch.zeros(3, 4))
    )
    for shape, groups in (((4, 3, 3), 1), ((6, 2, 3, 4), 3), ((2, 4, 1, 2, 3), 1)):
        np.testing.assert_array_equal(
            init.dirac_(tinytorch.ones(*shape), groups).numpy(),
            torch.nn.init.dirac_(torch.ones(*shape), groups),
        )
    with pytest.raises(ShapeError, match="eye_ needs a matrix"):
        init.eye_(tinytorch.zeros(3))
    with pytest.raises(ShapeError, match="dirac_ needs kernels"):
        init.dirac_(tinytorch.zeros(3, 3))


def test_sparse():
    values = init.sparse_(tinytorch.zeros(10, 50), 0.25, 2.0, Generator(0)).numpy()
    assert (values == 0).sum(0).tolist() == [3] * 50
    assert values[values != 0].std() == pytest.approx(2, rel=0.15)
    with pytest.raises(ShapeError, match="sparse_ needs a matrix"):
        init.sparse_(tinytorch.zeros(3), 0.1)
