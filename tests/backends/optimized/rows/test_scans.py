"""Running extremes: those of the reference, in groups of rows and one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinytorch.backends import reference
from tinytorch.backends.optimized.rows import scans


@pytest.mark.parametrize("name", ["running_argmax", "running_argmin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_running_extremes_of_special_values(name: str, dtype: str, rng: Any) -> None:
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 5e-324]
    if dtype == "int64":
        values = [least, least + 1, -1, 0, 1, most - 1, most]
    for rows in (1, 3, scans.TOGETHER, 2 * scans.TOGETHER + 3):
        x = rng.choice(np.array(values, dtype), (rows, 9))
        x[rows // 2] = np.sort(x[rows // 2])
        for a, dim in ((x, 1), (x[:, 2:5], 1), (x.T, 0), (x[0], 0)):
            found = getattr(scans, name)(a, dim=dim)
            np.testing.assert_array_equal(found, getattr(reference, name)(a, dim=dim))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 64])
def test_a_row_alone_has_the_gradient_that_it_has_among_others(n: int, rng: Any) -> None:
    """Bit for bit: alone it is walked from both ends at once."""
    g, x = rng.standard_normal((2, scans.TOGETHER + 1, n))
    x[:, n // 3] = 0.0
    found = scans.cumprod_backward(g, x, dim=1)
    for row in range(len(x)):
        alone = scans.cumprod_backward(g[row], x[row], dim=0)
        assert alone.tobytes() == found[row].tobytes()
    np.testing.assert_allclose(found, reference.cumprod_backward(g, x, dim=1), 1e-12, 1e-14)
