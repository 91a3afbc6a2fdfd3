from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
import tinytorch.nn.functional as F
from tests.torch_compare import assert_like_torch
from tinytorch.errors import ShapeError

Pair = tuple[Callable[..., Any], Callable[..., Any]]

ELEMENTWISE: dict[str, Pair] = {
    "relu": (F.relu, TF.relu),
    "relu6": (F.relu6, TF.relu6),
    "leaky_relu": (F.leaky_relu, TF.leaky_relu),
    "leaky_relu steep": (lambda x: F.leaky_relu(x, -0.5), lambda x: TF.leaky_relu(x, -0.5)),
    "elu": (F.elu, TF.elu),
    "elu 2": (lambda x: F.elu(x, 2.0), lambda x: TF.elu(x, 2.0)),
    "selu": (F.selu, TF.selu),
    "gelu": (F.gelu, TF.gelu),
    "gelu tanh": (lambda x: F.gelu(x, "tanh"), lambda x: TF.gelu(x, approximate="tanh")),
    "silu": (F.silu, TF.silu),
    "mish": (F.mish, TF.mish),
    "sigmoid": (F.sigmoid, torch.sigmoid),
    "logsigmoid": (F.logsigmoid, TF.logsigmoid),
    "tanh": (F.tanh, torch.tanh),
    "hardtanh": (F.hardtanh, TF.hardtanh),
    "hardtanh wide": (lambda x: F.hardtanh(x, -2.0, 6.0), lambda x: TF.hardtanh(x, -2.0, 6.0)),
    "softplus": (F.softplus, TF.softplus),
    "softplus 3, 6": (lambda x: F.softplus(x, 3.0, 6.0), lambda x: TF.softplus(x, 3.0, 6.0)),
    "softsign": (F.softsign, TF.softsign),
    "tanhshrink": (F.tanhshrink, TF.tanhshrink),
}
PIECEWISE: dict[str, Pair] = {
    "hardsigmoid": (F.hardsigmoid, TF.hardsigmoid),
    "hardswish": (F.hardswish, TF.hardswish),
    "hardshrink": (F.hardshrink, TF.hardshrink),
    "hardshrink 2": (lambda x: F.hardshrink(x, 2.0), lambda x: TF.hardshrink(x, 2.0)),
    "softshrink": (F.softshrink, TF.softshrink),
    "softshrink 2": (lambda x: F.softshrink(x, 2.0), lambda x: TF.softshrink(x, 2.0)),
    "threshold": (lambda x: F.threshold(x, 2, 5), lambda x: TF.threshold(x, 2, 5)),
    "celu": (F.celu, TF.celu),
    "celu 2": (lambda x: F.celu(x, 2.0), lambda x: TF.celu(x, 2.0)),
}
ALONG: dict[str, Pair] = {
    "softmax": (F.softmax, TF.softmax),
    "log_softmax": (F.log_softmax, TF.log_softmax),
}
# kinks, bounds, and where exp overflows or a sum rounds
EDGES = np.array(
    [
        *(-math.inf, -1e30, -1000, -40, -20, -6, -2, -1, -1e-30, -0.0),
        *(0, 1e-30, 1, 2, 6, 20, 40, 1000, 1e30, math.inf, math.nan),
    ]
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "int32", "int64", "float32", "float64"]
)
@pytest.mark.parametrize("name", ["relu6", "hardtanh"])
def test_the_dtype_of_clipped_numbers_is_theirs(name, dtype):
    x = np.array([0, 1, 5, 9], dtype) - (0 if dtype == "uint8" else 3)
    x = x.astype(dtype)
    if name == "hardtanh" and dtype == "uint8":  # PyTorch: -1 is no uint8
        assert_like_torch(lambda x: F.hardtanh(x, 1, 6), lambda x: TF.hardtanh(x, 1, 6), x)
    else:
        assert_like_torch(getattr(F, name), getattr(TF, name), x)


@pytest.mark.parametrize("name", ["relu6", "hardtanh"])
def test_bools_are_not_clipped(name):
    for library, x in ((F, tinytorch.tensor([True])), (TF, torch.tensor([True]))):
        with pytest.raises(RuntimeError if library is TF else TypeError):
            getattr(library, name)(x)


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("name", ELEMENTWISE)
@given(shape=SHAPES, seed=st.integers(0, 999))
def test_equals_pytorch(agree, name, shape, seed):
    agree(*ELEMENTWISE[name], np.random.default_rng(seed).normal(0, 3, shape))


@pytest.mark.parametrize("name", sorted(set(ELEMENTWISE) - {"relu"}))
def test_equals_pytorch_at_edge_values(agree, name):
    agree(*ELEMENTWISE[name], EDGES)


def test_relu_at_edge_values(agree):
    # the gradient of relu at NaN is 0 here and 1 in PyTorch; all else is equal
    agree(*ELEMENTWISE["relu"], EDGES[:-1])
    assert math.isnan(F.relu(tinytorch.tensor([math.nan])).item())


@pytest.mark.parametrize("name", PIECEWISE)
def test_piecewise_equals_pytorch(rng, name):
    for x in (rng.normal(0, 3, (4, 5)), EDGES[1:-2], np.array([-3.0, 3.0, -0.5, 0.5, 0.0, 2.0])):
        assert_like_torch(*PIECEWISE[name], x, rtol=1e-6)  # PyTorch has float32 constants


def test_shrinking_nan():
    for function in (F.hardshrink, F.softshrink, F.hardsigmoid, F.hardswish):
        assert math.isnan(function(tinytorch.tensor([math.nan])).item())


@pytest.mark.parametrize("name", PIECEWISE)
def test_piecewise_derivatives(check_twice, rng, name):
    check_twice(PIECEWISE[name][0], rng.normal(0, 3, (3, 4)))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(agree, check_twice, rng, dim):
    x = rng.standard_normal((4, 6))
    agree(lambda x: F.glu(x, dim), lambda x: TF.glu(x, dim), x)
    check_twice(lambda x: F.glu(x, dim), x)
    with pytest.raises(ShapeError, match=r"glu: x \(3, 4\) must have an even size along dim"):
        F.glu(tinytorch.ones(3, 4), 0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_softmax_without_dim_takes_pytorchs_and_warns(agree, rng, name, shape):
    text = f"Implicit dimension choice for {name} has been deprecated"
    with pytest.warns(UserWarning, match=text):
        agree(getattr(F, name), getattr(TF, name), rng.standard_normal(shape))
    with pytest.warns(UserWarning, match=text):
        getattr(F, name)(tinytorch.ones(*shape))


def test_gumbel_softmax():
    tinytorch.manual_seed(0)
    logits = tinytorch.tensor([[0.0, 1.0, 2.0]] * 4000, requires_grad=True)
    for dim, x in ((-1, logits), (0, logits.T)):
        hard = F.gumbel_softmax(x, tau=0.5, hard=True, dim=dim)
        assert set(hard.detach().numpy().round(5).ravel()) == {0.0, 1.0}
        share = hard.mean(0 if dim == -1 else 1).detach()
        np.testing.assert_allclose(share.numpy(), [0.09, 0.245, 0.665], atol=0.03)
    soft = F.gumbel_softmax(logits, tau=0.5)
    np.testing.assert_allclose(soft.sum(1).detach().numpy(), 1, rtol=1e-5)
    (hard * hard).sum().backward()
    assert logits.grad.abs().sum().item() > 0


@pytest.mark.parametrize(
    "name", ["relu", "relu6", "leaky_relu", "elu", "selu", "celu", "silu", "mish", "hardtanh",
             "hardsigmoid", "hardswish"],
)  # fmt: skip
def test_inplace_writes_where_nothing_is_recorded(name):
    x = tinytorch.tensor([-1.0, 2.0])
    expected = getattr(F, name)(x).tolist()
    out = getattr(F, name)(x, inplace=True)
    assert out is x and x.tolist() == expected


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "selu", "celu", "hardtanh"])
def test_recorded_inplace_equals_pytorch(agree, rng, name):
    """What is used afterwards is the new value, here by the old name and by `relu_`."""

    def program(functions):
        def call(x):
            y = x * 3
            other = y
            getattr(functions, name)(y, inplace=True)
            z = y + 1
            getattr(functions, f"{name}_")(z)
            return y * z + other

        return call

    agree(program(F), program(TF), rng.standard_normal((3, 4)))


def test_inplace_of_a_leaf_is_refused():
    leaf = tinytorch.ones(2, requires_grad=True)
    with pytest.raises(tinytorch.AutogradError, match="on a leaf that requires a gradient"):
        F.relu(leaf, True)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_derivatives(check_twice, rng, name):
    check_twice(ELEMENTWISE[name][0], rng.normal(0, 3, (3, 4)))


@pytest.mark.parametrize("name", ["elu", "selu", "softplus", "logsigmoid", "mish"])
def test_float32_equals_float64_where_exp_overflows(name):
    values = [-500.0, -90.0, -1e-4, 1e-4, 30.0, 90.0, 500.0]
    single = ELEMENTWISE[name][0](tinytorch.tensor(values))
    double = ELEMENTWISE[name][0](tinytorch.tensor(values, dtype="float64"))
    assert single.dtype is tinytorch.float32
    np.testing.assert_allclose(single.numpy(), double.numpy(), rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("name", ALONG)
@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4),
    dim=st.integers(-4, 3),
    scale=st.sampled_from([1.0, 1000.0]),
)
def test_softmax_equals_pytorch(agree, name, shape, dim, scale):
    dim = max(-len(shape), min(dim, len(shape) - 1))
    ours, theirs = ALONG[name]
    x = np.random.default_rng(len(shape)).standard_normal(shape) * scale
    agree(lambda x: ours(x, dim), lambda x: theirs(x, dim), x)


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize(
    "row",
    [
        [0.0, 0.0, 0.0],
        [-math.inf, 0.0, 1.0],
        [1e300, 1e300, -1e300],
        [math.nan, 0.0, 1.0],
        [math.inf, 0.0, 1.0],
        [-math.inf, -math.inf, -math.inf],
    ],
)
def test_softmax_at_edge_values(agree, name, row):
    ours, theirs = ALONG[name]
    agree(lambda x: ours(x, 1), lambda x: theirs(x, 1), np.array([row, [1.0, 2.0, 3.0]]))


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0)])
def test_softmax_of_nothing_and_of_one_number(agree, name, shape):
    ours, theirs = ALONG[name]
    agree(lambda x: ours(x, -1), lambda x: theirs(x, -1), np.ones(shape))


@pytest.mark.parametrize("name", ALONG)
def test_softmax_derivatives(check_twice, rng, name):
    check_twice(lambda x: ALONG[name][0](x, 1), rng.standard_normal((2, 4, 3)))


@pytest.mark.parametrize("shape", [(4,), (5, 3), (2, 3, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("per_channel", [False, True])
def test_prelu(agree, check_twice, rng, shape, per_channel):
    channels = shape[1] if len(shape) > 1 and per_channel else 1
    arrays = rng.standard_normal(shape), rng.standard_normal(channels)
    agree(F.prelu, TF.prelu, *arrays)
    check_twice(F.prelu, *arrays)


def test_prelu_at_edge_values(agree):
    agree(F.prelu, TF.prelu, EDGES[1:-2], np.array([0.25]))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda x: F.gelu(x, "fast"),
            ValueError,
            "gelu: approximate must be 'none' or 'tanh', not 'fast'",
        ),
        (
            lambda x: F.hardtanh(x, 1.5, 1.0),
            ValueError,
            "hardtanh: min_val 1.5 must not be above max_val 1.0",
        ),
        (
            lambda x: F.prelu(x, tinytorch.ones(4)),
            ShapeError,
            r"prelu: weight \(4,\) must be \(1,\) or, for input \(2, 3\), \(3,\)",
        ),
        (lambda x: F.softmax(x, 2), IndexError, "dim 2 is out of range: a tensor of 2 dimensions"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(tinytorch.ones(2, 3))


@pytest.mark.parametrize("bounds", [{"max_val": np.nan}, {"min_val": np.nan}])
@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
def test_a_bound_that_is_nan_makes_everything_nan(bounds, backend):
    x = np.array([-2.0, 0.0, 0.5, 3.0, np.nan])
    with tinytorch.using_backend(backend):
        assert_like_torch(lambda x: F.hardtanh(x, **bounds), lambda x: TF.hardtanh(x, **bounds), x)
        limits = {name.removesuffix("_val"): value for name, value in bounds.items()}
        both = {"min": 0.0, "max": 1.0} | limits
        assert_like_torch(lambda x: x.clamp(**limits), lambda x: x.clamp(**limits), x)
        assert_like_torch(lambda x: x.clamp(**both), lambda x: x.clamp(**both), x)
        ours = F.hardtanh_(tinytorch.tensor(x), **bounds)
        assert ours.isnan().all()
