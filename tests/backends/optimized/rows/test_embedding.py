from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from tinytorch.backends.optimized.rows.embedding import scatter_add, take


@given(
    length=st.integers(1, 9),
    shape=st.lists(st.integers(0, 5), max_size=3),
    rest=st.lists(st.integers(0, 4), max_size=2),
    dtype=st.sampled_from([np.float32, np.float64]),
    turned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_take_and_its_adjoint(length, shape, rest, dtype, turned, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((length, *rest)).astype(dtype)
    x = x[::-1] if turned else x
    index = rng.integers(0, length, shape)
    out = take(x, index)
    np.testing.assert_array_equal(out, x[index])
    assert out.dtype == dtype and not np.shares_memory(out, x)
    g = rng.standard_normal((*shape, *rest)).astype(dtype)
    expected = np.zeros((length, *rest), np.float64)
    np.add.at(expected, index, g.astype(np.float64))
    back = scatter_add(g, index, length=length)
    assert back.shape == expected.shape and back.dtype == dtype
    np.testing.assert_allclose(back, expected, atol=200 * float(np.finfo(dtype).eps))


def test_duplicates_add_up():
    out = scatter_add(np.ones((3, 2), np.float32), np.array([1, 1, 0]), length=4)
    np.testing.assert_array_equal(out, [[1, 1], [2, 2], [0, 0], [0, 0]])
