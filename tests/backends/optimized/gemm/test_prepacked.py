from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.backends.optimized.gemm.test_gemm import DTYPES, LAYOUTS, assert_product, matrix
from tinytorch.backends.optimized.elementwise.activations import relu_scalar
from tinytorch.backends.optimized.elementwise.scalars import compile_scalar
from tinytorch.backends.optimized.gemm.blocking import DC_BYTES, MC, NC
from tinytorch.backends.optimized.gemm.panels import REGISTER_BYTES, TILE_VECTORS
from tinytorch.backends.optimized.gemm.prepacked import PrepackedWeight
from tinytorch.jit import threads

RELU = compile_scalar(relu_scalar, np.float32)


def product(x, w, bias=None, other=None, function=None, **options):
    out = np.full((len(x), len(w)), np.nan, w.dtype)
    PrepackedWeight(w, bias, function=function).multiply(x, out, other, **options)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_the_weight_and_of_what_is_multiplied(rng, dtype, layout):
    w, x = matrix(rng, (70, 33), dtype, layout), matrix(rng, (9, 33), dtype, layout)
    other = matrix(rng, (9, 70), dtype, layout)
    assert_product(product(x, w, other=other), x, w.T, other.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    m=st.integers(1, 40),
    n=st.integers(1, 200),
    k=st.integers(1, 60),
    has_bias=st.booleans(),
    has_other=st.booleans(),
)
@settings(max_examples=40)
def test_ragged_sizes(dtype, m, n, k, has_bias, has_other):
    rng = np.random.default_rng(m * n + k)
    w, x = matrix(rng, (n, k), dtype), matrix(rng, (m, k), dtype)
    bias = rng.standard_normal(n).astype(dtype) if has_bias else None
    other = matrix(rng, (m, n), dtype) if has_other else None
    found = product(x, w, bias)
    assert_product(found, x, w.T, bias if has_bias else 0.0)
    if has_other:
        assert np.array_equal(product(x, w, bias, other), found + other)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (MC + 5, 70, 40),
        (3, NC + 1, 5),
        (5, 20, DC_BYTES // 4 + 1),
        (MC + 1, NC + 17, DC_BYTES),
        (7, (TILE_VECTORS + 1) * REGISTER_BYTES // 4, 9),  # a part begins within a panel
    ],
    ids=["rows", "columns", "steps", "all", "a vector more than a tile"],
)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_blocks_and_threads(rng, monkeypatch, m, n, k, count):
    monkeypatch.setattr(threads, "threads_for", lambda work: count)
    w, x = matrix(rng, (n, k), np.float32), matrix(rng, (m, k), np.float32)
    bias, other = matrix(rng, (1, n), np.float32)[0], matrix(rng, (m, n), np.float32)
    found = product(x, w, bias, other, RELU)
    exact = x.astype(np.float64) @ w.T.astype(np.float64) + bias + other
    np.testing.assert_allclose(found, np.maximum(exact, 0), atol=2e-6 * k, rtol=1e-5)
    assert np.array_equal(found, product(x, w, bias, other, RELU, most_threads=1))


def test_what_is_beside_the_sums_changes_nothing(rng):
    """Infinities and NaN stay in their rows and columns, also in a panel that is not full."""
    w, x = matrix(rng, (19, 6), np.float32), matrix(rng, (7, 6), np.float32)
    expected = product(x, w)
    w[18], x[6] = np.nan, np.inf
    found = product(x, w, function=RELU)
    assert np.array_equal(found[:6, :18], np.maximum(expected[:6, :18], 0))
    assert np.isnan(found[:, 18]).all()
    assert np.isnan(found[6]).any() or np.isinf(found[6]).any()


def test_no_rows():
    assert product(np.ones((0, 3), np.float32), np.ones((2, 3), np.float32)).shape == (0, 2)


@pytest.mark.parametrize("front", [(), (5,), (2, 3), (2, 0)])
def test_dimensions_in_front(rng, front):
    w, x = matrix(rng, (4, 3), np.float32), rng.standard_normal((*front, 3)).astype(np.float32)
    other, out = rng.standard_normal((2, *front, 4)).astype(np.float32)
    PrepackedWeight(w).multiply(x, out, other)
    np.testing.assert_allclose(out, x @ w.T + other, rtol=1e-5, atol=1e-6)


def test_it_keeps_the_weight_that_it_was_given(rng):
    w, x = matrix(rng, (4, 3), np.float32), matrix(rng, (2, 3), np.float32)
    packed, out = PrepackedWeight(w), np.empty((2, 4), np.float32)
    exact = x @ w.T
    w[:] = 0
    packed.multiply(x, out)
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("w", "bias", "words"),
    [
        (np.ones((0, 3), np.float32), None, r"not one of shape \(0, 3\) and dtype float32"),
        (np.ones(3, np.float32), None, r"not one of shape \(3,\)"),
        (np.ones((2, 3), np.int64), None, "dtype int64"),
        (np.ones((2, 3), np.float32), np.ones(3, np.float32), r"needs a bias of shape \(2,\)"),
        (np.ones((2, 3), np.float32), np.ones(2), "not of shape .* and dtype float64"),
    ],
)
def test_says_what_cannot_be_packed(w, bias, words):
    with pytest.raises(ValueError, match=words):
        PrepackedWeight(w, bias)


def test_says_what_does_not_fit():
    weight = PrepackedWeight(np.ones((2, 3), np.float32))
    x, out = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    for arguments, words in [
        ((x[:, :2], out), r"\(\.\.\., 3\) into \(\.\.\., 2\), not \(4, 2\) float32 into \(4, 2\)"),
        ((x, out[:3]), r"into \(3, 2\)"),
        ((x.astype(np.float64), out), r"not \(4, 3\) float64"),
        ((x[0, :0], out[0]), r"not \(0,\) float32 into \(2,\)"),
        ((x[None], out), r"not \(1, 4, 3\) float32 into \(4, 2\)"),
        ((x, out, out[:1]), r"adding \(1, 2\) float32"),
        ((x, np.ones((2, 4), np.float32).T), r"in C order, not with strides \(4, 16\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            weight.multiply(*arguments)
