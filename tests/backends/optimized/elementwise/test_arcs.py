"""asin, acos, atan and atan2: errors in ulp, and what IEEE 754 says at zeros and infinities."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import tinytorch
from tinytorch.state import using_backend

mpmath.mp.prec = 200

BOUNDS = {"atan": (2.0, 2.0), "atan2": (2.0, 2.0), "asin": (1.5, 1.5), "acos": (1.5, 1.5)}


def computed(name, *arrays):
    with using_backend("optimized"):
        return getattr(tinytorch, name)(*map(tinytorch.from_numpy, arrays)).numpy()


def arguments(name, rng):
    tiny = 10.0 ** rng.uniform(-30, 0, 200)
    if name in ("asin", "acos"):
        near_one = 1 - 10.0 ** rng.uniform(-7, 0, 500)
        middle = [0.5, -0.5, np.nextafter(np.float32(0.5), np.float32(1)), 1.0, -1.0]
        return (np.concatenate([rng.uniform(-1, 1, 1500), tiny, near_one, -near_one, middle]),)
    wide = 10.0 ** rng.uniform(-30, 30, 1500) * rng.choice([-1.0, 1.0], 1500)
    x = np.concatenate([rng.uniform(-5, 5, 1500), tiny, wide])
    return (x,) if name == "atan" else (x, rng.permutation(x))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_errors_are_within_the_stated_bound(name, dtype, rng):
    given = [x.astype(dtype) for x in arguments(name, rng)]
    smallest = float(np.finfo(dtype).smallest_normal)
    for got, *operands in zip(computed(name, *given), *given, strict=True):
        exact = getattr(mpmath, name)(*[mpmath.mpf(float(x)) for x in operands])
        size = max(abs(float(exact)), smallest)
        error = abs(mpmath.mpf(float(got)) - exact) / float(np.spacing(dtype(size)))
        assert error <= BOUNDS[name][dtype is np.float64], operands


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_infinities_nan_and_the_largest_numbers(dtype):
    info = np.finfo(dtype)
    some = [
        0.0,
        1.0,
        math.inf,
        math.nan,
        info.max,
        info.max / 2,
        info.tiny,
        info.smallest_subnormal,
    ]
    values = np.array([sign * float(x) for x in some for sign in (1, -1)] * 20, dtype)
    y, x = (np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(values, values[:16]))
    for name, given in (("atan2", (y, x)), ("atan", (y,))):
        got = computed(name, *given)
        exact = {"atan2": np.arctan2, "atan": np.arctan}[name](*[v.astype(float) for v in given])
        np.testing.assert_allclose(got, exact.astype(dtype), rtol=4 * float(info.eps))
        is_number = ~np.isnan(exact)
        assert (np.signbit(got) == np.signbit(exact))[is_number].all()
    for name in ("asin", "acos"):  # of most of these there is none
        got, inside = computed(name, y), np.abs(y) <= 1
        assert np.isnan(got[~inside]).all() and not np.isnan(got[inside]).any()
    assert computed("acos", np.array([1.0, -1.0], dtype)).tolist() == [0.0, dtype(math.pi)]
    assert np.signbit(computed("asin", np.array([0.0, -0.0], dtype))).tolist() == [False, True]


def angles(x, y):
    return tinytorch.maximum(tinytorch.atan2(x, y), tinytorch.asin(x) - tinytorch.atan(y))


def test_a_program_of_them_gives_the_bits_of_the_ops(rng):
    a, b = (rng.uniform(-1, 1, (7, 300)).astype(np.float32) for _ in range(2))
    with using_backend("optimized"):
        x, y = map(tinytorch.from_numpy, (a, b))
        module = {"angles": angles}
        tinytorch.functions.fusing.fuse(module, "angles")
        for function in (module["angles"], tinytorch.compile(angles)):
            np.testing.assert_array_equal(function(x, y).numpy(), angles(x, y).numpy())
