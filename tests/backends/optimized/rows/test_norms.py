"""Layer and batch normalisation against float64, and their gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch.backends.blocked import batch_norm
from tinytorch.backends.optimized.rows import layer_norm
from tinytorch.jit import threads

EPS = 1e-5


def normalised(x, axes):
    x = x.astype(np.longdouble)
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + EPS)


def exact_backward(h, x, axes):
    x, h = x.astype(np.longdouble), h.astype(np.longdouble)
    mean = x.mean(axes, keepdims=True)
    scale = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + EPS)
    xhat = (x - mean) * scale
    along = (h * xhat).mean(axes, keepdims=True)
    return scale * (h - h.mean(axes, keepdims=True) - xhat * along)


common = dict(
    dtype=st.sampled_from([np.float32, np.float64]),
    offset=st.sampled_from([0.0, 10.0]),
    seed=st.integers(0, 2**32 - 1),
)

lengths = st.one_of(st.integers(1, 50), st.sampled_from([257, 300, 1000]))  # and of long rows


@pytest.mark.slow
@given(lead=st.lists(st.integers(1, 6), max_size=2), d=lengths, **common)
def test_layer_norm(lead, d, dtype, offset, seed):
    rng = np.random.default_rng(seed)
    x = (offset + rng.standard_normal((*lead, d))).astype(dtype)
    w, b, g = (rng.standard_normal(s).astype(dtype) for s in (d, d, x.shape))
    # an error eps |x| of the mean is magnified by 1 / sqrt(var + eps)
    scale = 1 / np.sqrt(x.astype(float).var(-1).min() + EPS)
    bound = 60 * float(np.finfo(dtype).eps) * (1 + offset) * scale
    out = layer_norm.layer_norm(x, w, b, eps=EPS)
    assert out.shape == x.shape and out.dtype == dtype
    np.testing.assert_allclose(out, (normalised(x, -1) * w + b).astype(float), atol=bound * 4)
    dx = layer_norm.layer_norm_backward(g, x, w, eps=EPS)
    exact = exact_backward(g * w.astype(np.longdouble), x, -1).astype(float)
    np.testing.assert_allclose(dx, exact, atol=40 * bound * scale)
    dw = layer_norm.layer_norm_weight(g, x, eps=EPS)
    axes = tuple(range(len(lead)))
    exact = (g * normalised(x, -1)).sum(axes).astype(float)
    np.testing.assert_allclose(dw, exact, atol=bound * 40)


@pytest.mark.slow
@given(n=st.integers(1, 300), d=lengths, add=st.booleans(), **common)
def test_all_gradients_of_layer_norm_in_one_pass(n, d, add, dtype, offset, seed):
    rng = np.random.default_rng(seed)
    x = (offset + rng.standard_normal((n, d))).astype(dtype)
    w, g, start = (rng.standard_normal(s).astype(dtype) for s in (d, (n, d), (n, d)))
    dx, dw, db = start.copy(), np.full(d, np.nan, dtype), np.full(d, np.nan, dtype)
    layer_norm.gradients(g, x, w, EPS, add, dx, dw, db)
    eps = float(np.finfo(dtype).eps)
    scale = 1 / np.sqrt(x.astype(float).var(-1).min() + EPS)
    one_by_one = layer_norm.layer_norm_backward(g, x, w, eps=EPS)
    expected = start + one_by_one if add else one_by_one
    np.testing.assert_allclose(dx, expected, atol=100 * eps * scale * (1 + offset))
    exact = (g * normalised(x, -1)).sum(0).astype(float)
    np.testing.assert_allclose(dw, exact, atol=40 * n * eps * (1 + offset) * scale)
    np.testing.assert_allclose(db, g.astype(float).sum(0), atol=10 * n * eps)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row_and_its_column(bad, rng):
    g, x = (rng.standard_normal((5, 6)).astype(np.float32) for _ in range(2))
    g[2, 3] = bad
    dx, dw, db = np.empty_like(x), np.empty(6, np.float32), np.empty(6, np.float32)
    with np.errstate(all="ignore"):
        layer_norm.gradients(g, x, np.ones(6, np.float32), EPS, False, dx, dw, db)
    assert not np.isfinite(dx[2]).any() and np.isfinite(np.delete(dx, 2, 0)).all()
    for found in (dw, db):
        np.testing.assert_array_equal(np.isfinite(found), np.arange(6) != 3)


@pytest.mark.slow
@given(
    n=st.integers(1, 6),
    c=st.integers(1, 5),
    rest=st.lists(st.integers(1, 6), max_size=2),
    **common,
)
def test_batch_norm(n, c, rest, dtype, offset, seed):
    rng = np.random.default_rng(seed)
    x = (offset + rng.standard_normal((n, c, *rest))).astype(dtype)
    w, b, g = (rng.standard_normal(s).astype(dtype) for s in (c, c, x.shape))
    axes = (0, *range(2, x.ndim))
    column = (1, c, *[1] * len(rest))
    wide = w.astype(np.longdouble).reshape(column)
    scale = 1 / np.sqrt(x.astype(float).var(axes).min() + EPS)
    bound = 60 * float(np.finfo(dtype).eps) * (1 + offset) * scale
    out = batch_norm.batch_norm(x, w, b, eps=EPS)
    assert out.shape == x.shape and out.dtype == dtype
    exact = normalised(x, axes) * wide + b.reshape(column)
    np.testing.assert_allclose(out, exact.astype(float), atol=bound * 4)
    dx = batch_norm.batch_norm_backward(g, x, w, eps=EPS)
    exact = exact_backward(g * wide, x, axes)
    np.testing.assert_allclose(dx, exact.astype(float), atol=40 * bound * scale)
    dw = batch_norm.batch_norm_weight(g, x, eps=EPS)
    exact = (g * normalised(x, axes)).sum(axes)
    np.testing.assert_allclose(dw, exact.astype(float), atol=bound * 40)


@pytest.mark.parametrize("far", [0.5, 1.9, 2.1, 30.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_first_number_far_from_the_others_costs_no_digits(far, dtype, rng):
    x = rng.standard_normal((20, 1000))
    x[:, 0] = far
    x = (x + 7).astype(dtype)
    ones, zeros = np.ones(1000, dtype), np.zeros(1000, dtype)
    out = layer_norm.layer_norm(x, ones, zeros, eps=EPS)
    exact = normalised(x, -1)
    # of the mean, eps |x| over a standard deviation; of the variance, a few eps of the result
    eps = float(np.finfo(dtype).eps)
    assert (np.abs(out - exact) <= 20 * eps * (1 + np.abs(exact))).all()


def test_large_mean_does_not_cancel():
    # E[x^2] - E[x]^2 would lose all digits here
    x = (1000 + np.arange(8) / 8).astype(np.float32).reshape(1, 8)
    ones, zeros = np.ones(8, np.float32), np.zeros(8, np.float32)
    exact = normalised(x, -1).astype(float)
    np.testing.assert_allclose(layer_norm.layer_norm(x, ones, zeros, eps=EPS), exact, atol=1e-3)
    out = batch_norm.batch_norm(x.T, ones[:1], zeros[:1], eps=EPS)
    np.testing.assert_allclose(out, exact.T, atol=1e-3)


def test_views_nan_and_threads(monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    x = rng.standard_normal((8, 6)).astype(np.float32)
    w, b = np.ones(12, np.float32)[::2], np.zeros(6, np.float32)
    x[2, 3] = np.nan
    for view in (x, x[::-1], x[::2], np.asfortranarray(x)):
        out = layer_norm.layer_norm(view, w, b, eps=EPS)
        bad = np.isnan(view).any(1)
        assert np.isnan(out[bad]).all()
        np.testing.assert_allclose(out[~bad], normalised(view, -1)[~bad].astype(float), atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4)])
def test_empty(shape):
    x, w = np.zeros(shape, np.float32), np.ones(4, np.float32)
    assert layer_norm.layer_norm(x, w, w, eps=EPS).shape == shape
    assert layer_norm.layer_norm_backward(x, x, w, eps=EPS).shape == shape
    np.testing.assert_array_equal(layer_norm.layer_norm_weight(x, x, eps=EPS), np.zeros(4))
    if len(shape) == 2:
        assert batch_norm.batch_norm(x, w, w, eps=EPS).shape == shape
        assert batch_norm.batch_norm_backward(x, x, w, eps=EPS).shape == shape
        np.testing.assert_array_equal(batch_norm.batch_norm_weight(x, x, eps=EPS), np.zeros(4))
