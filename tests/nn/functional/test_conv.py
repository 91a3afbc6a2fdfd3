from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as TF
from hypothesis import assume, given, settings, strategies as st

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import ShapeError
from tinytorch.shapes_conv import window_positions

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
paddings = st.tuples(st.integers(0, 2), st.integers(0, 2))


@st.composite
def cases(draw):
    """Shapes and parameters of a convolution that has at least one output position."""
    kernel, stride, dilation, padding = draw(pairs), draw(pairs), draw(pairs), draw(paddings)
    groups = draw(st.integers(1, 2))
    n, cg, og = draw(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)))
    size = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    geometry = zip(size, kernel, stride, padding, dilation, strict=True)
    assume(all(window_positions(*g) >= 1 for g in geometry))
    shapes = (n, cg * groups, *size), (og * groups, cg, *kernel)
    return *shapes, (stride, padding, dilation, groups)


@given(case=cases(), bias=st.booleans(), seed=st.integers(0, 999))
@settings(max_examples=60)
def test_conv2d_equals_pytorch(agree, case, bias, seed):
    x_shape, w_shape, params = case
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(x_shape), rng.standard_normal(w_shape)]
    if bias:
        arrays.append(rng.standard_normal(w_shape[0]))
    agree(
        lambda x, w, b=None: F.conv2d(x, w, b, *params),
        lambda x, w, b=None: TF.conv2d(x, w, b, *params),
        *arrays,
    )


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 3), (3, 2), (4, 4)])
@pytest.mark.parametrize("dilation", [1, 2, (2, 1)])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
def test_padding_by_name(agree, rng, padding, kernel, dilation):
    agree(
        lambda x, w: F.conv2d(x, w, padding=padding, dilation=dilation),
        lambda x, w: TF.conv2d(x, w, padding=padding, dilation=dilation),
        rng.standard_normal((2, 2, 9, 8)),
        rng.standard_normal((3, 2, *kernel)),
    )


def test_one_image_without_a_batch(agree, rng):
    agree(F.conv2d, TF.conv2d, rng.standard_normal((2, 5, 5)), rng.standard_normal((3, 2, 3, 3)))
    agree(F.conv1d, TF.conv1d, rng.standard_normal((2, 5)), rng.standard_normal((3, 2, 3)))


def test_empty_batch(agree, rng):
    w, b = rng.standard_normal((3, 2, 3, 3)), rng.standard_normal(3)
    agree(F.conv2d, TF.conv2d, np.zeros((0, 2, 5, 5)), w, b)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinity_and_nan_reach_the_windows_that_hold_them(rng, value):
    x, w = rng.standard_normal((1, 1, 5, 5)), np.ones((1, 1, 2, 2))
    x[0, 0, 2, 2] = value
    out = F.conv2d(tinytorch.tensor(x), tinytorch.tensor(w)).numpy()[0, 0]
    expected = np.zeros((4, 4), bool)
    expected[1:3, 1:3] = True
    np.testing.assert_array_equal(~np.isfinite(out), expected)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), ((2, 1), (0, 2), (1, 2), 2), (1, "same", 1, 1)],
)
def test_conv2d_derivatives(check_twice, rng, stride, padding, dilation, groups):
    check_twice(
        lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups),
        rng.standard_normal((2, 2, 5, 6)),
        rng.standard_normal((2, 2 // groups, 2, 3)),
        rng.standard_normal(2),
    )


@given(
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.one_of(st.integers(0, 2), st.just("valid")),
    dilation=st.integers(1, 2),
    groups=st.integers(1, 2),
    length=st.integers(5, 9),
)
@settings(max_examples=40)
def test_conv1d_equals_pytorch(agree, kernel, stride, padding, dilation, groups, length):
    rng = np.random.default_rng(length)
    agree(
        lambda x, w, b: F.conv1d(x, w, b, stride, padding, dilation, groups),
        lambda x, w, b: TF.conv1d(x, w, b, stride, padding, dilation, groups),
        rng.standard_normal((2, 2, length)),
        rng.standard_normal((4, 2 // groups, kernel)),
        rng.standard_normal(4),
    )


def test_conv1d_padding_same(agree, rng):
    agree(
        lambda x, w: F.conv1d(x, w, padding="same", dilation=2),
        lambda x, w: TF.conv1d(x, w, padding="same", dilation=2),
        rng.standard_normal((2, 2, 7)),
        rng.standard_normal((3, 2, 3)),
    )


def test_conv1d_derivatives(check_twice, rng):
    check_twice(
        lambda x, w, b: F.conv1d(x, w, b, 2, 1),
        rng.standard_normal((2, 2, 6)),
        rng.standard_normal((3, 2, 3)),
        rng.standard_normal(3),
    )


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"padding": "half"}, ValueError, "padding must be numbers, 'same' or 'valid', not 'half'"),
        (
            {"padding": "same", "stride": 2},
            ValueError,
            r"padding='same' needs a stride of 1, not \(2, 2\)",
        ),
        ({"stride": (1, 2, 3)}, ValueError, r"stride must be one number or two, not \(1, 2, 3\)"),
        ({"stride": 1.5}, TypeError, "float"),
        ({"stride": 0}, ShapeError, r"conv2d: stride must be at least 1, not \(0, 0\)"),
        ({"dilation": 4}, ShapeError, r"a window of \(3, 3\) \(dilation \(4, 4\)\) does not fit"),
        ({"groups": 2}, ShapeError, r"input \(1, 3, 5, 5\) and weight \(2, 3, 3, 3\) do not fit"),
    ],
)
def test_conv2d_errors(options, error, text):
    with pytest.raises(error, match=text):
        F.conv2d(tinytorch.ones(1, 3, 5, 5), tinytorch.ones(2, 3, 3, 3), **options)


def test_conv1d_errors():
    with pytest.raises(ShapeError, match=r"conv1d: input \(1, 3, 5, 5\) must be \(n, channels, le"):
        F.conv1d(tinytorch.ones(1, 3, 5, 5), tinytorch.ones(2, 3, 3))
    with pytest.raises(ValueError, match=r"stride must be one number, not \(1, 2\)"):
        F.conv1d(tinytorch.ones(1, 3, 5), tinytorch.ones(2, 3, 3), stride=(1, 2))


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_a_transposed_convolution_has_more_than_a_stride_where_it_is_dilated(agree, rng, padding):
    for more, stride, dilation in ((1, 1, 2), ((2, 0), (1, 2), (3, 1)), ((2, 1), 2, 3)):
        agree(
            lambda x, w, b, *p: F.conv_transpose2d(x, w, b, p[0], padding, p[1], 1, p[2]),
            lambda x, w, b, *p: TF.conv_transpose2d(x, w, b, p[0], padding, p[1], 1, p[2]),
            rng.standard_normal((2, 3, 5, 4)), rng.standard_normal((3, 2, 3, 3)),
            rng.standard_normal(2), stride, more, dilation,
        )  # fmt: skip
    agree(
        lambda x, w: F.conv_transpose1d(x, w, None, 1, padding, 2, 1, 3),
        lambda x, w: TF.conv_transpose1d(x, w, None, 1, padding, 2, 1, 3),
        rng.standard_normal((2, 3, 5)), rng.standard_normal((3, 2, 3)),
    )  # fmt: skip
    with pytest.raises(ShapeError, match=r"below the stride .* or the dilation"):
        F.conv_transpose1d(tinytorch.ones(1, 1, 4), tinytorch.ones(1, 1, 2), output_padding=1)
