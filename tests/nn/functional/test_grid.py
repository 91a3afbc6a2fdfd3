"""Elements at a grid of positions, against NumPy's indices."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.nn.functional.grid import grid_of, select


@given(data=st.data(), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_combination_of_positions(data, sizes):
    positions = [
        np.arange(n) if data.draw(st.booleans()) else
        np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5)))
        for n in sizes
    ]  # fmt: skip
    array = np.random.default_rng(0).standard_normal((2, 3, *sizes))
    found = select(tinytorch.from_numpy(array), grid_of(positions, sizes))
    expected = array[np.ix_(np.arange(2), np.arange(3), *positions)]
    np.testing.assert_array_equal(found.numpy(), expected)


def test_the_whole_is_the_tensor_itself():
    x = tinytorch.ones(2, 3, 4)
    assert select(x, grid_of([np.arange(3), np.arange(4)], (3, 4))) is x
