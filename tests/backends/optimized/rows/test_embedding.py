from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch.backends import reference
from tinytorch.backends.optimized.rows.embedding import gather, scatter, scatter_add, take


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int16, np.bool_])
def test_rows_of_a_turned_matrix_of_any_type(rng, dtype):
    """float16 is a type that compiled kernels do not have."""
    x, index = (rng.standard_normal((30, 40)) * 3).astype(dtype).T, rng.integers(0, 40, 5)
    np.testing.assert_array_equal(take(x, index), x[index])


def test_duplicates_add_up():
    out = scatter_add(np.ones((3, 2), np.float32), np.array([1, 1, 0]), length=4)
    np.testing.assert_array_equal(out, [[1, 1], [2, 2], [0, 0], [0, 0]])


@pytest.mark.slow
@given(
    shape=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    dim=st.integers(0, 3),
    dtype=st.sampled_from([np.float32, np.float64, np.int64]),
    count=st.integers(0, 7),
    narrower=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_one_line_of_indices_for_all_rows(shape, dim, dtype, count, narrower, seed):
    rng, dim = np.random.default_rng(seed), dim % len(shape)
    x = rng.integers(-9, 9, shape).astype(dtype)
    wanted = [count if d == dim else max(1, n - narrower) for d, n in enumerate(shape)]
    line = rng.integers(0, shape[dim], count).reshape(-1, *(1,) * (len(shape) - dim - 1))
    index = np.broadcast_to(line, wanted)
    for source in (x, x.swapaxes(0, 1).copy().swapaxes(0, 1)):
        found = gather(source, index, dim=dim)
        np.testing.assert_array_equal(found, reference.gather(source, index, dim=dim))
        src = rng.integers(-9, 9, wanted).astype(dtype)
        for reduce in ("none", "add"):
            put = scatter(source, index, src, dim=dim, reduce=reduce)
            expected = reference.scatter(source, index.copy(), src, dim=dim, reduce=reduce)
            np.testing.assert_array_equal(put, expected)
    np.testing.assert_array_equal(x, source)


@pytest.mark.parametrize("at", [-1, 4])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_line_that_leaves_the_array_is_refused(at, dim):
    line = np.array([0, at]).reshape((-1, 1) if dim == 0 else (1, -1))
    index = np.broadcast_to(line, (2, 4) if dim == 0 else (4, 2))
    with pytest.raises(IndexError, match="not in 0 to 3"):
        x = np.zeros((4, 4), np.float32)
        scatter(x, index, np.ones(index.shape, np.float32), dim=dim, reduce="none")
