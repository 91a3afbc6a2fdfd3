"""Some of the indices in order, beside those of NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.optimized.rows.test_order import with_ties
from tinytorch.backends import reference
from tinytorch.backends.optimized.rows.selection import FEW, GROUP, SMALL, partial_argsort


def _check(x: Any, dim: int, descending: bool, start: int, length: int) -> None:
    params: dict[str, Any] = {"dim": dim, "descending": descending}
    result = partial_argsort(x, **params, start=start, length=length)
    expected = reference.partial_argsort(x, **params, start=start, length=length)
    assert result.dtype == np.int64 and result.flags.c_contiguous
    np.testing.assert_array_equal(result, expected, f"{dim, descending, start, length}")


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8"])
def test_every_way_gives_the_indices_of_a_stable_sort(dtype: str, descending: bool) -> None:
    x = with_ties(dtype, np.random.default_rng(0))
    places = [(0, 1), (0, FEW), (5, 3), (0, FEW + 1), (FEW, 1), (150, 1), (40, 100), (299, 1)]
    for start, length in [*places, (0, 300)]:
        _check(x, 1, descending, start, length)
        _check(x[:, ::-1], 1, descending, start, length)
    for start, length in [(0, 1), (0, 5), (11, 1), (0, 23), (22, 1), (7, 0)]:
        _check(x, 0, descending, start, length)


@pytest.mark.parametrize(
    "n", [FEW, FEW + 1, FEW + GROUP - 1, FEW + GROUP, 3 * FEW, GROUP * FEW + 1]
)
def test_rows_that_rise_and_fall(n: int) -> None:
    for rows in (2, SMALL // n + 1):
        rising = np.tile(np.arange(n), (rows, 1))
        for x in (rising, rising[:, ::-1], np.zeros_like(rising)):
            for count in (1, 2, FEW - 1, FEW):
                _check(x, 1, True, 0, count)
                _check(x, 1, False, 0, count)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 4)])
def test_without_elements(shape: tuple[int, ...]) -> None:
    for dim in range(len(shape)):
        _check(np.zeros(shape), dim, False, 0, shape[dim])
