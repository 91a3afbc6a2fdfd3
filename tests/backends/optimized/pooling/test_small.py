"""Pooling of small images beside the kernels for all: every layout, NaN, infinities, zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.optimized.rows.test_small import TYPES, layouts, plan_of, same
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.backends.optimized.pooling import average, maximum, small


def drawn(rng: Any, dtype: str) -> Any:
    h, w = rng.integers(3, 9, 2)
    x = rng.standard_normal((rng.integers(1, 3), rng.integers(1, 4), h, w)).astype(dtype)
    for value in (np.nan, np.inf, -np.inf, -0.0, 0.0):
        x.flat[rng.integers(x.size)] = value
    return x


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES[:2])
def test_averages(dtype: str, rng: Any) -> None:
    for _ in range(30):
        x, pair = drawn(rng, dtype), lambda low, high: tuple(rng.integers(low, high, 2).tolist())
        params = {"kernel_size": pair(2, 4), "stride": pair(1, 4), "padding": pair(0, 2)}
        for a in layouts(x):
            kernel = small.avg_pool2d(plan_of("avg_pool2d", a, **params))
            assert kernel
            same(kernel(a, **params), average.avg_pool2d(a, **params))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES[:2])
def test_maxima(dtype: str, rng: Any) -> None:
    usual = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
    for i in range(30):
        x, pair = drawn(rng, dtype), lambda low, high: tuple(rng.integers(low, high, 2).tolist())
        params = {"kernel_size": pair(2, 3), "stride": pair(1, 4), "padding": pair(0, 2)}
        params = {**params, "dilation": pair(1, 3)} if i % 3 else usual
        for a in layouts(x):
            kernel = small.max_pool2d(plan_of("max_pool2d", a, **params))
            assert kernel
            same(kernel(a, **params), maximum.max_pool2d(a, **params))


def test_large_images_and_kernels_of_a_subclass_are_not_pooled_here() -> None:
    class Own(OptimizedBackend):
        def avg_pool2d(self, x: Any, **params: Any) -> Any:
            return average.avg_pool2d(x, **params)

    params = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    large = plan_of("avg_pool2d", np.zeros((8, 8, 256, 256), np.float32), **params)
    few = plan_of("avg_pool2d", np.zeros((1, 1, 4, 4), np.float32), **params)
    assert small.avg_pool2d(large) is None and small.avg_pool2d(few) is not None
    assert "small" not in Own().add_kernel(few).__module__
    assert "small" in OptimizedBackend().add_kernel(few).__module__
