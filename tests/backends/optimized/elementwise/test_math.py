"""Errors of the polynomials in units in the last place (ulp), against a wider type."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from numba.core.caching import NullCache

from tinytorch.backends.optimized.elementwise import logarithms, math as polynomials
from tinytorch.jit.library import JIT, kernel

mpmath.mp.prec = 120
FUNCTIONS = {**vars(polynomials), **vars(logarithms)}
COUNT = 20_000 if JIT else 300
# name: (allowed error in float32, in float64, range in float32, range in float64)
BOUNDS = {
    "exp": (1.1, 1.1, (-103, 88.7), (-745, 709.7)),
    "exp_of_negative": (1.1, 1.1, (-87.2, 0), (-708, 0)),
    "exp2": (1.1, 1.1, (-149, 127.9), (-1074, 1023.9)),
    "expm1": (2.0, 2.0, (-30, 88.7), (-50, 709.7)),
    "log": (1.0, 1.0, (0, 1e3), (0, 1e3)),
    "log1p": (1.0, 1.0, (-1, 1e3), (-1, 1e3)),
    "log2": (1.2, 1.2, (0, 1e3), (0, 1e3)),
    "log10": (1.2, 1.2, (0, 1e3), (0, 1e3)),
    "tanh": (2.5, 3.0, (-12, 12), (-25, 25)),
    "erf": (6.0, 1.5, (-5, 5), (-7, 7)),
}
EXACT = {
    "exp_of_negative": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
}


def loop(name):
    function = FUNCTIONS[name]

    @kernel
    def run(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    def over(x):
        out = np.empty_like(x)
        run(x, out)
        return out

    return over


def ulps(out, x, name):
    """Errors in units in the last place of the exact result (of the smallest normal, below it)."""
    exact = EXACT.get(name) or getattr(mpmath, name)
    info = np.finfo(x.dtype)
    errors = []
    for got, argument in zip(out, x, strict=True):
        true = exact(mpmath.mpf(float(argument)))
        size = max(abs(x.dtype.type(float(true))), info.smallest_normal)
        errors.append(float(abs(mpmath.mpf(float(got)) - true) / float(np.spacing(size))))
    return np.array(errors)


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_error_is_within_the_stated_bound(name, dtype, rng):
    single, double, range_single, range_double = BOUNDS[name]
    low, high = range_single if dtype is np.float32 else range_double
    count = COUNT // 4 if dtype is np.float64 or name == "erf" else COUNT
    near = np.clip(rng.uniform(-1, 1, count), low, high)
    tiny = near * 10.0 ** rng.uniform(-30, 0, count)
    x = np.concatenate([rng.uniform(low, high, count), near, np.clip(tiny, low, high)])
    x = x.astype(dtype)
    x = x[x > low] if name.startswith("log") else x
    errors = ulps(loop(name)(x), x, name)
    worst = errors.argmax()
    assert errors[worst] <= (single if dtype is np.float32 else double), x[worst]


INF, NAN = math.inf, math.nan
SPECIAL = {
    "exp": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (1e9, INF), (-1e9, 0.0)],
    "exp_of_negative": [(-INF, 0.0), (0.0, 1.0), (-1e9, 0.0)],
    "exp2": [(-INF, 0.0), (INF, INF), (-0.0, 1.0), (-3.0, 0.125), (127.0, 2.0**127), (1e9, INF)],
    "expm1": [(-INF, -1.0), (INF, INF), (0.0, 0.0), (-0.0, -0.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log2": [(0.0, -INF), (1.0, 0.0), (0.5, -1.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log10": [(-0.0, -INF), (1.0, 0.0), (1000.0, 3.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log1p": [(-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-2.0, NAN)],
    "tanh": [(-INF, -1.0), (INF, 1.0), (0.0, 0.0), (-0.0, -0.0), (50.0, 1.0)],
    "erf": [(-INF, -1.0), (INF, 1.0), (0.0, 0.0), (-0.0, -0.0), (50.0, 1.0), (-6.0, -1.0)],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype):
    # many copies, so that the vector loop computes them and not only what follows it
    x, expected = np.repeat(np.array([*SPECIAL[name], (NAN, NAN)], dtype).T, 37, axis=1)
    out = loop(name)(np.ascontiguousarray(x))
    tolerance = np.finfo(dtype).eps if name == "erf" else 0  # erf(-6) is not quite -1 in float64
    np.testing.assert_allclose(out, expected, rtol=tolerance)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(out[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("name", ["exp", "exp2", "exp_of_negative", "expm1", "log", "log2", "tanh"])
def test_nan_with_a_payload_stays_nan(name):
    # as R writes a missing value: bits of the mantissa must not be taken for those of an exponent
    missing = np.array([0x7FF00000000007A2, 0xFFF80000000007A2], np.uint64).view(np.float64)
    single = np.array([0x7F800001, 0x7FC007A2, 0xFFC007A2], np.uint32).view(np.float32)
    for x in (missing, single):
        assert np.isnan(loop(name)(np.repeat(x, 37))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradual_underflow_of_exp_and_log_of_subnormals(dtype):
    smallest = np.finfo(dtype).smallest_subnormal
    x = np.array([smallest, 10 * smallest, np.finfo(dtype).smallest_normal], dtype)
    np.testing.assert_allclose(loop("log")(x), [math.log(float(v)) for v in x], rtol=1e-6)
    back = loop("exp")(np.log(x[1:]))
    np.testing.assert_allclose(back, x[1:], rtol=0.06)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_two_and_ten_have_whole_logarithms(dtype):
    info = np.finfo(dtype)
    of_two = np.arange(info.minexp - info.nmant, info.maxexp)
    np.testing.assert_array_equal(loop("log2")(np.ldexp(dtype(1), of_two)), of_two)
    of_ten = np.arange(-37, 39) if dtype is np.float32 else np.arange(-307, 309)
    powers = np.array([float(f"1e{k}") for k in of_ten], dtype)
    np.testing.assert_array_equal(loop("log10")(powers), of_ten)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_key_keeps_the_order(dtype, rng):
    values = np.array([-np.inf, -1e30, -1.0, -1e-40, 0.0, 1e-40, 0.5, 1.0, 1e30, np.inf], dtype)

    @kernel
    def keys(x, out, back):
        for i in range(x.size):
            out[i] = polynomials.order_key(x[i])
            back[i] = polynomials.from_order_key(polynomials.order_key(x[i]))

    out, back = np.empty(values.size, np.int64), np.empty_like(values)
    keys(values, out, back)
    assert (np.diff(out) > 0).all()
    np.testing.assert_array_equal(back, values)


@pytest.mark.skipif(not JIT, reason="NUMBA_DISABLE_JIT is set")
@pytest.mark.parametrize(
    "name", ["exp", "exp_of_negative", "expm1", "log", "log1p", "log10", "tanh", "erf"]
)
def test_loops_compile_to_vector_instructions(name):
    function = FUNCTIONS[name]

    @kernel
    def run(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    run._cache = NullCache()  # what comes from the disk cache has no LLVM text to look at
    x = np.ones(4, np.float32)
    run(x, x.copy())
    # a machine without vector instructions for four floats would be none that numba supports
    assert "<4 x float>" in run.inspect_llvm(run.signatures[0]) or any(
        f"<{lanes} x float>" in run.inspect_llvm(run.signatures[0]) for lanes in (8, 16)
    )
