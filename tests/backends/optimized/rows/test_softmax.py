from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch.backends.optimized.rows import softmax
from tinytorch.jit import threads


def exact_softmax(x, dim):
    x = x.astype(np.longdouble)
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


cases = dict(
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    dim=st.integers(0, 3),
    dtype=st.sampled_from([np.float32, np.float64]),
    scale=st.sampled_from([0.0, 1.0, 50.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)


@given(**cases)
def test_softmax_and_its_logarithm(shape, dim, dtype, scale, seed):
    dim %= len(shape)
    x = (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)
    exact = exact_softmax(x, dim)
    # 6 eps from exp, the sum and the division; eps of the largest |x| from the subtraction
    bound = (6 + np.abs(x).max()) * np.finfo(dtype).eps
    out = softmax.softmax(x, dim=dim)
    assert out.shape == x.shape and out.dtype == dtype and out.flags.c_contiguous
    flushed = 1.2 * np.finfo(dtype).smallest_normal  # what is smaller may be 0
    assert np.all(np.abs(out - exact) <= bound * exact + flushed)
    log_out = softmax.log_softmax(x, dim=dim)
    with np.errstate(divide="ignore"):
        shifted = x.astype(np.longdouble) - x.max(dim, keepdims=True)
        exact = shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))
    np.testing.assert_allclose(log_out, exact.astype(float), atol=4 * float(bound), rtol=0)


@pytest.mark.slow
@given(
    n=st.integers(1, 200), d=st.integers(1, 70), dtype=cases["dtype"], scale=cases["scale"],
    seed=cases["seed"],
)  # fmt: skip
def test_in_place_as_in_other_memory(n, d, dtype, scale, seed):
    rng = np.random.default_rng(seed)
    x = (scale * rng.standard_normal((n, d))).astype(dtype)
    if seed % 4 == 0:
        x[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    eps = float(np.finfo(dtype).eps)
    y = softmax.softmax(x, dim=1)
    softmax.softmax_in_place(x)
    np.testing.assert_allclose(x, y, rtol=4 * eps, atol=float(np.finfo(dtype).smallest_normal))
    g = rng.standard_normal((n, d)).astype(dtype)
    expected = softmax.softmax_backward(g, y, dim=1)
    softmax.softmax_backward_in_place(y, g)
    np.testing.assert_allclose(g, expected, atol=20 * eps)


@given(**cases)
def test_gradients(shape, dim, dtype, scale, seed):
    dim %= len(shape)
    rng = np.random.default_rng(seed)
    x, g = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)
    y = exact_softmax(x, dim)
    tolerance = 200 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(
        softmax.softmax_backward(g, y.astype(dtype), dim=dim),
        (y * (g - (g * y).sum(dim, keepdims=True))).astype(float),
        atol=tolerance,
    )
    np.testing.assert_allclose(
        softmax.log_softmax_backward(g, np.log(y).astype(dtype), dim=dim),
        (g - y * g.astype(np.longdouble).sum(dim, keepdims=True)).astype(float),
        atol=tolerance,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masked_elements_are_exactly_zero(dtype):
    x = np.array([[0.0, -np.inf, 1.0, -1e30] * 9], dtype)
    out = softmax.softmax(x, dim=1)
    assert (out[0, 1::2] == 0).all() and out.sum() == pytest.approx(1)


def test_nan_and_infinity_spoil_their_row_only():
    x = np.zeros((4, 40), np.float32)
    x[1, 7], x[2, 9], x[3] = np.nan, np.inf, -np.inf
    for function in (softmax.softmax, softmax.log_softmax):
        out = function(x, dim=1)
        assert np.isfinite(out[0]).all()
        assert np.isnan(out[1]).all() and np.isnan(out[3]).all()
        assert np.isnan(out[2, 9])
    x[1, 7] = -np.float32(np.nan)
    assert np.isnan(softmax.softmax(x, dim=1)[1]).all()


@pytest.mark.parametrize("shape, dim", [((0, 5), 1), ((5, 0), 1), ((0,), 0), ((3, 0, 2), 2)])
def test_empty(shape, dim):
    x = np.zeros(shape, np.float32)
    for out in (
        softmax.softmax(x, dim=dim),
        softmax.log_softmax(x, dim=dim),
        softmax.softmax_backward(x, x, dim=dim),
        softmax.log_softmax_backward(x, x, dim=dim),
    ):
        assert out.shape == shape


@pytest.mark.slow
def test_views_and_threads(monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    x = rng.standard_normal((30, 7)).astype(np.float32)
    for view in (x, x.T, x[::-2], np.broadcast_to(x[0], (4, 7))):
        np.testing.assert_allclose(
            softmax.softmax(view, dim=1), exact_softmax(view, 1).astype(float), rtol=1e-5
        )


@pytest.mark.parametrize("shape", [(7, 40), (2, 5, 16), (3, 1, 9)])
def test_along_another_dimension_than_the_last(shape):
    """There whole rows are combined; a row of -inf gives NaN, as along the last."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[..., 0] = -np.inf
    g = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for dim in range(len(shape) - 1):
        turned, back = np.moveaxis(x, dim, -1), np.moveaxis(g, dim, -1)
        for forward, backward in (
            (softmax.softmax, softmax.softmax_backward),
            (softmax.log_softmax, softmax.log_softmax_backward),
        ):
            out, wanted = forward(x, dim=dim), forward(turned, dim=len(shape) - 1)
            np.testing.assert_allclose(np.moveaxis(out, dim, -1), wanted, 1e-5, 1e-6)
            found = backward(g, out, dim=dim)
            wanted = backward(back, np.moveaxis(out, dim, -1), dim=len(shape) - 1)
            np.testing.assert_allclose(np.moveaxis(found, dim, -1), wanted, 1e-4, 1e-5)


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("shape", [(2, 3, 33_000), (3, 700, 65), (1, 5000, 130)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_of_columns_are_those_of_turned_rows(shape, dtype, rng):
    x, g = rng.standard_normal((2, *shape)).astype(dtype)
    x[0, 1, :3] = np.nan, np.inf, -np.inf
    x[0, :, 5] = -np.inf
    eps = 50 * np.finfo(dtype).eps
    turned, upper = (np.ascontiguousarray(a.swapaxes(1, 2)) for a in (x, g))
    for forward, backward in (
        (softmax.softmax, softmax.softmax_backward),
        (softmax.log_softmax, softmax.log_softmax_backward),
    ):
        out, rows = forward(x, dim=1), forward(turned, dim=2)
        np.testing.assert_allclose(out, rows.swapaxes(1, 2), rtol=eps, atol=eps)
        dx = backward(upper, rows, dim=2).swapaxes(1, 2)
        np.testing.assert_allclose(backward(g, out, dim=1), dx, rtol=100 * eps, atol=20 * eps)
