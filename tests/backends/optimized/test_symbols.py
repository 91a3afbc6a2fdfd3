from __future__ import annotations

import numpy as np
import pytest

from tinytorch.backends import reference
from tinytorch.backends.optimized.gemm.matmul import matmul
from tinytorch.backends.optimized.symbols import symbol
from tinytorch.dtypes import float64
from tinytorch.jit.library import kernel
from tinytorch.jit.views import strided, view, words


@kernel
def sum_of_view(address, rows, columns):
    x, total = view(np.float32, address, (rows, columns)), 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += (i + 1) * x[i, j]
    return total


@kernel
def sum_of_strided(address, rows, columns, down, right):
    x, total = strided(np.float64, address, (rows, columns), (down, right)), 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += (i + 1) * x[i, j]
    return total


@kernel
def count_true(address, size):
    x, total = view(np.bool_, address, size), 0
    for i in range(x.size):
        total += 1 if x[i] else 0
    return total


@kernel
def weighted_words(address):
    a, b, c = words(address, 3)
    return a + 10 * b + 100 * c


@kernel
def call_outside(count, extent, index):
    return outside(count, extent, index)


@kernel
def call_uniform(count, seed, out):
    uniform(count, seed, out)


outside = symbol("outside")[1]
uniform = symbol("uniform", np.float64)[1]


def test_memory_is_seen_as_arrays(rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    rows = np.arange(1, 4)[:, None]
    assert sum_of_view(x.ctypes.data, 3, 4) == pytest.approx(float((rows * x).sum()), rel=1e-5)
    y = rng.standard_normal((6, 8))
    part = y[4::-2, 1::3]  # backwards, and with steps
    expected = float((rows * part).sum())
    assert sum_of_strided(part.ctypes.data, *part.shape, *part.strides) == pytest.approx(expected)
    flags = rng.random(37) < 0.5
    assert count_true(flags.ctypes.data, 37) == flags.sum()
    assert weighted_words(np.array([1, 2, 3]).ctypes.data) == 321


def test_empty_memory_is_an_empty_array():
    assert sum_of_view(0, 0, 4) == 0.0


def test_an_unknown_symbol_lists_the_known_ones():
    assert symbol("softmax", np.float32)[0] == "softmax_f32"
    with pytest.raises(KeyError, match=r"no symbol 'nothing_f32'.*softmax_f32"):
        symbol("nothing", np.float32)


@pytest.mark.parametrize(
    ("index", "expected"), [([0, 2, 1], 0), ([], 0), ([0, 3], 1), ([-1, 0], 1)]
)
def test_indices_outside_are_found(index: list[int], expected: int):
    places = np.array(index, np.int64)
    assert call_outside(places.size, 3, places.ctypes.data) == expected


def test_uniform_gives_the_bits_of_every_backend():
    seed, out = np.array(-12345, np.int64), np.empty(1000)
    call_uniform(1000, seed.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, reference.uniform(seed, shape=(1000,), dtype=float64))


@pytest.mark.parametrize("k", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_few_terms(rng, k: int, dtype: type):
    # row by row up to eight terms, tile by tile beyond
    for m, n in ((1, 1), (3, 17), (128, 784), (40, 1)):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        bound = 8 * k * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b)).max()
        for left in (a, np.asfortranarray(a)):
            assert np.abs(matmul(left, b) - a @ b).max() <= bound
