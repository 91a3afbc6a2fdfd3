from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from tests.backends.optimized.child import run_script
from tinytorch.backends.blocked.conv import output_size
from tinytorch.backends.optimized.pooling.average import avg_pool2d, avg_pool2d_backward
from tinytorch.backends.optimized.pooling.maximum import (
    max_pool2d,
    max_pool2d_backward,
    max_pool2d_select,
)
from tinytorch.jit import threads


def windows(x_shape, kernel_size, stride, padding, dilation):
    """For each output element the places (row, column) of its window that lie inside, in order."""
    oh, ow = output_size(x_shape[2:], kernel_size, stride, padding, dilation)
    for y in range(oh):
        for z in range(ow):
            yield (
                y,
                z,
                [
                    (r, c)
                    for i in range(kernel_size[0])
                    for j in range(kernel_size[1])
                    if 0 <= (r := y * stride[0] - padding[0] + i * dilation[0]) < x_shape[2]
                    and 0 <= (c := z * stride[1] - padding[1] + j * dilation[1]) < x_shape[3]
                ],
            )


def first_maximum(values):
    """Along the last axis: where the first NaN is, or else the first of the largest."""
    nans = np.isnan(values)
    return np.where(nans.any(-1), nans.argmax(-1), values.argmax(-1))


@st.composite
def cases(draw):
    """Shapes and parameters in which every window has an element inside."""
    if draw(st.booleans()):  # the special cases
        kernel = stride = draw(st.sampled_from([(2, 2), (1, 2)]))
        padding, dilation = (0, 0), (1, 1)
    else:
        kernel, stride = (draw(st.tuples(*[st.integers(1, 3)] * 2)) for _ in range(2))
        dilation = draw(st.tuples(*[st.integers(1, 2)] * 2))
        padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    # columns beyond one vector as well
    size = draw(st.integers(1, 9)), draw(st.one_of(st.integers(1, 9), st.integers(30, 36)))
    assume(min(output_size(size, kernel, stride, padding, dilation)) >= 1)
    shape = (draw(st.integers(0, 2)), draw(st.integers(1, 2)), *size)
    params = dict(kernel_size=kernel, stride=stride, padding=padding, dilation=dilation)
    assume(all(inside for _, _, inside in windows(shape, *params.values())))
    return shape, params


@pytest.mark.slow
@given(
    case=cases(),
    dtype=st.sampled_from([np.float32, np.float64]),
    kind=st.sampled_from(["normal", "ties", "nan"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_max_pool_and_what_depends_on_the_place(case, dtype, kind, seed):
    shape, params = case
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) if kind == "normal" else rng.integers(0, 2, shape)
    x = x.astype(dtype)
    if kind == "nan":
        x[rng.random(shape) < 0.2] = np.nan
        x[rng.random(shape) < 0.2] = -np.inf
    size = output_size(shape[2:], *params.values())
    g = rng.standard_normal((*shape[:2], *size)).astype(dtype)
    v = rng.standard_normal(shape).astype(dtype)
    out, selected = np.empty_like(g), np.empty_like(g)
    dx = np.zeros(shape, np.float64)
    for y, z, inside in windows(shape, *params.values()):
        rows, columns = np.array(inside).T
        chosen = first_maximum(x[:, :, rows, columns])
        at = (*np.indices(shape[:2]), rows[chosen], columns[chosen])  # once in each image
        out[:, :, y, z], selected[:, :, y, z] = x[at], v[at]
        dx[at] += g[:, :, y, z]
    np.testing.assert_array_equal(max_pool2d(x, **params), out)
    np.testing.assert_array_equal(max_pool2d_select(v, x, **params), selected)
    back = max_pool2d_backward(g, x, **params)
    np.testing.assert_allclose(back, dx, atol=20 * float(np.finfo(dtype).eps))


@pytest.mark.slow
@given(case=cases(), seed=st.integers(0, 2**32 - 1))
def test_avg_pool_and_its_adjoint(case, seed):
    shape, params = case
    params.pop("dilation")
    rng = np.random.default_rng(seed)
    kernel, stride, padding = params.values()
    size = output_size(shape[2:], kernel, stride, padding, (1, 1))
    assume(min(size) >= 1)
    x, g = rng.standard_normal(shape), rng.standard_normal((*shape[:2], *size))
    out, dx = np.zeros_like(g), np.zeros_like(x)
    for y, z, inside in windows(shape, kernel, stride, padding, (1, 1)):
        for r, c in inside:
            out[:, :, y, z] += x[:, :, r, c] / (kernel[0] * kernel[1])
            dx[:, :, r, c] += g[:, :, y, z] / (kernel[0] * kernel[1])
    np.testing.assert_allclose(avg_pool2d(x, **params), out, atol=1e-12)
    back = avg_pool2d_backward(g, input_size=shape[2:], **params)
    np.testing.assert_allclose(back, dx, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("width", [6, 7])
def test_views_and_threads(monkeypatch, rng, width):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    x = rng.standard_normal((4, width, 5, 3)).astype(np.float32).transpose(0, 3, 2, 1)[::-1]
    params = dict(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1))
    expected = np.ascontiguousarray(x[:, :, :4, : width // 2 * 2])
    expected = expected.reshape(4, 3, 2, 2, width // 2, 2).max((3, 5))
    np.testing.assert_array_equal(max_pool2d(x, **params), expected)
    back = max_pool2d_backward(np.ones_like(expected), x, **params)
    assert back.sum() == expected.size
    assert back.shape == x.shape


SCRIPT = """
import numpy as np
from tinytorch.backends import reference
from tinytorch.backends.optimized.pooling.average import avg_pool2d, avg_pool2d_backward
from tinytorch.backends.optimized.pooling.maximum import max_pool2d, max_pool2d_backward
rng = np.random.default_rng(0)
for kernel, stride, padding, dilation, size in (
    ((2, 2), (2, 2), (0, 0), (1, 1), (7, 9)), ((2, 2), (2, 2), (0, 0), (1, 1), (4, 40)),
    ((1, 2), (1, 2), (0, 0), (1, 1), (3, 9)),
    ((3, 2), (2, 3), (1, 1), (1, 2), (9, 8)), ((3, 3), (1, 2), (1, 0), (1, 1), (6, 5)),
):
    p = dict(kernel_size=kernel, stride=stride, padding=padding)
    x = rng.integers(0, 4, (2, 2, *size)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    y = max_pool2d(x, dilation=dilation, **p)
    np.testing.assert_array_equal(y, reference.max_pool2d(x, dilation=dilation, **p))
    g = rng.standard_normal(y.shape).astype(np.float32)
    dx = max_pool2d_backward(g, x, dilation=dilation, **p)
    expected = reference.max_pool2d_backward(g, x, dilation=dilation, **p)
    np.testing.assert_allclose(dx, expected, atol=1e-6)
    if dilation == (1, 1):
        y, expected = avg_pool2d(x, **p), reference.avg_pool2d(x, **p)
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        dx = avg_pool2d_backward(g, input_size=size, **p)
        expected = reference.avg_pool2d_backward(g, input_size=size, **p)
        np.testing.assert_allclose(dx, expected, atol=1e-6)
print("agree")
"""


def test_without_the_jit():
    assert run_script(SCRIPT, NUMBA_DISABLE_JIT="1") == "agree"
