"""Special functions of the NumPy backend: their errors, edges, and blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tinytorch.backends import reference, reference_special
from tinytorch.backends.reference_special import BLOCK, erf, sigmoid

FLOATS = (np.float32, np.float64)
EDGES = [0.0, -0.0, 1e-30, 0.9, 3.9, 4.1, 6.1, 40.0, 200.0, 1e30, math.inf, -math.inf, math.nan]


@pytest.fixture(autouse=True)
def _quiet(request):
    """Steps may overflow on their way; the backend does not warn of it, and `test_edges` asks."""
    with np.errstate(all="raise" if "edges" in request.node.name else "ignore"):
        yield


def numbers(dtype: type) -> np.ndarray:
    """From tiny to beyond where the result is 1, of both signs."""
    sizes = np.concatenate([np.logspace(-30, 1, 4001), np.linspace(0, 7, 4 * BLOCK + 7)])
    return np.concatenate([sizes, -sizes]).astype(dtype)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-7), (np.float64, 2.5e-16)])
def test_erf_is_that_of_the_c_library(dtype, bound):
    x = numbers(dtype)
    expected = np.array([math.erf(v) for v in x.tolist()])
    error = np.abs(erf(x).astype(np.float64) - expected)
    assert error.max() <= bound
    relative = error[x != 0] / np.abs(expected[x != 0])
    assert relative.max() <= 3 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", FLOATS)
def test_sigmoid_is_its_definition(dtype):
    x = numbers(dtype) * 10
    expected = [1 / (1 + math.exp(-v)) for v in x.tolist()]
    limits = np.finfo(dtype)  # of subnormal results nothing is asked
    np.testing.assert_allclose(sigmoid(x), expected, rtol=8 * limits.eps, atol=limits.tiny)


@pytest.mark.parametrize("dtype", FLOATS)
def test_edges(dtype):
    x = np.array(EDGES + [-v for v in EDGES], dtype)
    kernels = [reference._FUNCTIONS[name] for name in ("erf", "sigmoid")]
    found_erf, found_sigmoid = (kernel(x) for kernel in kernels)  # in a context that ignores it
    np.testing.assert_array_equal(np.isnan(found_erf), np.isnan(x))
    np.testing.assert_array_equal(found_erf[np.abs(x) > 6], np.sign(x[np.abs(x) > 6]))
    np.testing.assert_array_equal(np.signbit(found_erf[x == 0]), np.signbit(x[x == 0]))
    np.testing.assert_array_equal(np.isnan(found_sigmoid), np.isnan(x))
    assert np.nanmin(found_sigmoid) == 0
    assert np.nanmax(found_sigmoid) == 1


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (BLOCK,), (BLOCK + 1,), (7, 5000)])
def test_any_shape_and_layout_in_blocks(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    for source in (x, x.T, np.broadcast_to(x, (2, *shape)), x[..., ::-1] if shape else x):
        found = erf(source)
        assert found.shape == source.shape
        np.testing.assert_array_equal(found, erf(np.array(source)))
        into = np.array(source)
        reference_special.erf.into(into, into)
        np.testing.assert_array_equal(into, found)


@pytest.mark.parametrize("size, step", [(3, 1), (3, 2), (2, 3), (5, 4)])
@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_fold_adds_windows_in_their_order_to_the_bit(size, step, count, rng):
    x = rng.standard_normal((2, count, size)).astype(np.float32)
    length = (count - 1) * step + size + 1
    expected = np.zeros((2, length), np.float32)
    for i in range(count):
        expected[:, i * step : i * step + size] += x[:, i]
    np.testing.assert_array_equal(reference.fold(x, length=length, step=step), expected)
