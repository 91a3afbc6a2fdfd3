"""Casts between float32 and float16, and to bool, are NumPy's bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch import ops, using_backend
from tinytorch.backends.optimized.elementwise import casts
from tinytorch.dtypes import Array

HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)


def converted(x: Array, name: str) -> Array:
    with using_backend("optimized"):
        result: Array = getattr(tinytorch.from_numpy(x), name)().numpy()
    return result


def assert_same(result: Array, expected: Array) -> None:
    """The same bits, and NaN for NaN."""
    assert result.dtype == expected.dtype and result.shape == expected.shape
    bits = {2: np.uint16, 4: np.uint32}[expected.itemsize]
    is_nan = np.isnan(expected)
    assert np.array_equal(np.isnan(result), is_nan)
    assert np.array_equal(result.view(bits)[~is_nan], expected.view(bits)[~is_nan])


def around_ties() -> Array:
    """Every float16, what lies between it and the next, and the float32 around all these."""
    positive = np.append(HALVES[:0x7C00].astype(np.float32), np.float32(65536))  # the next would be
    ties = (positive[:-1] + positive[1:]) / 2
    exact = np.concatenate([positive, -positive, ties, -ties])
    below, above = (np.nextafter(exact, np.float32(end)) for end in (-np.inf, np.inf))
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38], np.float32)
    return np.concatenate([exact, below, above, edges])


def test_every_float16_becomes_the_float32_that_equals_it() -> None:
    assert_same(converted(HALVES, "float"), HALVES.astype(np.float32))


def test_float32_is_rounded_to_the_nearest_float16_and_ties_to_even() -> None:
    x = around_ties()
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    assert_same(converted(x, "half"), expected)


def test_float64_is_rounded_once() -> None:
    exact = around_ties().astype(np.float64)
    x = np.concatenate([exact, *(np.nextafter(exact, end) for end in (-np.inf, np.inf))])
    x = np.concatenate([x, [1e-320, -5e-324, 1e-46, 1e300, -1e300, 1.5e-45]])
    rng = np.random.default_rng(0)
    x = np.concatenate([x, rng.integers(0, 2**63, 100_000).view(np.float64), rng.normal(size=9999)])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(np.float16)
        twice = x.astype(np.float32).astype(np.float16)
    assert_same(converted(x, "half"), expected)
    assert (twice != expected)[~np.isnan(expected)].any()  # by way of float32 some are others


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (7, 300)])
def test_any_shape_and_order(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for each in (x, x.T, x[..., ::2] if shape else x):
        for x in (each, each.astype(np.float64)):
            assert_same(converted(x, "half"), x.astype(np.float16))


def test_the_processor_that_runs_this_converts_them() -> None:
    """Else the tests above compare NumPy with itself."""
    plan = ops.cast.plan((tinytorch.zeros(4).meta,), {"dtype": tinytorch.float16})
    assert (casts.cast(plan) is not None) == casts.converts_halves()


def test_large_arrays_of_floats_become_bool() -> None:
    x = np.zeros((200, 200), np.float32)
    x[0, :4] = np.nan, 1e-45, -0.0, np.inf
    for each in (x, x.T):
        result = converted(each, "bool")
        assert result.dtype == bool and np.array_equal(result, each.astype(bool))
