"""remainder and floor_divide as vector code: NumPy's results to the bit, whatever the operands."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tinytorch.backends.optimized.elementwise.division import LARGEST, LIMIT
from tinytorch.backends.optimized.elementwise.loop_text import BLOCK

SPECIAL = [0.0, 1.0, 3.0, 0.1, math.inf, math.nan, LIMIT, LIMIT + 1, 2.0**24, 1e38, LARGEST]
SPECIAL += [-x for x in SPECIAL]
FUNCTIONS = {
    "remainder": np.remainder,
    "floor_divide": np.floor_divide,
    "fmod": np.fmod,
}


def assert_same_bits(name, a, b):
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](a, b)
    with tinytorch.using_backend("optimized"):
        found = getattr(tinytorch, name)(tinytorch.from_numpy(a), tinytorch.from_numpy(b)).numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    counts = ~np.isnan(expected)
    if name == "fmod":  # of -0.0 it is 0.0
        counts &= a != 0
    np.testing.assert_array_equal(np.signbit(found[counts]), np.signbit(expected[counts]))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_pair_of_special_numbers(name, dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    values = np.array([*SPECIAL, tiny, -tiny, np.finfo(dtype).max], dtype)
    # each pair in a block of its own: one that fits is not left to the C library
    pairs = np.repeat(np.stack(np.meshgrid(values, values), -1).reshape(-1, 2), BLOCK, axis=0)
    assert_same_bits(name, *np.ascontiguousarray(pairs.T))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_quotients_next_to_whole_numbers(name, dtype, rng):
    b = (rng.standard_normal(5_000) * 10.0 ** rng.integers(-20, 20, 5_000)).astype(dtype)
    multiple = (b * rng.integers(-1_000_000, 1_000_000, 5_000)).astype(dtype)
    for step in (-np.inf, 0, np.inf):
        a = multiple if step == 0 else np.nextafter(multiple, dtype(step))
        assert_same_bits(name, a, b)


@pytest.mark.parametrize("width", [32, 64])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_numbers(width, data):
    numbers = st.lists(st.floats(width=width), min_size=6, max_size=6)
    dtype = np.float32 if width == 32 else np.float64
    a, b = (np.array(data.draw(numbers), dtype) for _ in range(2))
    for name in FUNCTIONS:
        assert_same_bits(name, a, b)


@pytest.mark.slow
def test_operands_that_broadcast_and_numbers(rng):
    a = tinytorch.from_numpy(rng.standard_normal((7, 300)).astype(np.float32))
    row = tinytorch.from_numpy(rng.standard_normal(300).astype(np.float32))
    with tinytorch.using_backend("optimized"):
        np.testing.assert_array_equal((a % row).numpy(), np.remainder(a.numpy(), row.numpy()))
        np.testing.assert_array_equal((a.T // -0.3).numpy(), a.T.numpy() // np.float32(-0.3))
        np.testing.assert_array_equal((2.5 % a).numpy(), np.remainder(np.float32(2.5), a.numpy()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_to_the_power_of_an_array_is_exact_for_whole_numbers(dtype, rng):
    whole = np.arange(-100, 100).astype(dtype)
    x = rng.uniform(-50, 50, (30, 70)).astype(dtype)
    with tinytorch.using_backend("optimized"):
        np.testing.assert_array_equal(
            tinytorch.exp2(tinytorch.from_numpy(whole)).numpy(),
            np.ldexp(dtype(1), np.arange(-100, 100)),
        )
        np.testing.assert_allclose(
            tinytorch.exp2(tinytorch.from_numpy(x)).numpy(),
            np.exp2(x),
            rtol=4 * np.finfo(dtype).eps,
        )
        powers = tinytorch.pow(3.0, tinytorch.from_numpy(x)).numpy()  # of another number: as before
    np.testing.assert_array_equal(powers, np.power(dtype(3), x))
