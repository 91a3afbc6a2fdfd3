from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.backends.optimized.child import run_script
from tinytorch.backends.optimized.conv.conv2d import conv2d, plan_conv2d
from tinytorch.backends.optimized.conv.conv2d_input import conv2d_input, plan_conv2d_input
from tinytorch.backends.optimized.conv.conv2d_weight import conv2d_weight
from tinytorch.backends.optimized.conv.plan import Batch
from tinytorch.backends.optimized.gemm.blocking import L2_BYTES
from tinytorch.jit import threads

DTYPES = (np.float32, np.float64)


def windows(x, size, stride, padding, dilation):
    """(N, C, kh, kw, OH, OW): the patch under each output position; float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    spans = [d * (k - 1) + 1 for k, d in zip(size, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    view = view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    return view.transpose(0, 1, 4, 5, 2, 3)


def expected(x, w, g, groups, **p):
    """Output, gradient to x and gradient to w, by definition, in float64."""
    size = w.shape[2:]
    patches = windows(x, size, **p)
    outputs, gradients = [], []
    (top, left), (height, width) = p["padding"], x.shape[2:]
    dx = np.zeros((*x.shape[:2], height + 2 * top, width + 2 * left))
    c, o = x.shape[1] // groups, w.shape[0] // groups
    for i in range(groups):
        of_x, of_w = slice(i * c, (i + 1) * c), slice(i * o, (i + 1) * o)
        outputs.append(np.einsum("nchwyx,ochw->noyx", patches[:, of_x], w[of_w].astype(np.float64)))
        gradients.append(np.einsum("nchwyx,noyx->ochw", patches[:, of_x], g[:, of_w]))
        spread = np.einsum("noyx,ochw->nchwyx", g[:, of_w].astype(np.float64), w[of_w])
        for tap in np.ndindex(*size):
            rows, columns = (
                slice(k * d, k * d + (count - 1) * s + 1, s)
                for k, d, s, count in zip(tap, p["dilation"], p["stride"], g.shape[2:], strict=True)
            )
            dx[:, of_x, rows, columns] += spread[:, :, *tap]
    dx = dx[:, :, top : top + height, left : left + width]
    return np.concatenate(outputs, 1), dx, np.concatenate(gradients)


def check(rng, dtype, shape, out_channels, size, groups=1, **p):
    """All three operations against the definition."""
    n, channels, height, width = shape
    x = rng.standard_normal(shape).astype(dtype)
    w = rng.standard_normal((out_channels, channels // groups, *size)).astype(dtype)
    b = rng.standard_normal(out_channels).astype(dtype)
    axes = zip((height, width), size, p["stride"], p["padding"], p["dilation"], strict=True)
    out = [(m + 2 * q - d * (k - 1) - 1) // s + 1 for m, k, s, q, d in axes]
    g = rng.standard_normal((n, out_channels, *out)).astype(dtype)
    y, dx, dw = expected(x, w, g, groups, **p)
    results = (
        conv2d(x, w, b, groups=groups, **p) - b[:, None, None],
        conv2d_input(g, w, input_size=(height, width), groups=groups, **p),
        conv2d_weight(x, g, kernel_size=size, groups=groups, **p),
    )
    terms = (w[0].size, w[0].size * groups * out_channels // channels, g[:, 0].size)
    for result, reference, k in zip(results, (y, dx, dw), terms, strict=True):
        assert result.dtype == dtype
        assert result.shape == reference.shape
        # k products of standard normals, each rounded: 8 sigma of a random walk of k steps
        bound = 8 * (np.sqrt(k) + 1) * np.sqrt(k + 1) * np.finfo(dtype).eps
        np.testing.assert_allclose(result, reference, rtol=0, atol=bound)


SHAPES = (
    ((2, 3, 8, 9), 5, (3, 3)), ((1, 4, 5, 40), 8, (1, 3)), ((2, 2, 7, 7), 4, (2, 5)),
    ((1, 1, 1, 1), 1, (1, 1)), ((3, 8, 14, 14), 16, (5, 5)), ((1, 2, 6, 3), 2, (3, 3)),
    ((2, 20, 9, 9), 70, (3, 3)), ((2, 64, 8, 8), 32, (1, 1)), ((5, 1, 28, 28), 6, (5, 5)),
)  # fmt: skip


@pytest.mark.parametrize(
    "dtype",
    [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)],  # `any_shape` has both
)
@pytest.mark.parametrize(("shape", "out_channels", "size"), SHAPES)
def test_strides_paddings_dilations_and_groups(rng, dtype, shape, out_channels, size):
    for s, p, d, groups in itertools.product(
        ((1, 1), (2, 2), (1, 3)), ((0, 0), (1, 1), (2, 0), (3, 4)), ((1, 1), (2, 1)), (1, 2)
    ):
        fits = all(
            m + 2 * q >= e * (k - 1) + 1 for m, q, e, k in zip(shape[2:], p, d, size, strict=True)
        )
        if fits and shape[1] % groups == 0 and out_channels % groups == 0:
            check(rng, dtype, shape, out_channels, size, groups, stride=s, padding=p, dilation=d)


pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@pytest.mark.slow
@given(
    n=st.sampled_from((1, 2, 3, 16, 21, 37)), channels=st.integers(1, 20),
    out_channels=st.integers(1, 40),
    image=st.tuples(st.integers(1, 20), st.integers(1, 20)), size=pair, stride=pair,
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)), dilation=pair,
    dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(n, channels, out_channels, image, size, stride, padding, dilation, dtype, seed):
    for m, q, d, k in zip(image, padding, dilation, size, strict=True):
        if m + 2 * q < d * (k - 1) + 1:
            return
    check(
        np.random.default_rng(seed), dtype, (n, channels, *image), out_channels, size,
        stride=stride, padding=padding, dilation=dilation,
    )  # fmt: skip


@pytest.mark.parametrize("count", (1, 2, 3))
def test_threads_share_images_or_parts_of_one(rng, monkeypatch, count):
    monkeypatch.setattr(threads, "threads_for", lambda work: min(count, threads.get_num_threads()))
    cases = ((1, 20, 40, 1), (1, 20, 40, 2), (1, 1, 3, 1), (5, 4, 20, 2))
    for n, channels, out_channels, s in cases:
        check(
            rng, np.float32, (n, channels, 15, 17), out_channels, (3, 3),
            stride=(s, s), padding=(1, 1), dilation=(1, 1),
        )  # fmt: skip


@pytest.fixture
def prefer_images_as_lanes(monkeypatch):
    """Whatever it costs, where it is possible."""

    def choose(as_rows, as_vectors, vectors, together):
        assert isinstance(together, Batch)
        return together

    plans = (plan_conv2d, plan_conv2d_input)
    for module in ("conv2d", "conv2d_input"):
        monkeypatch.setattr(f"tinytorch.backends.optimized.conv.{module}.cheapest", choose)
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("prefer_images_as_lanes")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", (1, 3))
def test_images_as_lanes(rng, monkeypatch, dtype, count):
    """Whole vectors of images and a rest; more threads than panels of images, and fewer."""
    monkeypatch.setattr(threads, "threads_for", lambda work: min(count, threads.get_num_threads()))
    for n, stride, padding in (
        (37, (1, 1), (0, 0)), (37, (2, 1), (1, 1)), (100, (1, 1), (3, 3)), (1, (1, 1), (1, 0)),
    ):  # fmt: skip
        check(rng, dtype, (n, 5, 7, 6), 14, (3, 3), stride=stride, padding=padding, dilation=(1, 1))


def test_views_of_any_layout(rng):
    """Transposed, reversed, strided and broadcast inputs give what their copies give."""
    p = {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 1}
    base = rng.standard_normal((4, 10, 12, 40)).astype(np.float32)
    w = rng.standard_normal((20, 2, 3, 3)).astype(np.float32).transpose(0, 1, 3, 2)[:, :, ::-1]
    for x in (
        base[..., ::2][:, :2], base.transpose(0, 3, 2, 1)[:, :2], base[:, 3:1:-1, ::-1, ::-1],
        np.broadcast_to(base[:1, :1], (3, 2, 12, 40)),
    ):  # fmt: skip
        y = conv2d(x, w, **p)
        np.testing.assert_array_equal(y, conv2d(x.copy(), w.copy(), **p))
        g = np.asarray(rng.standard_normal(y.shape[::-1]).astype(np.float32).T)
        size = x.shape[2:]
        np.testing.assert_array_equal(
            conv2d_input(g, w, input_size=size, **p),
            conv2d_input(g.copy(), w.copy(), input_size=size, **p),
        )
        np.testing.assert_array_equal(
            conv2d_weight(x, g, kernel_size=(3, 3), **p),
            conv2d_weight(x.copy(), g.copy(), kernel_size=(3, 3), **p),
        )


@pytest.mark.parametrize("shape", ((0, 3, 5, 5), (2, 0, 5, 5)))
def test_empty(shape):
    p = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    x, w = np.ones(shape, np.float32), np.ones((4, shape[1], 3, 3), np.float32)
    y = conv2d(x, w, np.full(4, 2, np.float32), **p)
    assert y.shape == (shape[0], 4, 5, 5)
    assert (y == 2).all()
    assert conv2d_input(y, w, input_size=(5, 5), **p).shape == shape
    assert not conv2d_weight(x, y, kernel_size=(3, 3), **p).any()


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize(
    ("shape", "out_channels"),
    (((1, 512, 7, 7), 48), ((1, 512, 6, 6), 3), ((32, 512, 2, 2), 32), ((2, 32, 48, 48), 32)),
)
def test_errors_of_long_sums_do_not_grow_with_their_length(rng, shape, out_channels):
    """512 channels and 9 taps, or 4608 positions: in one running sum more than twice as much."""
    p = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.standard_normal((out_channels, shape[1], 3, 3)).astype(np.float32)
    g = rng.standard_normal((shape[0], out_channels, *shape[2:])).astype(np.float32)
    wide = [a.astype(np.float64) for a in (x, w, g)]
    y, _, dw = (r.astype(np.float64) for r in expected(wide[0], wide[1], wide[2], 1, **p))
    found = conv2d(x, w, groups=1, **p), conv2d_weight(x, g, kernel_size=(3, 3), groups=1, **p)
    for result, exact in zip(found, (y, dw), strict=True):
        assert np.sqrt(np.square(result - exact).mean() / np.square(exact).mean()) <= 5e-7


@pytest.mark.parametrize(("width", "size"), ((None, (1, 1)), (64, (3, 3))))
def test_images_beyond_the_l2_cache(rng, width, size):
    """They are gone through in blocks of rows, or of a row's positions."""
    positions = L2_BYTES // 2 // 128 + 100
    height, width = (1, positions) if width is None else (positions // width + 1, width)
    padding = (size[0] // 2, size[1] // 2)
    check(
        rng, np.float32, (1, 32, height, width), 35, size,
        stride=(1, 1), padding=padding, dilation=(1, 1),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_image_read_where_it_is_through_many_pages(rng, dtype):
    """Each channel begins in a page of its own: for many output channels panels are copied."""
    p = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    check(rng, dtype, (1, 200, 32, 32), 150, (1, 1), **p)


@pytest.mark.parametrize(
    ("shape", "out_channels", "kernels"),
    (
        ((1, 256, 14, 14), 256, "positions"), ((1, 512, 7, 7), 512, "positions"),
        ((32, 1, 28, 28), 16, "vectors"), ((64, 64, 7, 7), 64, "batch"),
    ),
)  # fmt: skip
def test_the_walk_is_the_cheapest(shape, out_channels, kernels):
    w = (out_channels, shape[1], 3, 3)
    plan = plan_conv2d(4, shape, w, (1, 1), (1, 1), (1, 1), 1)
    assert plan.walk.kernels == kernels


@pytest.mark.parametrize("channels", (1, 8))
@pytest.mark.parametrize("value", (np.nan, np.inf))
def test_nan_and_infinity_reach_exactly_the_outputs_that_see_them(rng, channels, value):
    """Also in the weight gradient, whose dot products run through the gaps between rows."""
    p = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    x = rng.standard_normal((2, channels, 9, 9)).astype(np.float32)
    w = rng.standard_normal((16, channels, 3, 3)).astype(np.float32)
    x[1, 0, 4, 0] = value
    y = conv2d(x, w, **p)
    seen = np.zeros(y.shape, bool)
    seen[1, :, 2:5, 0] = True
    np.testing.assert_array_equal(~np.isfinite(y), seen)
    dw = conv2d_weight(x, np.ones_like(y), kernel_size=(3, 3), **p)
    touched = np.zeros(dw.shape, bool)
    touched[:, 0, :, 0] = True
    np.testing.assert_array_equal(~np.isfinite(dw), touched)


SCRIPT = """
import numpy as np
from tinytorch.backends.optimized.conv.conv2d import conv2d
from tinytorch.backends.optimized.conv.conv2d_input import conv2d_input
from tinytorch.backends.optimized.conv.conv2d_weight import conv2d_weight
rng = np.random.default_rng(0)
for n, c, o, s, p, groups in (
    (2, 1, 2, 1, 1, 1), (2, 4, 20, 2, 1, 1), (2, 4, 6, 1, 2, 2), (2, 4, 17, 1, 0, 1),
    (20, 20, 20, 1, 1, 1),
):
    q = dict(stride=(s, s), padding=(p, p), dilation=(1, 1), groups=groups)
    x, w = rng.standard_normal((n, c, 6, 7)), rng.standard_normal((o, c // groups, 3, 2))
    y = conv2d(x, w, None, **q)
    g, dx, dw = (rng.standard_normal(shape) for shape in (y.shape, x.shape, w.shape))
    # the three are derivatives of one bilinear form
    left = np.vdot(g, conv2d(dx, w, None, **q))
    np.testing.assert_allclose(left, np.vdot(conv2d_input(g, w, input_size=(6, 7), **q), dx))
    left = np.vdot(g, conv2d(x, dw, None, **q))
    np.testing.assert_allclose(left, np.vdot(conv2d_weight(x, g, kernel_size=(3, 2), **q), dw))
    at = 2 * s - p
    patch = x[1, : c // groups, at : at + 3, at : at + 2]
    np.testing.assert_allclose(y[1, 0, 2, 2], np.vdot(patch, w[0]))
print("agree")
"""


def test_without_the_jit():
    assert run_script(SCRIPT, NUMBA_DISABLE_JIT="1") == "agree"
