"""sin and cos: errors in ulp, near multiples of pi/2 as well, and arguments beyond the limit."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import tinytorch
from tinytorch.backends.optimized.elementwise.trigonometry import LIMIT
from tinytorch.state import using_backend

mpmath.mp.prec = 200


def computed(name, x):
    with using_backend("optimized"):
        return getattr(tinytorch, name)(tinytorch.from_numpy(x)).numpy()


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_errors_are_within_the_stated_bound(name, dtype, rng):
    near = np.arange(1, 700) * (math.pi / 2)  # where nearly all bits cancel
    tiny = 10.0 ** rng.uniform(-40, 0, 300)
    wide = rng.uniform(-LIMIT, LIMIT, 700)
    x = np.concatenate([near, near * 97, tiny, -tiny, wide, rng.uniform(-10, 10, 700)])
    x = x[np.abs(x) <= LIMIT].astype(dtype)
    for got, argument in zip(computed(name, x), x, strict=True):
        exact = getattr(mpmath, name)(mpmath.mpf(float(argument)))
        size = max(abs(float(exact)), float(np.finfo(dtype).smallest_normal))
        error = abs(mpmath.mpf(float(got)) - exact) / float(np.spacing(dtype(size)))
        assert error <= 0.8, argument


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arguments_beyond_the_limit_and_special_ones(dtype):
    largest = np.finfo(dtype).max
    values = [LIMIT * 1.01, -1e10, 1e22, largest, math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0]
    x = np.concatenate([np.linspace(-9, 9, 700), values]).astype(dtype)  # the last block has them
    for name in ("sin", "cos"):
        got = computed(name, x).astype(np.float64)
        for value, argument in zip(got, x.astype(np.float64), strict=True):
            if not math.isfinite(argument):
                assert math.isnan(value)
                continue
            exact = float(getattr(mpmath, name)(mpmath.mpf(float(argument))))
            assert abs(value - exact) <= 2 * float(np.finfo(dtype).eps) * abs(exact), argument
    signs = np.signbit(computed("sin", np.array([0.0, -0.0], dtype)))
    assert signs.tolist() == [False, True]


def test_a_small_argument_is_its_own_sine():
    x = np.array([1e-42, -1e-42, 1e-20, 2.0**-14], np.float32)
    assert computed("sin", x).tolist() == x.tolist()


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    "shapes", [((3, 700), (700,)), ((4, 1), (4, 300)), ((2, 300, 3), (300, 1))]
)
def test_blocks_of_broadcast_operands(shapes, rng):
    # tan is a program of sin and cos; xs beyond the limit in some of the blocks only
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    a.flat[-1] = 3e7
    with using_backend("optimized"):
        x, y = map(tinytorch.from_numpy, (a, b))
        module = {"wave": lambda x, y: tinytorch.sin(x) * y + tinytorch.cos(y)}
        tinytorch.functions.fusing.fuse(module, "wave")
        found = module["wave"](x, y).numpy()
    a, b = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(found, np.sin(a) * b + np.cos(b), rtol=1e-5, atol=1e-6)
