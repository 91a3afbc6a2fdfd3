from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from tinytorch.backends import reference, reference_conv
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


@pytest.mark.slow
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


@given(case=cases(), seed=st.integers(0, 999))
def test_rows_of_the_columns_are_slices_of_the_images(case, seed):
    (n, c, h, w), (_, _, *kernel), (_, _, oh, ow), params = case
    stride, padding, dilation = params["stride"], params["padding"], params["dilation"]
    x = np.random.default_rng(seed).standard_normal((n, c, h, w))
    layout = (c + 1, h + 2 * padding[0], stride[1], -(-(w + 2 * padding[1]) // stride[1]), n)
    images = np.zeros(layout)
    conv.images_last(x, images, padding)
    starts = conv.window_starts(layout, tuple(kernel), dilation)
    flat = np.append(images.reshape(-1), np.zeros(ow * n))
    padded = reference_conv.pad2d(x, padding)
    windows = reference_conv.windows2d(padded, tuple(kernel), stride, dilation)
    for y in range(oh):
        row = flat[y * stride[0] * layout[2] * layout[3] * n :]
        for k, window in enumerate(np.ndindex(c, *kernel)):
            seen = row[starts[k] : starts[k] + ow * n].reshape(ow, n)
            np.testing.assert_array_equal(seen, windows[:, window[0], y, :, *window[1:]].T)
    used = c * kernel[0] * kernel[1]
    assert starts.size % 4 == 0 and used <= starts.size < used + 4
    assert not images[c].any()


@pytest.mark.slow
def test_infinite_pixels_do_not_meet_the_zeros_that_fill_up_the_weights():
    x = np.full((2, 1, 3, 3), np.inf, np.float32)
    w = np.ones((1, 1, 3, 3), np.float32)
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    assert np.all(conv.conv2d(x, w, **params) == np.inf)


@pytest.mark.slow
def test_rows_of_outputs_wider_than_a_block(rng):
    x, w = rng.standard_normal((2, 2, 2, 1100)), rng.standard_normal((5, 2, 2, 3))
    params = {"stride": (1, 1), "padding": (0, 1), "dilation": (1, 1), "groups": 1}
    out = conv.conv2d(x, w, **params)
    np.testing.assert_allclose(out, reference.conv2d(x, w, **params), atol=1e-11)
    np.testing.assert_allclose(
        conv.conv2d_weight(x, out, kernel_size=(2, 3), **params),
        reference.conv2d_weight(x, out, kernel_size=(2, 3), **params),
        atol=1e-9,
    )


@pytest.mark.slow
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
