"""Products of int64: by a BLAS where float64 holds every sum, and as NumPy's everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.backends import reference

SHAPES = [
    ((40, 33), (33, 50)),
    ((3, 40, 33), (33, 50)),
    ((0, 40, 33), (0, 33, 40)),
    ((40,), (40, 50)),
    ((40, 0), (0, 40)),
]


@pytest.mark.parametrize("most", [1, 9, 2**23, 2**24, 2**31, 2**62])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_products_of_int64_are_numpys(
    left: tuple[int, ...], right: tuple[int, ...], most: int, rng: np.random.Generator
) -> None:
    a = rng.integers(-most, most, left, endpoint=True)
    b = rng.integers(-most, most, right, endpoint=True)
    for x, y in ((a, b), (-abs(a), -abs(b)), (np.asfortranarray(a), b)):
        found = reference.matmul(x, y)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, np.matmul(x, y))


def test_the_least_number_and_sums_beyond_float64() -> None:
    a = np.full((40, 40), np.iinfo(np.int64).min)
    np.testing.assert_array_equal(reference.matmul(a, a), np.matmul(a, a))
    odd = np.full((40, 40), 2**26 + 1)  # 40 times its square is beyond 2**53
    np.testing.assert_array_equal(reference.matmul(odd, odd), np.matmul(odd, odd))


@pytest.mark.parametrize("backend", ["naive", "numpy", "blocked", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (2, 1, 0, 3)])
def test_a_product_is_in_row_major_order(backend: str, order: tuple[int, ...], dtype: str) -> None:
    """So that what is written for PyTorch, `scores.view(batch * heads, ...)`, is no error."""
    heads = tinytorch.ones(2, 3, 4, 5, dtype=dtype).permute(*order)
    with tinytorch.using_backend(backend):
        scores = heads @ heads.mT
        assert scores.view(-1, *scores.shape[-2:]).numpy().flags.c_contiguous
