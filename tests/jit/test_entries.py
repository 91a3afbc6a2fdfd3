"""Entries: kernels on borrowed arrays."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numba import types

from tinytorch.jit.entries import BorrowedArray, Entries, array_type, memory_type
from tinytorch.jit.library import JIT, kernel
from tinytorch.jit.operands import SIZE


@kernel
def describe(x, out):
    out[0] = x.size
    out[1] = x.itemsize
    out[2], out[3] = x.shape
    out[4], out[5] = x.strides
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += (1 + i + 10 * j) * x[i, j]
    out[6] = int(total)


@kernel
def add(count, x):
    x[0] += count


@kernel
def ends(x, out):
    out[0], out[1] = x[0], x[x.size - 1]


def made(dtype):
    numbers = array_type(types.int64, 1)
    return Entries(
        describe=(describe, array_type(dtype, 2), numbers),
        add=(add, SIZE, numbers),
    )


GRID = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "x", [GRID, GRID.T, GRID[::-2, 1::2], GRID[:, 5:2:-1], GRID[1:1], GRID[:, ::6].T]
)
def test_an_array_is_read_as_numpy_describes_it(x):
    out = np.zeros(7, np.int64)
    before = sys.getrefcount(x), sys.getrefcount(out)
    made(types.float32).describe(x, out)
    weights = 1 + np.add.outer(np.arange(x.shape[0]), 10 * np.arange(x.shape[1]))
    assert list(out) == [x.size, 4, *x.shape, *x.strides, int((weights * x).sum())]
    assert (sys.getrefcount(x), sys.getrefcount(out)) == before


@pytest.mark.skipif(not JIT, reason="entries are the functions themselves")
@pytest.mark.parametrize(
    "x", [GRID, GRID.T, GRID[::2, 1::2], GRID[:, 2:5], GRID[1:, ::6].T, GRID[0], GRID[2, 3:4]]
)
def test_memory_is_read_from_the_first_number_to_the_last(x):
    out = np.zeros(2, np.int64)
    entries = Entries(ends=(ends, memory_type(types.float32), array_type(types.int64, 1)))
    before = sys.getrefcount(x)
    entries.ends(x, out)
    assert out.tolist() == [x.ravel()[0], x.ravel()[-1]]
    assert sys.getrefcount(x) == before
    unaligned = np.zeros(9, np.uint8)[1:].view(np.float32)
    with pytest.raises(BufferError, match="not aligned"):
        entries.ends(unaligned, out)


def test_an_entry_is_made_once_and_an_unknown_one_is_named():
    entries = made(types.float32)
    assert entries.add is entries.add
    with pytest.raises(AttributeError, match=r"no kernel 'substract' among \['add', 'describe'\]"):
        entries.substract  # noqa: B018


@pytest.mark.skipif(not JIT, reason="NUMBA_DISABLE_JIT is set")
def test_a_borrowed_array_has_code_of_its_own_in_the_cache():
    borrowed, owned = BorrowedArray(types.float32, 2), types.Array(types.float32, 2, "A")
    assert repr(borrowed) != repr(owned) and borrowed != owned
