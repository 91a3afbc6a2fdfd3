"""Which way a product goes: by dot products where rows and columns are contiguous and few."""

from __future__ import annotations

import pytest

from tinytorch.backends.optimized.gemm.loops import dots_cost_less
from tinytorch.jit.library import kernel


@kernel
def _is_by_dots(m: int, n: int, k: int, itemsize: int) -> bool:
    return dots_cost_less(m, n, k, itemsize)


@pytest.mark.parametrize("m, n, k", [(1, 1000, 1000), (8, 4, 900), (32, 4, 900), (1000, 4, 3000)])
def test_few_rows_or_columns_are_dot_products(m, n, k):
    assert _is_by_dots(m, n, k, 4)


@pytest.mark.parametrize(
    "m, n, k", [(1000, 100, 3000), (3000, 33, 700), (128, 100, 4096), (1000, 40, 900)]
)
def test_many_rows_are_tiles_though_their_last_vector_is_partly_empty(m, n, k):
    """Dot products read all rows again for every few columns."""
    assert not _is_by_dots(m, n, k, 4)
