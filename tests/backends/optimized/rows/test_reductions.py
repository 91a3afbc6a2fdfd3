from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tinytorch import from_numpy, ops, using_backend
from tinytorch.backends.optimized.rows import reductions, rows
from tinytorch.dispatch import apply
from tinytorch.jit import threads
from tinytorch.jit.library import JIT

SUBSETS = [d for n in range(5) for d in itertools.combinations(range(4), n)]


@given(
    shape=st.tuples(*[st.integers(0, 9)] * 4),
    dims=st.sampled_from(SUBSETS),
    keepdim=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    turned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_sum_of_any_dimensions(shape, dims, keepdim, dtype, turned, seed):
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    x = x.transpose(2, 0, 3, 1)[::-1] if turned else x
    out = reductions.sum(x, dims=dims, keepdim=keepdim)
    exact = np.sum(x, axis=dims, keepdims=keepdim, dtype=np.longdouble)
    size = np.sum(np.abs(x), axis=dims, keepdims=keepdim, dtype=np.longdouble)
    assert out.shape == exact.shape and out.dtype == dtype and out.flags.c_contiguous
    assert not np.shares_memory(out, x)
    assert np.all(np.abs(out - exact) <= 8 * np.finfo(dtype).eps * size)


@given(
    shape=st.tuples(*[st.integers(1, 9)] * 4),
    dims=st.sampled_from(SUBSETS),
    keepdim=st.booleans(),
    nans=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_largest_and_smallest(shape, dims, keepdim, nans, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(np.float32)
    if nans:  # of both signs: their bits are ordered differently
        x[rng.random(shape) < 0.1] = np.nan
        x[rng.random(shape) < 0.1] = -np.float32(np.nan)
        x[rng.random(shape) < 0.1] = np.inf
    for name in ("amax", "amin"):
        out = getattr(reductions, name)(x, dims=dims, keepdim=keepdim)
        np.testing.assert_array_equal(out, getattr(np, name)(x, axis=dims, keepdims=keepdim))


@given(
    shape=st.tuples(*[st.integers(1, 9)] * 4),
    dims=st.sampled_from(SUBSETS),
    keepdim=st.booleans(),
    turned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_integers_and_truth_values(shape, dims, keepdim, turned, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-(2**63), 2**63 - 1, shape, np.int64)
    x = x.transpose(2, 0, 3, 1)[::-1] if turned else x
    for name in ("amax", "amin", "sum"):
        out = getattr(reductions, name)(x, dims=dims, keepdim=keepdim)
        wanted = getattr(np, name)(x, axis=dims, keepdims=keepdim)
        np.testing.assert_array_equal(out, wanted, strict=True)
    true = x > 2**62
    for name, known in (("amax", np.any), ("amin", np.all)):
        out = getattr(reductions, name)(true, dims=dims, keepdim=keepdim)
        np.testing.assert_array_equal(out, known(true, axis=dims, keepdims=keepdim), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize(
    "shape, dims",
    [((20_011, 3), (0,)), ((2, 4099, 2), (1,)), ((1031, 256), (0,)), ((64, 65), (0,))],
)
def test_columns_of_many_short_rows(dtype, shape, dims, rng):
    """Several rows are taken side by side; what is left over counts, too."""
    x = rng.integers(-3, 4, shape).astype(dtype)
    if dtype == "bool":
        x[...] = False
        x[(-1,) * len(shape)] = True
    if dtype.startswith("float"):
        x[(shape[0] // 2, *(0 for _ in shape[1:]))] = np.nan
    names = {"bool": ("amax", "amin")}.get(dtype, ("sum", "amax", "amin"))
    for name, keepdim in itertools.product(names, (False, True)):
        for found in (
            getattr(reductions, name)(x, dims=dims, keepdim=keepdim),
            getattr(from_numpy(x), name)(dims[0], keepdim).numpy(),
        ):
            wanted = getattr(np, name)(x, axis=dims, keepdims=keepdim)
            np.testing.assert_array_equal(found, wanted, strict=True)
    if dtype != "bool":
        ones = np.where(x == 0, 1, np.where(rng.random(shape) < 1e-3, 2, 1)).astype(dtype)
        ones[(-1,) * len(shape)] = 5
        found = reductions.prod(ones, dims=dims, keepdim=False)
        np.testing.assert_array_equal(found, np.prod(ones, axis=dims, dtype=dtype), strict=True)


@pytest.mark.parametrize("shape, dims", [((3_000_000,), (0,)), ((300_000, 3), (0,))])
def test_long_sums_stay_accurate(shape, dims):
    x = np.full(shape, 0.1, np.float32)
    exact = float(np.float32(0.1)) * x.shape[0]
    tolerance = 3e-5 if JIT else 2e-4  # vector code keeps several partial sums
    np.testing.assert_allclose(reductions.sum(x, dims=dims, keepdim=False), exact, rtol=tolerance)


@pytest.mark.slow
def test_threads_share_the_rows(monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    x = rng.standard_normal((7, 5, 3))
    np.testing.assert_allclose(reductions.sum(x, dims=(2,), keepdim=False), x.sum(2))
    np.testing.assert_allclose(reductions.sum(x, dims=(1,), keepdim=False), x.sum(1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes_of_long_rows_are_found_wherever_they_are(dtype, rng):
    n = reductions.BLOCK + 3  # read at several places at once, and a rest
    x = rng.standard_normal((3, n)).astype(dtype)
    for at in (0, n // 4, n // 2, 3 * n // 4, n - 4, n - 1):
        for value in (9, -9, np.inf, -np.inf, np.nan, -np.nan):
            y = x.copy()
            y[1, at] = value
            for name in ("amax", "amin"):
                found = getattr(reductions, name)(y, dims=(1,), keepdim=False)
                np.testing.assert_array_equal(found, getattr(np, name)(y, 1))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_extremes_of_wide_columns(rows, rng):
    n = reductions.BLOCK + 3  # a block of columns at a time, and a rest
    x = rng.integers(-3, 4, (2, rows, n)).astype(np.float32)
    for value in (np.inf, -np.inf, np.nan, -np.nan):
        x[rng.random(x.shape) < 0.1] = value
    for name in ("amax", "amin"):
        found = getattr(reductions, name)(x, dims=(1,), keepdim=False)
        np.testing.assert_array_equal(found, getattr(np, name)(x, 1))


def test_infinities_and_nan_add_up():
    x = np.array([[np.inf, 1], [np.inf, -np.inf], [np.nan, 1]], np.float32)
    np.testing.assert_array_equal(
        reductions.sum(x, dims=(1,), keepdim=False), [np.inf, np.nan, np.nan]
    )


@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4), data=st.data())
def test_rows_there_and_back(shape, data):
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    dim = data.draw(st.integers(0, len(shape) - 1))
    there = rows.as_rows(x, dim)
    assert there.shape == (x.size // shape[dim] if shape[dim] else there.shape[0], shape[dim])
    back = rows.from_rows(there, x.shape, dim)
    np.testing.assert_array_equal(back, x)
    assert back.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("dims", [(), (1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_of_integers_are_numpys(dtype, dims, keepdim):
    x = np.random.default_rng(0).integers(0, 9, (3, 4, 5)).astype(dtype)
    for array in (x, x.transpose(2, 0, 1), x[:, ::-1], x[::2]):
        for op in (ops.sum, ops.amax, ops.amin):
            with using_backend("optimized"):
                found = apply(op, from_numpy(array), dims=dims, keepdim=keepdim)
            with using_backend("numpy"):
                wanted = apply(op, from_numpy(array), dims=dims, keepdim=keepdim)
            assert isinstance(found._data, np.ndarray) and found.dtype is wanted.dtype
            assert not np.shares_memory(found._data, x)
            np.testing.assert_array_equal(found._data, wanted._data)


def test_products_of_integers_are_numpys():
    x = np.random.default_rng(0).integers(-9, 9, (3, 4))
    with using_backend("optimized"):
        for dim in (0, 1):
            np.testing.assert_array_equal(from_numpy(x).prod(dim).numpy(), x.prod(dim))
        assert from_numpy(x).prod().item() == x.prod()
