"""The order of elements, running sums and random numbers, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinytorch.backends import reference
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.backends.optimized.rows.order import argsort
from tinytorch.backends.optimized.rows.scans import cumsum
from tinytorch.backends.optimized.rows.uniform import uniform
from tinytorch.dtypes import as_dtype


def with_ties(dtype: str, rng: np.random.Generator) -> Any:
    """Few numbers, each often, and those at the edges of the type."""
    values = rng.integers(-4, 5, (37, 300)).astype(dtype)
    if values.dtype.kind == "f":
        values[rng.random(values.shape) < 0.1] = np.nan
        values[rng.random(values.shape) < 0.1] = -np.nan
        values[rng.random(values.shape) < 0.1] = -0.0
        values[0, :3] = np.inf, -np.inf, np.finfo(dtype).smallest_subnormal
    else:
        values[0, :2] = np.iinfo(dtype).max, np.iinfo(dtype).min
    return values


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8"])
def test_equal_elements_keep_their_order(dtype: str, descending: bool) -> None:
    x = with_ties(dtype, np.random.default_rng(0))
    for dim in (0, 1):
        expected = reference.argsort(x, dim=dim, descending=descending)
        np.testing.assert_array_equal(argsort(x, dim=dim, descending=descending), expected)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("unit", [2.0**-52, 5e-324])
def test_numbers_that_differ_in_their_last_bits(unit: float, descending: bool) -> None:
    rng = np.random.default_rng(2)
    start = 1.0 if unit > 1e-300 else 0.0
    x = np.where(rng.random((3, 900)) < 0.5, -1.0, 1.0) * (start + rng.integers(0, 60, 900) * unit)
    for dim in (0, 1):
        expected = reference.argsort(x, dim=dim, descending=descending)
        np.testing.assert_array_equal(argsort(x, dim=dim, descending=descending), expected)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("bits", [1, 20, 53, 54, 62, 63])
def test_integers_of_any_range(bits: int, descending: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-(2**bits), 2**bits, (5, 300))  # 9 bits are the index's
    x[0, :9], x[1, :9] = -(2**bits), 2**bits - 1
    for dim in (0, 1):
        expected = reference.argsort(x, dim=dim, descending=descending)
        np.testing.assert_array_equal(argsort(x, dim=dim, descending=descending), expected)


@pytest.mark.slow_beyond(5)
@pytest.mark.parametrize("shape", [(9, 50), (3, 5, 7), (6,), (0, 3), (2, 0)])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "running_argmax", "running_argmin"])
def test_scans_of_integers_are_exact(shape: tuple[int, ...], name: str) -> None:
    x = np.random.default_rng(1).integers(-(2**62), 2**62, shape)
    x = np.where(x % 3 == 0, x, x % 3)  # products and sums that wrap around, and ties
    for dim in range(x.ndim):
        result = getattr(OptimizedBackend(), name)(x, dim=dim)
        expected = getattr(reference, name)(x, dim=dim)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shape", [(9, 50), (3, 5, 7), (6,), (0, 3), (2, 0)])
def test_running_sums_are_of_float64_precision(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for dim in range(x.ndim):
        exact = np.cumsum(x.astype(np.float64), dim)
        np.testing.assert_allclose(cumsum(x, dim=dim), exact, 1e-5, 1e-5)
        if dim == x.ndim - 1 and x.size:  # rounded once
            np.testing.assert_array_equal(cumsum(x, dim=dim), exact.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers_are_the_references(dtype: str) -> None:
    params: dict[str, Any] = {"shape": (33, 5), "dtype": as_dtype(dtype)}
    for seed in (0, -1, 2**62):
        array = np.array(seed, np.int64)
        expected = reference.uniform(array, **params)
        np.testing.assert_array_equal(uniform(array, **params), expected)
