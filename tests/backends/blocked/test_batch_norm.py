"""Batch normalisation of few positions, by rows of all channels, and of many, by channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch.backends.blocked import batch_norm, batch_norm_columns as columns


def reference(g, x, w, b, eps):
    """out, dx and dw in float64; and the variance of each channel."""
    g, x, w, b = (a.astype(np.float64) for a in (g, x, w, b))
    axes, per = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    centred = x - x.mean(axes, keepdims=True)
    scale = 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    xhat, h = centred * scale, g * w.reshape(per)
    along = (h * xhat).mean(axes, keepdims=True)
    dx = scale * (h - h.mean(axes, keepdims=True) - xhat * along)
    return xhat * w.reshape(per) + b.reshape(per), dx, (g * xhat).sum(axes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(
    n=st.integers(2, 40),
    channels=st.integers(1, 9),
    places=st.lists(st.integers(1, 5), max_size=2),
    mean=st.sampled_from([0.0, 3.0, -100.0]),
    seed=st.integers(0, 999),
)
@settings(max_examples=40)
def test_values_and_gradients(dtype, n, channels, places, mean, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(mean, 1, (n, channels, *places)).astype(dtype)
    g = rng.standard_normal(x.shape).astype(dtype)
    w, b = rng.standard_normal((2, channels)).astype(dtype)
    eps = 1e-3
    found = (
        batch_norm.batch_norm(x, w, b, eps=eps),
        batch_norm.batch_norm_backward(g, x, w, eps=eps),
        batch_norm.batch_norm_weight(g, x, eps=eps),
    )
    close = 1e-11 if dtype == "float64" else 2e-6 * (1 + abs(mean))
    for ours, exact in zip(found, reference(g, x, w, b, eps), strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, exact, atol=close * n, rtol=close * 10)
    means, variances = np.zeros(channels, dtype), np.ones(channels, dtype)
    batch_norm.running_statistics(x, means, variances, momentum=0.25)
    axes = (0, *range(2, x.ndim))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(means, 0.25 * exact.mean(axes), atol=close, rtol=close)
    np.testing.assert_allclose(
        variances, 0.75 + 0.25 * exact.var(axes, ddof=1), atol=close, rtol=close
    )


@pytest.mark.parametrize("shape", [(50, 1300), (70_000, 3), (9, 40, 15)])
def test_blocks_of_columns_join_to_the_whole(shape, rng):
    """A block has so many columns; channels are not cut."""
    x, g = rng.normal(2, 3, shape), rng.standard_normal(shape)
    w, b = rng.standard_normal((2, shape[1]))
    assert 0 < np.prod(shape[2:]) < columns.FEW
    found = (
        batch_norm.batch_norm(x, w, b, eps=0.1),
        batch_norm.batch_norm_backward(g, x, w, eps=0.1),
    )
    for ours, exact in zip(found, reference(g, x, w, b, 0.1), strict=False):
        np.testing.assert_allclose(ours, exact, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(64, 2), (64, 2, 20)])
def test_a_large_mean_does_not_cancel(shape, dtype, rng):
    """Not even where the first number is far from all the others."""
    x = (rng.integers(-8, 8, shape) / 8 + 2.0**15).astype(dtype)
    x[0] = 0.0
    x[0, 1] = 2.0**15
    out = batch_norm.batch_norm(x, np.ones(2, dtype), np.zeros(2, dtype), eps=0.0)
    axes = (0, *range(2, x.ndim))
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(axes, keepdims=True)) / exact.std(axes, keepdims=True)
    np.testing.assert_allclose(out, exact, rtol=2e-2 if dtype == "float32" else 1e-9, atol=1e-2)
    means, variances = np.zeros(2, dtype), np.zeros(2, dtype)
    batch_norm.running_statistics(x, means, variances, momentum=1.0)
    np.testing.assert_allclose(variances, x.astype(np.float64).var(axes, ddof=1), rtol=1e-4)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 3, 0)])
def test_nothing_gives_nothing(shape):
    x = np.zeros(shape, np.float32)
    row = np.ones(shape[1], np.float32)
    assert batch_norm.batch_norm(x, row, row, eps=0.1).shape == shape
    assert batch_norm.batch_norm_backward(x, x, row, eps=0.1).shape == shape
    assert batch_norm.batch_norm_weight(x, x, eps=0.1).tolist() == [0.0] * shape[1]


@pytest.mark.parametrize("shape", [(6, 2), (6, 2, 20)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_channel_only(shape, value, rng):
    x, g = rng.standard_normal((2, *shape)).astype(np.float32)
    x[1, 0] = value
    row = np.ones(2, np.float32)
    means, variances = np.zeros(2, np.float32), np.ones(2, np.float32)
    batch_norm.running_statistics(x, means, variances, momentum=0.5)
    assert not np.isfinite(means[0]) and np.isnan(variances[0])
    assert np.isfinite(means[1]) and np.isfinite(variances[1])
    for result in (
        batch_norm.batch_norm(x, row, row, eps=0.1),
        batch_norm.batch_norm_backward(g, x, row, eps=0.1),
    ):
        assert np.isnan(result[:, 0]).all() and np.isfinite(result[:, 1]).all()
    weight = batch_norm.batch_norm_weight(g, x, eps=0.1)
    assert np.isnan(weight[0]) and np.isfinite(weight[1])
