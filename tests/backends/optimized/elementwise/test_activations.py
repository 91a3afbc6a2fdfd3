from __future__ import annotations

import math

import numpy as np
import pytest

from tinytorch.backends.optimized.elementwise import activations

X = np.concatenate([np.linspace(-12, 12, 2001), [-300.0, 300.0, 0.0]])


def exact_gelu(x, approximate):
    if approximate == "none":
        # erfc keeps the tail where 1 + erf would cancel
        return np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(u))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1.5e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate, dtype, tolerance):
    x = X.astype(dtype)
    out = activations.gelu(x, approximate=approximate)
    assert out.dtype == dtype
    exact = exact_gelu(x.astype(np.float64), approximate)
    np.testing.assert_allclose(out, exact, atol=tolerance, rtol=3 * np.finfo(dtype).eps)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 3e-6), (np.float64, 1e-8)])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_backward_is_its_slope(approximate, dtype, tolerance):
    x = X[np.abs(X) < 20].astype(dtype)
    g = np.cos(np.arange(x.size)).astype(dtype)
    h = 1e-5
    wide = x.astype(np.float64)
    slope = (exact_gelu(wide + h, approximate) - exact_gelu(wide - h, approximate)) / (2 * h)
    out = activations.gelu_backward(g, x, approximate=approximate)
    np.testing.assert_allclose(out, g * slope, atol=tolerance)


def test_the_exact_gradient_of_gelu_is_that_of_the_normal_distribution():
    """To 2e-7 in float32, in both tails too: each is its exp times a fitted polynomial."""
    x = np.linspace(-9, 9, 100_001).astype(np.float32)
    wide = x.astype(np.float64)
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide])
    exact = below + wide * np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    out = activations.gelu_backward(np.ones_like(x), x, approximate="none")
    np.testing.assert_allclose(out, exact, rtol=0, atol=2e-7)
    at_zero = activations.gelu_backward(np.ones(1, np.float32), np.zeros(1, np.float32),
                                        approximate="none")  # fmt: skip
    assert at_zero == np.float32(0.5)


def test_the_exact_gradient_of_gelu_at_the_edges():
    x = np.array([np.nan, 300.0, -300.0, 1e18, -1e18] * 7, np.float32)
    for dtype in (np.float32, np.float64):
        given = x.astype(dtype)
        out = activations.gelu_backward(np.full_like(given, 2.0), given, approximate="none")
        np.testing.assert_array_equal(out[:5], np.array([np.nan, 2, 0, 2, 0], dtype))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_at_the_edges(approximate):
    x = np.array([np.inf, np.nan, 0.0, -1e30, 1e30] * 7, np.float32)
    out = activations.gelu(x, approximate=approximate)
    np.testing.assert_array_equal(out[:3], [np.inf, np.nan, 0])
    assert out[3] == 0 and out[4] == np.float32(1e30)


def test_relu_and_its_gradient():
    x = np.array([-1.0, 0.0, 2.0, np.nan, np.inf, -np.inf], np.float32)
    out = activations.relu(x)
    np.testing.assert_array_equal(out, [0, 0, 2, np.nan, np.inf, 0])
    g = np.full(6, 3, np.float32)
    np.testing.assert_array_equal(activations.relu_backward(g, out), [0, 0, 3, 0, 3, 0])
