"""Copies, joined arrays and arrays in zeros are NumPy's, and in no input's memory."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.backends.optimized.backend import OptimizedBackend
from tinytorch.backends.optimized.rows import movement
from tinytorch.dtypes import meta_of_array
from tinytorch.jit.runs import FEWEST

BACKEND = OptimizedBackend()
DTYPES = [np.float32, np.float64, np.int64, np.bool_]
BASE = np.arange(6000.0).reshape(40, 30, 5)
VIEWS = {
    "whole": BASE,
    "columns": BASE[..., 1:],
    "turned": BASE.transpose(1, 0, 2),
    "by columns": BASE.T,
    "reversed": BASE[..., ::-1],
    "steps": BASE[::2, :, ::2],
    "one repeated": np.broadcast_to(BASE[:, :1, :1], (40, 60, 5)),
    "number": np.broadcast_to(np.float64(3), (40, 30, 5)),
}


def planned(op, *arrays, **params):
    return op.plan(tuple(meta_of_array(x) for x in arrays), params)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_joined_along_each_dimension(name, dtype):
    x = VIEWS[name].astype(dtype, order="K", copy=True) if name != "number" else VIEWS[name]
    for dim in range(3):
        for parts in ([x, x], [x, np.take(x, [0], dim), x], [np.take(x, [], dim), x]):
            found = BACKEND.specialize(planned(ops.cat, *parts, dim=dim))(*parts, dim=dim)
            expected = np.concatenate(parts, dim)
            assert found.flags.c_contiguous and found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            assert not np.shares_memory(found, x)
            out = np.empty_like(found)
            BACKEND.specialize_out(planned(ops.cat, *parts, dim=dim))(*parts, out, dim=dim)
            np.testing.assert_array_equal(out, expected)


def test_parts_of_several_dtypes_are_left_to_numpy():
    x = np.ones((4096, 3), np.float32)
    plan = planned(ops.cat, x, x, dim=1)
    assert movement.cat(plan) is not None
    assert movement.cat(planned(ops.cat, x[:9], x[:9], dim=1)) is None
    columns = planned(ops.cat, x[:, :1], x[:, :1], dim=1)  # rows of one number
    assert movement.cat(columns) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_in_zeros(name, dtype):
    x = VIEWS[name].astype(dtype)
    for step in (1, 2):
        bounds = tuple((i, i + step * (n - 1) + 1, step) for i, n in enumerate(x.shape))
        params = {"shape": tuple(b + 1 for _, b, _ in bounds), "bounds": bounds}
        for view in (x, x[::-1], np.asfortranarray(x)):
            found = BACKEND.specialize(planned(ops.unslice, view, **params))(view, **params)
            np.testing.assert_array_equal(found, reference.unslice(view, **params))
            assert found.dtype == dtype
            out = np.empty_like(found)
            BACKEND.specialize_out(planned(ops.unslice, view, **params))(view, out, **params)
            np.testing.assert_array_equal(out, found)


@pytest.mark.parametrize("name", VIEWS)
def test_copies_have_their_own_memory(name):
    x = VIEWS[name]
    found = BACKEND.specialize(planned(ops.copy, x))(x)
    assert found.flags.c_contiguous and found.flags.writeable
    assert not np.shares_memory(found, x)
    np.testing.assert_array_equal(found, x)
    out = np.empty_like(found)
    BACKEND.specialize_out(planned(ops.copy, x))(x, out)
    np.testing.assert_array_equal(out, x)


@st.composite
def shapes_of_the_same_size(draw):
    primes = draw(st.permutations(draw(st.sampled_from([(2, 3, 3), (2, 2, 2, 5), (2, 2, 3, 3)]))))

    def shape():
        ends = sorted({0, len(primes), *draw(st.sets(st.integers(0, len(primes)), max_size=3))})
        return tuple(math.prod(primes[a:b]) for a, b in pairwise(ends))

    return shape(), shape()


@given(shapes_of_the_same_size(), st.data())
@settings(max_examples=200)
def test_a_view_is_one_where_numpy_makes_one(shapes, data):
    before, after = shapes
    order = data.draw(st.permutations(range(len(before))))
    x = np.arange(math.prod(before)).reshape([before[d] for d in order])
    x = x.transpose(np.argsort(order))
    keys = [data.draw(st.sampled_from([slice(None), slice(None), slice(None, None, -1)]))]
    x = x[keys[0]]
    if data.draw(st.booleans()):
        x = np.broadcast_to(x[:1], x.shape)
    found = movement.reshaped(x, shape=after)
    assert np.shares_memory(found, x) == np.shares_memory(x.reshape(after), x)
    np.testing.assert_array_equal(found, x.reshape(after))


def test_small_arrays_are_left_to_numpy():
    x = np.zeros((FEWEST - 1, 1), np.float32)
    assert movement.copy(planned(ops.copy, x)) is reference.copy
    assert movement.reshape(planned(ops.reshape, x, shape=(x.size,))) is reference.reshape
    bounds = ((0, x.size, 1), (0, 1, 1))
    assert movement.unslice(planned(ops.unslice, x, shape=(x.size, 2), bounds=bounds)) is None
