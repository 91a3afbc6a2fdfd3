from __future__ import annotations

import numpy as np
import pytest

from tests.backends.optimized.child import run_script
from tinytorch.backends.optimized.conv import winograd
from tinytorch.backends.optimized.conv.conv2d import conv2d
from tinytorch.backends.optimized.conv.winograd import (
    MATRICES,
    WinogradFilter,
    conv2d_winograd,
    pays,
)

SHAPES = ((2, 3, 5, 7, 4), (1, 20, 8, 9, 33), (1, 1, 1, 1, 1), (2, 17, 13, 4, 70), (3, 64, 9, 9, 9))
PARAMS = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize("m", sorted(MATRICES))
def test_the_matrices_compute_a_correlation(rng, m):
    """In one dimension: A^T [(G w) * (B^T d)] = the m sums of three terms."""
    w, d = rng.standard_normal(3), rng.standard_normal(m + 2)
    matrices = MATRICES[m]
    y = matrices["A"] @ ((matrices["G"] @ w) * (matrices["B"] @ d))
    np.testing.assert_allclose(y, np.correlate(d, w), rtol=1e-10, atol=1e-10)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("m", (2, 4))
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_the_direct_convolution(rng, m, shape):
    n, channels, height, width, out_channels = shape
    x = rng.standard_normal((n, channels, height, width))
    w = rng.standard_normal((out_channels, channels, 3, 3))
    b = rng.standard_normal(out_channels)
    np.testing.assert_allclose(
        conv2d_winograd(x, w, b, m=m), conv2d(x, w, b, **PARAMS), rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(
        conv2d_winograd(x[:, :, ::-1], w.transpose(0, 1, 3, 2), m=m),
        conv2d(x[:, :, ::-1], w.transpose(0, 1, 3, 2), **PARAMS), rtol=1e-11, atol=1e-11,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("m", "bound"), ((2, 1e-5), pytest.param(4, 1e-4, marks=pytest.mark.slow)))
def test_the_documented_error(rng, m, bound):
    """In float32, inputs and outputs of unit variance; and it is not better than documented."""
    x = rng.standard_normal((4, 128, 28, 28))
    w = rng.standard_normal((64, 128, 3, 3)) / np.sqrt(128 * 9)
    exact = conv2d(x, w, **PARAMS)
    error = np.abs(conv2d_winograd(x.astype(np.float32), w.astype(np.float32), m=m) - exact).max()
    assert bound / 30 < error < bound


@pytest.mark.parametrize("shape", SHAPES)
def test_a_filter_serves_many_images_in_both_layouts(rng, shape):
    n, channels, height, width, out_channels = shape
    w, b = rng.standard_normal((out_channels, channels, 3, 3)), rng.standard_normal(out_channels)
    transformed = WinogradFilter(w, b, m=2, allocate=np.empty)
    for _ in range(2):
        x = rng.standard_normal((n, height, width, channels)).transpose(0, 3, 1, 2)
        expected = conv2d(x, w, b, **PARAMS)
        rows = np.full((n, out_channels, height, width), np.nan)
        channels_last = np.full((n, height, width, out_channels), np.nan).transpose(0, 3, 1, 2)
        for y in (rows, channels_last):
            transformed.convolve(x, y)
            np.testing.assert_allclose(y, expected, rtol=1e-11, atol=1e-11)


def test_other_kernels_are_refused():
    x = np.ones((1, 1, 5, 5))
    with pytest.raises(ValueError, match=r"size 3x3 .* not for size 5x5 and m=4; use conv2d"):
        conv2d_winograd(x, np.ones((1, 1, 5, 5)))
    with pytest.raises(ValueError, match=r"m in \[2, 4\], not for size 3x3 and m=6"):
        conv2d_winograd(x, np.ones((1, 1, 3, 3)), m=6)


def test_empty():
    assert conv2d_winograd(np.ones((0, 2, 4, 4)), np.ones((3, 2, 3, 3))).shape == (0, 3, 4, 4)
    assert conv2d_winograd(np.ones((1, 2, 4, 4)), np.ones((0, 2, 3, 3))).shape == (1, 0, 4, 4)


SCRIPT = """
import numpy as np
from tinytorch.backends.optimized.conv.conv2d import conv2d
from tinytorch.backends.optimized.conv.winograd import conv2d_winograd
rng = np.random.default_rng(0)
x, w, b = rng.standard_normal((1, 3, 5, 6)), rng.standard_normal((4, 3, 3, 3)), np.arange(4.0)
y = conv2d(x, w, b, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
for m in (2, 4):
    np.testing.assert_allclose(conv2d_winograd(x, w, b, m=m), y, rtol=1e-11, atol=1e-11)
print("agree")
"""


def test_without_the_jit():
    assert run_script(SCRIPT, NUMBA_DISABLE_JIT="1") == "agree"


@pytest.mark.parametrize("m", [4, 2])
def test_more_images_pay_for_the_transform_of_a_kernel(m):
    few, many = (pays(m, (n, 32, 8, 8), 32, 4) for n in (1, 64))  # the kernel stays in any L2
    assert many and not few
    assert not pays(m, (64, 1, 28, 28), 1, 4)  # a tile is transformed for one channel


@pytest.mark.parametrize("m", [4, 2])
def test_a_kernel_that_is_larger_than_the_caches(rng, m, monkeypatch):
    monkeypatch.setattr(winograd, "LARGE_KERNEL", 0)
    x, w = rng.standard_normal((2, 20, 11, 9)), rng.standard_normal((19, 20, 3, 3))
    np.testing.assert_allclose(
        conv2d_winograd(x, w, m=m), conv2d(x, w, None, **PARAMS), rtol=1e-10, atol=1e-10
    )
