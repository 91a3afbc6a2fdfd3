"""Products of int64 beside NumPy's, at full range."""

from __future__ import annotations

import numpy as np
import pytest

from tinytorch.backends.optimized.gemm import integers
from tinytorch.backends.optimized.gemm.integers import COLUMNS, ROWS
from tinytorch.backends.optimized.gemm.matmul import matmul

SHAPES = [
    ((5, 7), (7, 11)),
    ((1, 1), (1, 1)),
    ((ROWS + 1, 17), (17, COLUMNS + 9)),
    ((3, 0), (0, 9)),
    ((0, 3), (3, 9)),
    ((4, 8), (8, 1)),
    ((2, 3, 5, 16), (16, 9)),
    ((2, 1, 5, 16), (3, 16, 9)),
    ((4, 5), (3, 5, 12)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_products_wrap_around_as_numpys(left, right):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**63), 2**63 - 1, shape) for shape in (left, right))
    transposed = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    for x, y in ((a, b), (transposed, b), (a[..., ::-1, :], b[..., ::-1])):
        result = matmul(x, y)
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, np.matmul(x, y))


@pytest.mark.parametrize("most", [9, 2**23, 2**24, 2**40])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_small_numbers_are_multiplied_as_floats_and_large_ones_are_not(
    batch: tuple[int, ...], most: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    exact = integers.matmul
    monkeypatch.setattr(integers, "matmul", lambda *a: calls.append(1) or exact(*a))
    a = rng.integers(-most, most, (*batch, 40, 64), endpoint=True)
    b = rng.integers(-most, most, (*batch, 64, 50), endpoint=True)
    a[..., 0, 0] = b[..., 0, 0] = most
    for x, y in ((a, b), (a, b.swapaxes(-1, -2).copy().swapaxes(-1, -2)), (a[..., ::-1], b)):
        found = matmul(x, y)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, np.matmul(x, y))
    assert bool(calls) == (64 * most * most >= 2**53)
