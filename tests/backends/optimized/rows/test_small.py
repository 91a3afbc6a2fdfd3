"""Kernels for small arrays beside those for all: every layout, NaN, infinities and both zeros."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.backends.optimized.rows import (
    embedding,
    scans,
    selection,
    small,
    small_index,
    small_order,
    softmax,
)
from tinytorch.dtypes import meta_of_array

TYPES = ["float32", *(pytest.param(t, marks=pytest.mark.slow) for t in ("float64", "int64"))]
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


def layouts(array: Any) -> Iterator[Any]:
    yield array
    yield np.asfortranarray(array)
    yield np.repeat(array, 2, axis=-1)[..., ::2]
    unaligned = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    yield unaligned


def drawn(rng: Any, dtype: str) -> tuple[Any, int]:
    """An array of some shape, with special values in it, and a dimension of it."""
    shape = tuple(rng.integers(1, 7, rng.integers(1, 5)))
    array = (rng.integers(-40, 40, shape) / rng.integers(1, 3)).astype(dtype)
    if array.dtype.kind == "f":
        for value in [np.nan, np.inf, -np.inf, -0.0, 0.0][: array.size // 4]:
            array.flat[rng.integers(array.size)] = value
    return array, int(rng.integers(array.ndim))


def plan_of(name: str, *arrays: Any, **params: Any) -> Any:
    return getattr(ops, name).plan(tuple(map(meta_of_array, arrays)), params)


def same(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype and found.flags.c_contiguous
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", TYPES)
def test_by_index(dtype: str, rng: Any) -> None:
    for _ in range(40):
        x, dim = drawn(rng, dtype)
        shape = tuple(rng.integers(1, 9) if d == dim else n for d, n in enumerate(x.shape))
        index = rng.integers(0, x.shape[dim], shape)
        src = rng.integers(-9, 9, shape).astype(dtype)
        rows = rng.integers(0, x.shape[0], (3, 2))
        for a, i in zip(layouts(x), layouts(index), strict=True):
            gather, scatter, take = (
                small_index.gather(plan_of("gather", a, i, dim=dim)),
                small_index.scatter(plan_of("scatter", a, i, src, dim=dim, reduce="add")),
                small_index.take(plan_of("take", a, rows)),
            )
            assert gather and scatter and (take is None) == (dtype == "int64")
            same(gather(a, i, dim=dim), embedding.gather(a, i, dim=dim))
            if take:
                same(take(a, rows), a[rows])
            add = small_index.scatter_add(plan_of("scatter_add", a[rows], rows, length=x.shape[0]))
            assert add
            for g, r in zip(layouts(a[rows]), layouts(rows), strict=True):
                same(add(g, r, length=9), reference.scatter_add(g, r, length=x.shape[0]))
            summed = embedding.scatter(a, i, src, dim=dim, reduce="add")
            same(scatter(a, i, src, dim=dim, reduce="add"), summed)
            put = small_index.scatter(plan_of("scatter", a, i, src, dim=dim, reduce="none"))
            assert put
            same(put(a, i, src), embedding.scatter(a, i, src, dim=dim, reduce="none"))
            for outside in (-1, x.shape[dim], 2**62):
                wrong = i.copy()
                wrong.flat[-1] = outside
                with pytest.raises(IndexError, match="scatter: an index is not in 0 to"):
                    put(a, wrong, src)


@pytest.mark.parametrize("dtype", TYPES)
def test_by_an_index_that_is_a_line(dtype: str, rng: Any) -> None:
    for _ in range(40):
        x, dim = drawn(rng, dtype)
        line = rng.integers(0, x.shape[dim], rng.integers(1, 9))
        shape = tuple(line.size if d == dim else n for d, n in enumerate(x.shape))
        index = np.broadcast_to(line.reshape(-1, *(1,) * (x.ndim - dim - 1)), shape)
        src = rng.integers(-9, 9, shape).astype(dtype)
        gather = small_index.gather(plan_of("gather", x, index, dim=dim))
        for a, i in zip(layouts(x), layouts(line), strict=True):
            same(gather.of_line()(a, i, dim=dim), reference.gather(x, index, dim=dim))
            for reduce in ("add", "none"):
                plan = plan_of("scatter", x, index, src, dim=dim, reduce=reduce)
                put = small_index.scatter(plan).of_line()
                same(put(a, i, src), reference.scatter(x, index, src, dim=dim, reduce=reduce))
                for outside in (-1, x.shape[dim]):
                    with pytest.raises(IndexError, match="scatter: an index is not in 0 to"):
                        put(a, np.where(i == i[-1], outside, i), src)


def test_few_elements_of_a_large_array(rng: Any) -> None:
    x, index = rng.standard_normal((256, 128)).astype(np.float32), rng.integers(0, 128, (256, 1))
    gather = small_index.gather(plan_of("gather", x, index, dim=1))
    put = small_index.scatter(plan_of("scatter", x, index, x[:, :1], dim=1, reduce="add"))
    for a in layouts(x):
        same(gather(a, index, dim=1), np.take_along_axis(x, index, 1))
        wanted = reference.scatter(a, index, x[:, :1], dim=1, reduce="add")
        same(put(a, index, x[:, :1], dim=1, reduce="add"), wanted)


@pytest.mark.parametrize("reduce", ["add", "none"])
@pytest.mark.parametrize("shape", [(300, 200), (6, 50, 90)])
def test_a_line_in_a_large_array_as_op_by_op(reduce: str, shape: Any, rng: Any) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    zeros = np.broadcast_to(np.float32(0), shape)
    for dim, places in itertools.product(range(len(shape)), (1, 5)):
        line, params = rng.integers(0, shape[dim], places), {"dim": dim, "reduce": reduce}
        sizes = (*shape[:dim], places, *shape[dim + 1 :])
        index = np.broadcast_to(line.reshape(-1, *(1,) * (len(shape) - dim - 1)), sizes)
        src = rng.standard_normal(sizes).astype(np.float32)
        put = small_index.scatter(plan_of("scatter", x, index, src, **params)).of_line()
        for a, values in ((x, src), (zeros, src), (x[::-1], src[..., ::-1]), (x.T.copy().T, src)):
            found = put(a, line, values, **params)
            np.testing.assert_array_equal(found, reference.scatter(a, index, values, **params))
            assert found.strides == embedding.scatter(a, index, values, **params).strides
        for outside in (-1, shape[dim], 2**62):
            with pytest.raises(IndexError, match="scatter: an index is not in 0 to"):
                put(x, np.full(places, outside), src, **params)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_first_in_order(dtype: str, rng: Any) -> None:
    for _ in range(40):
        x, dim = drawn(rng, dtype)
        start = int(rng.integers(x.shape[dim]))
        params = {
            "dim": dim,
            "descending": bool(rng.integers(2)),
            "start": start,
            "length": int(rng.integers(1, x.shape[dim] - start + 1)),
        }
        wanted = reference.partial_argsort(x, **params)
        for a in layouts(x):
            kernel = small.partial_argsort(plan_of("partial_argsort", a, **params))
            assert kernel
            same(kernel(a), wanted)
    for shape, length in [((99,), selection.FEW + 1), ((64, 64), selection.FEW)]:  # many; sorted
        params = {"dim": len(shape) - 1, "descending": True, "start": 0, "length": length}
        plan = plan_of("partial_argsort", np.zeros(shape, dtype), **params)
        assert small.partial_argsort(plan) is None


def test_one_place_in_long_rows(rng: Any) -> None:
    n, special = small_order.LONG + 3, [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45]
    for x in (rng.standard_normal((3, n)), rng.integers(-2, 3, (2, 2, n)), np.zeros(n)):
        x = x.astype(np.float32)
        x.flat[rng.integers(0, x.size, 40)] = rng.choice(special, 40)
        for place, descending in itertools.product((n // 2, n - 1, selection.FEW), (False, True)):
            params = {"dim": x.ndim - 1, "descending": descending, "start": place, "length": 1}
            wanted = reference.partial_argsort(x, **params)
            for a in layouts(x):
                kernel = small_order.partial_argsort(plan_of("partial_argsort", a, **params))
                assert kernel
                same(kernel(a), wanted)
    for shape, dim, length in [((n,), 0, 2), ((n, 2), 0, 1), ((small_order.LONG - 1,), 0, 1)]:
        params = {"dim": dim, "descending": False, "start": n // 2, "length": length}
        plan = plan_of("partial_argsort", np.zeros(shape, np.float32), **params)
        assert small_order.partial_argsort(plan) is None


@pytest.mark.parametrize("dtype", TYPES[:2])
def test_all_in_order(dtype: str, rng: Any) -> None:
    for _ in range(40):
        x, _ = drawn(rng, dtype)
        params = {"dim": x.ndim - 1, "descending": bool(rng.integers(2))}
        for a in layouts(x):
            kernel = small_order.argsort(plan_of("argsort", a, **params))
            assert kernel
            same(kernel(a), reference.argsort(x, **params))
    across = plan_of("argsort", np.zeros((3, 4), dtype), dim=0, descending=False)
    assert small_order.argsort(across) is None


@pytest.mark.parametrize("dtype", TYPES[:2])
def test_where_extremes_are(dtype: str, rng: Any) -> None:
    for _ in range(40):
        x, dim = drawn(rng, dtype)
        for a in layouts(x):
            for name in ("argmax", "argmin"):
                kernel = small.extreme_at(plan_of(name, a, dim=dim, keepdim=True))
                assert kernel
                same(kernel(a), getattr(np, name)(a, axis=dim, keepdims=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES[:2])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, dtype: str, rng: Any) -> None:
    limit = TOLERANCE[dtype]
    for _ in range(40):
        x, dim = drawn(rng, dtype)
        g = rng.standard_normal(x.shape).astype(dtype)
        for a, upper in zip(layouts(x), layouts(g), strict=True):
            kernel = small.along(plan_of(name, a, dim=dim))
            back = small.along(plan_of(f"{name}_backward", upper, a, dim=dim))
            assert kernel and back
            y = kernel(a)
            np.testing.assert_allclose(y, getattr(softmax, name)(a, dim=dim), limit, limit)
            wanted = getattr(softmax, f"{name}_backward")(upper, y, dim=dim)
            np.testing.assert_allclose(back(upper, y), wanted, limit, limit)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", TYPES[:2])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "running_argmax", "running_argmin"])
def test_scans(name: str, dtype: str, rng: Any) -> None:
    for _ in range(40):
        x, dim = drawn(rng, dtype)
        for a in layouts(x):
            kernel = small.along(plan_of(name, a, dim=dim))
            assert kernel
            same(kernel(a), getattr(scans, name)(a, dim=dim))


@pytest.mark.parametrize("dtype", TYPES[:2])
def test_cross(dtype: str, rng: Any) -> None:
    for shape, dim in [((5, 3), 1), ((3, 5), 0), ((2, 3, 4), 1), ((3,), 0)]:
        a, b = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
        kernel = small.along(plan_of("cross", a, b, dim=dim))
        assert kernel
        for x, y in zip(layouts(a), layouts(b), strict=True):
            same(kernel(x, y), reference.cross(a, b, dim=dim))


def test_whether_indices_are_in_range() -> None:
    for values in ([0, 4], [-1, 4], [0, 5], [2**63 - 1], [-(2**63)], []):
        index = np.array(values, np.int64)
        for a in (index, index.astype(np.int32) if max(values, default=0) < 9 else index):
            for b in (a, np.repeat(a, 2)[::2]):
                assert bool(small_index.is_within(b, 5)) == all(0 <= v < 5 for v in b.tolist())


def test_what_is_left_to_the_general_kernels() -> None:
    large, empty = np.zeros((300, 300), np.float32), np.zeros((0, 3), np.float32)
    index = np.zeros((1, 2), np.int64)
    assert small.along(plan_of("softmax", large, dim=0)) is None
    assert small.along(plan_of("softmax", empty, dim=0)) is None
    assert small_index.gather(plan_of("gather", large[:2, :3], index, dim=0)) is None  # x is wider
    assert small_index.take(plan_of("take", empty, np.zeros(0, np.int64))) is None


def test_a_kernel_of_a_user_is_called() -> None:
    class Mine(OptimizedBackend):
        def gather(self, x: Any, index: Any, *, dim: int) -> Any:
            return np.take_along_axis(x, index, dim) + 1

    x, index = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int64)
    plan = plan_of("gather", x, index, dim=0)
    assert Mine().add_kernel(plan)(x, index, dim=0).tolist() == [[1.0, 1.0], [1.0, 1.0]]
