"""Where the extremes are: as NumPy finds them, in any layout."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tinytorch.backends import reference
from tinytorch.backends.optimized.rows import extremes


def _values(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if dtype in ("int64", "int32"):
        limits = np.iinfo(dtype)
        return rng.choice(np.array([limits.min, -1, 0, 1, limits.max], dtype), shape)
    return rng.choice(np.array([-np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], dtype), shape)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("shape", [(3, 40), (7, 1, 9), (2, 5, 8), (4, 2), (0, 9), (33, 64)])
def test_as_numpy_does(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> None:
    a = _values(dtype, shape, rng)
    for order in permutations(range(a.ndim)):
        turned = a.transpose(order)
        for view in (turned, turned[::-1], turned[..., ::2]):
            for dim in (d for d in range(view.ndim) if view.shape[d]):
                for name in ("argmax", "argmin"):
                    for keepdim in (False, True):
                        found = getattr(extremes, name)(view, dim=dim, keepdim=keepdim)
                        expected = getattr(reference, name)(view, dim=dim, keepdim=keepdim)
                        assert found.dtype == expected.dtype
                        np.testing.assert_array_equal(found, expected)
