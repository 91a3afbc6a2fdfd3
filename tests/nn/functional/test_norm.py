from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import ShapeError

LEADING = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
NORMALIZED = hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=4)
IMAGES = hnp.array_shapes(min_dims=2, max_dims=4, min_side=2, max_side=4)


@given(leading=LEADING, shape=NORMALIZED, affine=st.integers(0, 2), seed=st.integers(0, 999))
@settings(max_examples=60)
def test_layer_norm_equals_pytorch(agree, leading, shape, affine, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((*leading, *shape))]
    arrays += [rng.standard_normal(shape) for _ in range(affine)]
    agree(
        lambda x, *wb: F.layer_norm(x, shape, *wb, eps=1e-3),
        lambda x, *wb: TF.layer_norm(x, shape, *wb, eps=1e-3),
        *arrays,
    )


@given(leading=LEADING, shape=NORMALIZED, affine=st.booleans(), eps=st.sampled_from([None, 0.1]))
@settings(max_examples=60)
def test_rms_norm_equals_pytorch(agree, leading, shape, affine, eps):
    rng = np.random.default_rng(len(leading))
    arrays = [rng.standard_normal((*leading, *shape))]
    arrays += [rng.standard_normal(shape)] if affine else []
    agree(
        lambda x, w=None: F.rms_norm(x, shape, w, eps),
        lambda x, w=None: TF.rms_norm(x, shape, w, eps),
        *arrays,
    )


def test_rms_norm_takes_its_smallest_eps_from_the_dtype():
    for dtype in ("float32", "float64"):
        x = tinytorch.full((1, 2), 1e-6, dtype=dtype)
        expected = 1e-6 / math.sqrt(1e-12 + np.finfo(dtype).eps)
        np.testing.assert_allclose(F.rms_norm(x, (2,)).numpy(), expected, rtol=1e-5)


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3),
    groups=st.integers(1, 3),
    affine=st.integers(0, 2),
)
@settings(max_examples=60)
def test_group_norm_equals_pytorch(agree, shape, groups, affine):
    rng = np.random.default_rng(groups)
    channels = 2 * groups
    arrays = [rng.standard_normal((shape[0], channels, *shape[1:]))]
    arrays += [rng.standard_normal(channels) for _ in range(affine)]
    agree(
        lambda x, *wb: F.group_norm(x, groups, *wb),
        lambda x, *wb: TF.group_norm(x, groups, *wb),
        *arrays,
    )


def _batch_norm(function, as_tensor, training, momentum=0.3):
    """Batch norm as a function of x, weight and bias, with running statistics of its own."""

    def run(x, w=None, b=None):
        channels = x.shape[1]
        mean, var = as_tensor(np.linspace(-1, 1, channels)), as_tensor(np.linspace(1, 2, channels))
        out = function(x, mean, var, w, b, training, momentum)
        run.statistics = np.asarray(mean), np.asarray(var)
        return out

    return run


@given(shape=IMAGES, affine=st.integers(0, 2), training=st.booleans(), seed=st.integers(0, 999))
@settings(max_examples=60)
def test_batch_norm_equals_pytorch(agree, shape, affine, training, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(3, 2, shape)] + [rng.standard_normal(shape[1]) for _ in range(affine)]
    ours = _batch_norm(F.batch_norm, tinytorch.tensor, training)
    theirs = _batch_norm(TF.batch_norm, torch.tensor, training)
    # with two values a channel can be nearly constant, and the gradient large
    agree(ours, theirs, *arrays, rtol=1e-6)
    for mine, other in zip(ours.statistics, theirs.statistics, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9)


def test_running_statistics_may_be_left_out(agree, rng):
    agree(
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: TF.batch_norm(x, None, None, training=True),
        rng.standard_normal((4, 3)),
    )


def test_running_statistics_do_not_move_out_of_training():
    mean, var = tinytorch.zeros(2), tinytorch.ones(2)
    F.batch_norm(tinytorch.randn(4, 2), mean, var)
    assert mean.tolist() == [0, 0]
    assert var.tolist() == [1, 1]


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("backend", ["blocked", "optimized"])
@pytest.mark.parametrize("dtypes", [("float32",) * 2, ("float64",) * 2, ("float64", "float32")])
def test_running_statistics_by_a_kernel_or_in_parts(backend, dtypes, rng, monkeypatch):
    found, called = tinytorch.backends.find_backend(backend), []
    kernel = getattr(found, "running_statistics")  # noqa: B009, test_fused looks for the name
    monkeypatch.setattr(
        found, "running_statistics", lambda *a, **p: (called.append(1), kernel(*a, **p))
    )
    x = rng.normal(50, 2, (3, 4, 5, 2)).astype(dtypes[0])
    mean, var = tinytorch.zeros(4, dtype=dtypes[1]), tinytorch.ones(4, dtype=dtypes[1])
    with tinytorch.using_backend(backend):
        F.batch_norm(tinytorch.tensor(x), mean, var, training=True, momentum=0.25)
    exact, axes = x.astype(np.float64), (0, 2, 3)
    assert len(called) == (dtypes[0] == dtypes[1])
    rtol = 1e-12 if dtypes[1] == "float64" else 1e-5
    np.testing.assert_allclose(mean.numpy(), 0.25 * exact.mean(axes), rtol=rtol)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * exact.var(axes, ddof=1), rtol=rtol)


def test_derivatives(check_twice, rng):
    x, w, b = rng.standard_normal((3, 4, 2)), rng.standard_normal(4), rng.standard_normal(4)
    mean, var = tinytorch.tensor(rng.standard_normal(4)), tinytorch.tensor(rng.random(4))
    check_twice(lambda x, w, b: F.batch_norm(x, mean, var, w, b), x, w, b)
    check_twice(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, w, b)
    check_twice(lambda x, w, b: F.group_norm(x, 2, w, b), x, w, b)
    w, b = rng.standard_normal((4, 2)), rng.standard_normal((4, 2))
    check_twice(lambda x, w, b: F.layer_norm(x, (4, 2), w, b), x, w, b)
    check_twice(lambda x, w: F.rms_norm(x, (4, 2), w, 1e-3), x, w)


@pytest.mark.parametrize("row", [[2.0, 2, 2, 2], [0.0, 0, 0, 0], [math.nan, 0, 1, 2]])
def test_constant_rows_and_nan(agree, row):
    x = np.array([row, [1.0, 2, 3, 5]])
    agree(lambda x: F.layer_norm(x, (4,)), lambda x: TF.layer_norm(x, (4,)), x, rtol=1e-7)
    agree(
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: TF.batch_norm(x, None, None, training=True),
        x.T.copy(),
        rtol=1e-7,
    )


X = tinytorch.ones(2, 3, 4)
V = tinytorch.ones(5)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: F.layer_norm(X, (3,)),
            ShapeError,
            r"layer_norm: input \(2, 3, 4\) must end with normalized_shape \(3,\)",
        ),
        (
            lambda: F.layer_norm(X, ()),
            ShapeError,
            r"must end with normalized_shape \(\)",
        ),
        (
            lambda: F.layer_norm(X, (4,), V),
            ShapeError,
            r"layer_norm: weight and bias must have shape \(4,\), not \(5,\)",
        ),
        (
            lambda: F.rms_norm(X, (4,), V),
            ShapeError,
            r"rms_norm: weight and bias must have shape \(4,\), not \(5,\)",
        ),
        (
            lambda: F.group_norm(X, 2),
            ShapeError,
            r"group_norm: the 3 channels of input \(2, 3, 4\) do not split into 2 groups",
        ),
        (
            lambda: F.group_norm(X, 3, V),
            ShapeError,
            r"group_norm: input \(2, 3, 4\) needs vectors of shape \(3,\), .* not \(5,\)",
        ),
        (
            lambda: F.batch_norm(V, None, None, training=True),
            ShapeError,
            r"batch_norm: the input must be \(n, channels, \.\.\.\), not \(5,\)",
        ),
        (
            lambda: F.batch_norm(X, V, V),
            ShapeError,
            r"batch_norm: input \(2, 3, 4\) needs vectors of shape \(3,\), .* not \(5,\)",
        ),
        (
            lambda: F.batch_norm(X, None, None),
            ValueError,
            "running_mean and running_var are needed out of training",
        ),
        (
            lambda: F.batch_norm(X[:1, :, :1], None, None, training=True),
            ValueError,
            r"more than one value for each channel, not shape \(1, 3, 1\); use a larger batch",
        ),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 4), (2, 3, 0)])
def test_batch_norm_of_nothing_has_gradients_of_zero(shape):
    x = tinytorch.zeros(*shape).requires_grad_()
    weight, bias = (tinytorch.ones(3).requires_grad_() for _ in range(2))
    mean, variance = tinytorch.zeros(3), tinytorch.ones(3)
    out = F.batch_norm(x, mean, variance, weight, bias, training=True)
    out.sum().backward()
    assert out.shape == x.grad.shape == shape
    assert weight.grad.tolist() == bias.grad.tolist() == [0, 0, 0]  # as in PyTorch, and not None
    assert mean.tolist() == [0, 0, 0] and variance.tolist() == [1, 1, 1]
