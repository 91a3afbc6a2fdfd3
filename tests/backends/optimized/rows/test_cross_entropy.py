from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch.backends.optimized.rows.cross_entropy import cross_entropy, cross_entropy_backward


def exact(x, target):
    x = x.astype(np.longdouble)
    shifted = x - x.max(1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(1, keepdims=True))
    i = np.arange(len(x))
    loss = -(shifted - log_total)[i, target].mean()
    dx = np.exp(shifted - log_total)
    dx[i, target] -= 1
    return float(loss), (dx / len(x)).astype(float)


@given(
    n=st.integers(1, 40),
    classes=st.integers(1, 60),
    dtype=st.sampled_from([np.float32, np.float64]),
    scale=st.sampled_from([1.0, 100.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_loss_and_gradient(n, classes, dtype, scale, seed):
    rng = np.random.default_rng(seed)
    x = (scale * rng.standard_normal((n, classes))).astype(dtype)
    target = rng.integers(0, classes, n)
    loss, dx = exact(x, target)
    eps = float(np.finfo(dtype).eps)
    out = cross_entropy(x, target)
    assert out.shape == () and out.dtype == dtype
    assert abs(float(out) - loss) <= 8 * eps * (1 + np.abs(x).max())
    g = np.asarray(2.0, dtype)
    back = cross_entropy_backward(g, x, target)
    assert back.shape == x.shape and back.dtype == dtype
    np.testing.assert_allclose(back, 2 * dx, atol=(10 + 2 * float(np.abs(x).max())) * eps)


def test_views():
    x = np.arange(12, dtype=np.float64).reshape(4, 3)
    target = np.arange(8)[::2] % 3
    assert float(cross_entropy(x[::-1], target)) == pytest.approx(exact(x[::-1], target)[0])
    assert float(cross_entropy(x.T, target[:3])) == pytest.approx(exact(x.T, target[:3])[0])


def test_logits_that_cannot_be_written_to():
    x, target = np.zeros((2, 4), np.float32), np.array([0, 3])
    x.flags.writeable = False
    assert float(cross_entropy(x, target)) == pytest.approx(np.log(4))
    back = cross_entropy_backward(np.float32(1), x, target)
    np.testing.assert_allclose(back, exact(x, target)[1], atol=1e-7)


def test_extreme_logits_stay_finite():
    x = np.array([[1e30, 0], [-1e30, 0]], np.float32)
    assert float(cross_entropy(x, np.array([0, 1]))) == 0
    np.testing.assert_array_equal(
        cross_entropy_backward(np.float32(1), x, np.array([0, 1])), np.zeros((2, 2))
    )


def test_nan_shows():
    x = np.array([[np.nan, 0], [0, 0]], np.float32)
    assert np.isnan(cross_entropy(x, np.array([0, 0])))
    back = cross_entropy_backward(np.float32(1), x, np.array([0, 0]))
    assert np.isnan(back[0]).all() and np.isfinite(back[1]).all()


def test_empty():
    x, target = np.zeros((0, 3), np.float32), np.zeros(0, np.int64)
    assert np.isnan(cross_entropy(x, target))
    assert cross_entropy_backward(np.float32(1), x, target).shape == (0, 3)
