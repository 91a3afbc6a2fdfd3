"""Group normalisation: by runs of positions, and of few positions by written out weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch.backends.optimized.rows import group_norm


def reference(g, x, w, b, groups, eps):
    """out, dx and dw in float64."""
    g, x, w, b = (a.astype(np.float64) for a in (g, x, w, b))
    n, channels, per = x.shape[0], x.shape[1], (-1, *(1,) * (x.ndim - 2))
    rows = x.reshape(n, groups, -1)
    scale = 1 / np.sqrt(rows.var(2, keepdims=True) + eps)
    xhat = (rows - rows.mean(2, keepdims=True)) * scale
    h = (g * w.reshape(per)).reshape(rows.shape)
    along = (h * xhat).mean(2, keepdims=True)
    dx = (scale * (h - h.mean(2, keepdims=True) - xhat * along)).reshape(x.shape)
    xhat = xhat.reshape(x.shape)
    dw = (g * xhat).reshape(n, channels, -1).sum((0, 2))
    return xhat * w.reshape(per) + b.reshape(per), dx, dw


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(
    n=st.integers(1, 5),
    groups=st.integers(1, 4),
    channels=st.integers(1, 4),
    places=st.lists(st.integers(1, 7), max_size=2),
    is_turned=st.booleans(),
    mean=st.sampled_from([0.0, 3.0, -100.0]),
    seed=st.integers(0, 999),
)
@settings(max_examples=60)
def test_values_and_gradients(dtype, n, groups, channels, places, is_turned, mean, seed):
    rng = np.random.default_rng(seed)
    shape = (n, groups * channels, *places)
    x = rng.normal(mean, 1, shape[::-1] if is_turned else shape).astype(dtype)
    x = x.T if is_turned else x
    g = rng.standard_normal(shape).astype(dtype)
    w, b = rng.standard_normal((2, shape[1])).astype(dtype)
    found = (
        group_norm.group_norm(x, w, b, groups=groups, eps=1e-2),
        group_norm.group_norm_backward(g, x, w, groups=groups, eps=1e-2),
        group_norm.group_norm_weight(g, x, groups=groups, eps=1e-2),
    )
    close = 1e-11 if dtype == "float64" else 1e-5 * (1 + abs(mean))
    for ours, exact in zip(found, reference(g, x, w, b, groups, 1e-2), strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, exact, atol=close * 10, rtol=close * 10)


@pytest.mark.parametrize("shape", [(0, 4), (2, 4, 0), (0, 4, 3, 3)])
def test_nothing_gives_nothing(shape):
    x = np.zeros(shape, np.float32)
    row = np.ones(4, np.float32)
    assert group_norm.group_norm(x, row, row, groups=2, eps=0.1).shape == shape
    assert group_norm.group_norm_backward(x, x, row, groups=2, eps=0.1).shape == shape
    assert group_norm.group_norm_weight(x, x, groups=2, eps=0.1).tolist() == [0.0] * 4


@pytest.mark.parametrize("places", [(), (20,)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_group_only(places, value, rng):
    x, g = rng.standard_normal((2, 3, 4, *places)).astype(np.float32)
    x[1, 0] = value
    row = np.ones(4, np.float32)
    for result in (
        group_norm.group_norm(x, row, row, groups=2, eps=0.1),
        group_norm.group_norm_backward(g, x, row, groups=2, eps=0.1),
    ):
        assert np.isnan(result[1, :2]).all()
        result[1, :2] = 0
        assert np.isfinite(result).all()
    weight = group_norm.group_norm_weight(g, x, groups=2, eps=0.1)
    assert np.isnan(weight[:2]).all() and np.isfinite(weight[2:]).all()
