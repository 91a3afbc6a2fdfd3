"""What looks at many rows at once beside NumPy's: ties, NaN, strides, weights that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.backends.optimized.rows.test_small import TYPES, layouts, same
from tinytorch.backends import reference
from tinytorch.backends.optimized.rows import bisection


@pytest.mark.parametrize("is_right", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_values_are_found_in_the_row_of_their_own(dtype: str, is_right: bool, rng: Any) -> None:
    for _ in range(40):
        n, m = rng.integers(1, 12, 2)
        rows = rng.integers(-4, 5, (3, 2, n)).astype(dtype)
        values = rng.integers(-5, 6, (3, 2, m)).astype(dtype)
        if dtype != "int64":
            rows[rng.random(rows.shape) < 0.1] = np.nan
            values[rng.random(values.shape) < 0.2] = np.nan
            values.flat[0], values.flat[-1] = np.inf, -np.inf
        rows.sort(-1)
        wanted = reference.bisected(rows, values, is_right)
        for a, b in zip(layouts(rows), layouts(values), strict=True):
            same(bisection.bisected(a, b, is_right), wanted)


def test_rows_without_elements_and_one_row(rng: Any) -> None:
    with tinytorch.using_backend("optimized"):
        none, few = tinytorch.zeros(2, 0), tinytorch.zeros(2, 3)
        assert tinytorch.searchsorted(none, few).tolist() == [[0, 0, 0], [0, 0, 0]]
        assert tinytorch.searchsorted(few, none).shape == (2, 0)
        row = tinytorch.tensor([1.0, 2.0, 2.0])
        assert tinytorch.searchsorted(row, few + 2, right=True).tolist() == [[3, 3, 3]] * 2


@pytest.mark.parametrize("dtype", TYPES[:2])
def test_indices_are_drawn_by_weights(dtype: str, rng: Any) -> None:
    for shape in ((3, 7), (9,), (2, 1), (4, 300)):
        weights = np.abs(rng.standard_normal(shape)).astype(dtype)
        weights[rng.random(shape) < 0.4] = 0
        weights[..., -1] += 1
        u = rng.random((*shape[:-1], 5))
        u[..., 0], u[..., 1] = 0, np.nextafter(1, 0)
        wanted = reference.drawn(weights, u)
        for a in layouts(weights):
            same(bisection.drawn(a, u), wanted)
        for bad in (-1, np.nan, np.inf, -np.inf):
            wrong = weights.copy()
            wrong.flat[0] = bad
            assert bisection.drawn(wrong, u) is None is reference.drawn(wrong, u)
        assert bisection.drawn(weights * 0, u) is None is reference.drawn(weights * 0, u)


def test_places_of_triangles() -> None:
    for starts, counts in (([0, 1, 5], [3, 0, 2]), ([0], [0]), ([], []), ([2] * 3, [90] * 3)):
        first, number = np.array(starts, np.int64), np.array(counts, np.int64)
        found, wanted = (np.zeros((2, sum(counts)), np.int64) for _ in range(2))
        bisection.write_places(first, number, found)
        reference.write_places(first, number, wanted)
        same(found, wanted)


@pytest.mark.parametrize("shape", [(5, 3), (4, 16), (3, 50), (2, 3, 17), (2, 1, 3, 4), (1, 1)])
def test_positions_of_what_is_true(shape: tuple[int, ...], rng: Any) -> None:
    for share in (0, 0.03, 0.5, 1):
        true = rng.random(shape) < share
        out = np.full((int(true.sum()) + 1, len(shape)), -7)
        for write in (bisection.write_positions, reference.write_positions):
            write(shape, true.reshape(-1, shape[-1]), out[:-1])
            np.testing.assert_array_equal(out[:-1], np.argwhere(true))
            assert (out[-1] == -7).all()
            out[:-1] = -1


@pytest.mark.parametrize("dtype", [bool, "int8", "float16", "float32", "float64", "int64"])
def test_numbers_where_a_mask_is_true(dtype: Any, rng: Any) -> None:
    for n, share in ((0, 0.5), (1, 1), (1, 0), (100, 0), (101, 0.03), (99, 0.6), (64, 1)):
        x, mask = rng.integers(0, 9, n).astype(dtype), rng.random(n) < share
        if x.dtype.kind == "f":
            x[rng.random(n) < 0.3], x[rng.random(n) < 0.3] = np.nan, -0.0
        for a, m in zip(layouts(x), layouts(mask), strict=True) if n else [(x, mask)]:
            found = bisection.compressed(a, m)
            np.testing.assert_array_equal(found, x[mask], strict=True)
            assert found.tobytes() == x[mask].tobytes()


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "uint8", "int64"])
def test_what_a_mask_selects_is_new(dtype: str, backend: str, rng: Any) -> None:
    array = rng.integers(0, 2, (5, 7, 3))
    with tinytorch.using_backend(backend):
        x = tinytorch.tensor(array).to(getattr(tinytorch, dtype)).permute(2, 0, 1)
        mask = tinytorch.tensor(rng.random((5, 3, 7)) < 0.4).permute(1, 0, 2)
        selected = array.transpose(2, 0, 1)[mask.numpy()]
        for found in (x[mask], tinytorch.masked_select(x, mask), x.masked_select(mask)):
            assert found.dtype == x.dtype
            assert found.to(tinytorch.int64).tolist() == selected.tolist()
            assert found.is_contiguous()
            found.zero_()
        assert x.to(tinytorch.int64).tolist() == array.transpose(2, 0, 1).tolist()


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_equal_numbers_are_counted(dtype: str, rng: Any) -> None:
    many = bisection.MANY
    for n, below, least in ((0, 1, 3), (many, 3, 9), (many + 3, 100, 2), (many, 2**20, 0)):
        x = rng.integers(0, below, n).astype(dtype)
        for a in layouts(x) if n else [x]:
            found = bisection.counted(a, least)
            np.testing.assert_array_equal(found, np.bincount(x, minlength=least), strict=True)
    with pytest.raises(ValueError, match="negative"):
        bisection.counted(np.array([0] * many + [-1], dtype), 0)


def test_the_backend_counts_so() -> None:
    with tinytorch.using_backend("optimized"):
        x = tinytorch.tensor([2, 0, 2] * 1000)
        assert x.bincount(minlength=4).tolist() == [1000, 0, 2000, 0]
        assert x.bincount(x * 0.5).tolist() == [0, 0, 2000]
        with pytest.raises(ValueError, match="bincount: -1 is negative"):
            (x - 1).bincount()
