from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import assume, given, settings, strategies as st

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.autograd import grad, gradgradcheck
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.graph import trace
from tinytorch.replay.function import HOT
from tinytorch.shapes_conv import window_positions

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def cases(draw, dilations=pairs):
    """An image and a window that fits into it."""
    kernel, stride, dilation = draw(pairs), draw(pairs), draw(dilations)
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    # from 3 on no window lies wholly in the padding, which PyTorch allows and our rule refuses
    size = draw(st.tuples(st.integers(3, 8), st.integers(3, 8)))
    geometry = list(zip(size, kernel, stride, padding, dilation, strict=True))
    assume(all(window_positions(*g) >= 1 for g in geometry))
    return (*draw(st.tuples(st.integers(1, 2), st.integers(1, 2))), *size), (
        kernel,
        stride,
        padding,
        dilation,
    )


@given(case=cases(), ties=st.booleans(), seed=st.integers(0, 999))
@settings(max_examples=60)
def test_max_pool2d_equals_pytorch(agree, case, ties, seed):
    shape, params = case
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 2, shape).astype(float) if ties else rng.standard_normal(shape)
    agree(lambda x: F.max_pool2d(x, *params), lambda x: TF.max_pool2d(x, *params), x)


@given(case=cases(dilations=st.just((1, 1))), seed=st.integers(0, 999))
@settings(max_examples=60)
def test_avg_pool2d_equals_pytorch(agree, case, seed):
    shape, (kernel, stride, padding, _) = case
    x = np.random.default_rng(seed).standard_normal(shape)
    agree(
        lambda x: F.avg_pool2d(x, kernel, stride, padding),
        lambda x: TF.avg_pool2d(x, kernel, stride, padding),
        x,
    )


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_infinity_and_nan(agree, rng, name, value):
    x = rng.standard_normal((1, 1, 4, 4))
    x[0, 0, 1, 2] = value
    if not np.isnan(value):  # of several NaN the first takes the gradient, in PyTorch the last
        x[0, 0, 2:] = value
    agree(lambda x: getattr(F, name)(x, 2), lambda x: getattr(TF, name)(x, 2), x)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_one_image_and_an_empty_batch(agree, rng, name):
    ours, theirs = getattr(F, name), getattr(TF, name)
    agree(lambda x: ours(x, 2), lambda x: theirs(x, 2), rng.standard_normal((3, 4, 4)))
    agree(lambda x: ours(x, 2), lambda x: theirs(x, 2), np.zeros((0, 3, 4, 4)))


def test_derivatives(check_twice, rng):
    x = rng.standard_normal((2, 2, 5, 6))
    check_twice(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    check_twice(lambda x: F.max_pool2d(x, 2, 1, 0, 2) ** 2, x)
    check_twice(lambda x: F.avg_pool2d(x, (2, 3), 2, 1) ** 2, x)
    check_twice(lambda x: F.adaptive_avg_pool2d(x, (2, 4)) ** 2, x)


@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    output=st.tuples(
        st.one_of(st.none(), st.integers(1, 10)), st.one_of(st.none(), st.integers(1, 10))
    ),
)
@settings(max_examples=60)
def test_adaptive_avg_pool2d_equals_pytorch(agree, size, output):
    x = np.random.default_rng(size[0]).standard_normal((2, 3, *size))
    agree(
        lambda x: F.adaptive_avg_pool2d(x, output), lambda x: TF.adaptive_avg_pool2d(x, output), x
    )


@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    output=st.tuples(st.integers(1, 10), st.integers(1, 10)),
    ties=st.booleans(),
)
@settings(max_examples=60)
def test_adaptive_max_pool2d_equals_pytorch(agree, size, output, ties):
    """With windows that overlap, and equal elements in them."""
    x = np.random.default_rng(size[0]).standard_normal((2, 3, *size))
    x = np.round(x) if ties else x
    agree(
        lambda x: F.adaptive_max_pool2d(x, output), lambda x: TF.adaptive_max_pool2d(x, output), x
    )
    agree(
        lambda x: F.adaptive_max_pool1d(x[0], output[0]),
        lambda x: TF.adaptive_max_pool1d(x[0], output[0]),
        x,
    )


@pytest.mark.parametrize("backend", ["naive", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(("size", "output"), [((7, 5), (3, 2)), ((4, 6), (2, 3)), ((2, 3), (5, 4))])
def test_where_adaptive_maxima_come_from(backend, dtype, size, output, rng):
    x = rng.integers(-3, 3, (2, 3, *size)).astype(dtype)  # many are equal
    with tinytorch.using_backend(backend):
        for _ in range(HOT + 2):  # a program, in the end
            found = F.adaptive_max_pool2d(tinytorch.tensor(x), output, return_indices=True)
            alone = F.adaptive_max_pool2d(tinytorch.tensor(x), output)
        row = F.adaptive_max_pool1d(tinytorch.tensor(x[0]), output[1], return_indices=True)
    values = torch.tensor(x.astype("float32"))
    wanted = TF.adaptive_max_pool2d(values, output, return_indices=True)
    wanted_row = TF.adaptive_max_pool1d(values[0], output[1], return_indices=True)
    for ours, theirs in zip((*found, *row), (*wanted, *wanted_row), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    np.testing.assert_array_equal(alone.numpy(), found[0].numpy())
    assert found[0].dtype.name == dtype and found[1].dtype is tinytorch.int64


@pytest.mark.parametrize("traced", [False, True])
def test_of_equal_adaptive_maxima_the_first_takes_the_gradient(traced):
    x = tinytorch.zeros(1, 1, 4, 4, requires_grad=True)
    function = partial(F.adaptive_max_pool2d, output_size=2)
    function = trace(function, x) if traced else function
    (g,) = grad([function(x)], [x], [tinytorch.ones(1, 1, 2, 2)])
    assert g.tolist()[0][0] == [[1.0, 0.0, 1.0, 0.0], [0.0] * 4] * 2


def test_the_mean_of_whole_images_is_one_sum(rng):
    x = tinytorch.from_numpy(rng.standard_normal((2, 3, 5, 4)).astype(np.float32))
    graph = str(trace(lambda x: F.adaptive_avg_pool2d(x, 1), x).graph)
    assert graph.count("sum(") == 1, graph
    whole = tinytorch.ones(2, 3, 1, 1)
    F.adaptive_avg_pool2d(whole, 1).zero_()
    assert whole.sum().item() == 6  # the result is no view


def test_adaptive_avg_pool2d_keeps_infinity_in_its_window(agree, rng):
    x = rng.standard_normal((1, 2, 7, 5))
    x[0, 0, 0, 0], x[0, 1, 6, 4] = np.inf, np.nan
    agree(lambda x: F.adaptive_avg_pool2d(x, 3), lambda x: TF.adaptive_avg_pool2d(x, 3), x)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda x: F.max_pool2d(x, 6),
            ShapeError,
            r"max_pool2d: a window of \(6, 6\) .* does not fit into \(5, 5\)",
        ),
        (
            lambda x: F.max_pool2d(x, 2, padding=2),
            ShapeError,
            r"padding \(2, 2\) must be at most half the window \(2, 2\)",
        ),
        (
            lambda x: F.avg_pool2d(x, (3, 2), 2, padding=(2, 0), ceil_mode=True),
            ShapeError,
            r"padding \(2, 0\) must be at most half the window \(3, 2\)",
        ),
        (
            lambda x: F.avg_pool2d(x[0, 0], 2),
            ShapeError,
            r"the input must be \(n, channels, height, width\), not \(5, 5\)",
        ),
        (
            lambda x: F.avg_pool2d(x, (2, 2, 2)),
            ValueError,
            r"kernel_size must be one number or two, not \(2, 2, 2\)",
        ),
        (
            lambda x: F.adaptive_avg_pool2d(x, (0, 1)),
            ValueError,
            r"output_size must be one or two numbers from 1 on, not \(0, 1\)",
        ),
        (
            lambda x: F.adaptive_avg_pool2d(x[0, 0], 1),
            ShapeError,
            r"adaptive_avg_pool2d: the input must be \(\.\.\., h, w\), not \(5, 5\)",
        ),
        (
            lambda x: F.max_pool2d(x.long(), 2, ceil_mode=True),
            DTypeError,
            "max_pool2d takes floating-point tensors, not int64",
        ),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(tinytorch.ones(1, 1, 5, 5))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("stride", [1, 2])  # windows that overlap choose a place more than once
def test_unpooled_values_and_their_gradients_are_pytorchs(backend, stride, rng):
    x = rng.standard_normal((2, 3, 5, 6))
    x[0, 0, :3] = np.inf
    pooled, places = TF.max_pool2d(torch.tensor(x), 2, stride, return_indices=True)
    theirs = TF.max_unpool2d(pooled.requires_grad_(), places, 2, stride)
    g = rng.standard_normal(tuple(theirs.shape))
    (wanted,) = torch.autograd.grad(theirs, pooled, torch.tensor(g))
    with tinytorch.using_backend(backend):
        values = tinytorch.from_numpy(pooled.detach().numpy()).requires_grad_()
        index = tinytorch.from_numpy(places.numpy())
        ours = F.max_unpool2d(values, index, 2, stride)
        (found,) = grad(ours, values, tinytorch.tensor(g))
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_the_gradient_of_unpooling_has_one(rng):
    index = tinytorch.tensor([[[[0, 3], [12, 15]]]])
    x = tinytorch.tensor(rng.standard_normal((1, 1, 2, 2)), requires_grad=True)
    assert gradgradcheck(lambda t: F.max_unpool2d(t, index, 2) * t.sum(), [x])
