from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from tinytorch.backends import reference
from tinytorch.backends.blocked import conv

pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def cases(draw):
    """Shapes and parameters of a convolution that has at least one output position."""
    kernel, stride, dilation = draw(pair), draw(pair), draw(pair)
    padding = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    groups = draw(st.integers(1, 3))
    n, cg, og = draw(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 3)))
    size = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    out = conv.output_size(size, kernel, stride, padding, dilation)
    assume(min(out) >= 1)
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return (n, cg * groups, *size), (og * groups, cg, *kernel), (n, og * groups, *out), params


@given(case=cases(), seed=st.integers(0, 2**32 - 1))
def test_forward_and_gradients_equal_the_reference(case, seed):
    rng = np.random.default_rng(seed)
    x_shape, w_shape, out_shape, params = case
    x, w, g = (rng.standard_normal(s) for s in (x_shape, w_shape, out_shape))
    b = rng.standard_normal(w_shape[0])
    out = conv.conv2d(x, w, b, **params)
    assert out.shape == out_shape
    np.testing.assert_allclose(out, reference.conv2d(x, w, b, **params), atol=1e-11)
    np.testing.assert_allclose(
        conv.conv2d_input(g, w, input_size=x_shape[2:], **params),
        reference.conv2d_input(g, w, input_size=x_shape[2:], **params),
        atol=1e-11,
    )
    np.testing.assert_allclose(
        conv.conv2d_weight(x, g, kernel_size=w_shape[2:], **params),
        reference.conv2d_weight(x, g, kernel_size=w_shape[2:], **params),
        atol=1e-11,
    )


def test_im2col_writes_windows_as_columns():
    image = np.arange(9, dtype=np.float32).reshape(1, 3, 3)
    columns = np.full((4, 4), np.nan, np.float32)
    conv.im2col(image, columns, (2, 2), (1, 1), (0, 0), (1, 1), (2, 2))
    np.testing.assert_array_equal(columns[:, 0], [0, 1, 3, 4])
    np.testing.assert_array_equal(columns[:, 3], [4, 5, 7, 8])


def test_im2col_and_col2im_are_adjoint(rng):
    geometry = ((3, 2), (2, 1), (1, 2), (1, 2), (4, 8))
    image = rng.standard_normal((2, 7, 6))
    columns = rng.standard_normal((12, 32))
    forward, backward = np.empty_like(columns), np.empty_like(image)
    conv.im2col(image, forward, *geometry)
    conv.col2im(columns, backward, *geometry)
    assert np.vdot(forward, columns) == pytest.approx(np.vdot(image, backward))


def test_float32_views_and_threads(rng):
    x = rng.standard_normal((12, 20, 22, 8)).astype(np.float32).transpose(0, 3, 1, 2)
    w = rng.standard_normal((8, 8, 3, 3)).astype(np.float32)[::-1]
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    out = conv.conv2d(x, w, **params)  # large enough for several threads
    exact = reference.conv2d(x.astype(np.float64), w.astype(np.float64), **params)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, exact, atol=1e-4)
    back = conv.conv2d_input(out, w, input_size=(20, 22), **params)
    exact = reference.conv2d_input(
        out.astype(np.float64), w.astype(np.float64), input_size=(20, 22), **params
    )
    np.testing.assert_allclose(back, exact, atol=2e-3)
