from __future__ import annotations

import math

import numpy as np
import pytest

from tinytorch import ops
from tinytorch.backends.optimized.elementwise.scalars import compile_scalar
from tinytorch.jit.library import JIT, kernel

FACTOR = 3.0


def helper(x):
    return FACTOR * x


def calls_a_helper(x):
    return helper(x) + math.pi


def many_constructs(x, y):
    if isinstance(x, int) and isinstance(y, int):
        raise ValueError("never compiled")
    if x > 1:
        return x**2 - y
    z = max(x, 0) if y < 0 else min(abs(x), 2)
    return math.floor(z) + round(y) + math.sqrt(4) + math.sin(0)


def returns_a_bool(x):
    return x > 0


def uses_an_unknown_name(x):
    return nowhere_defined(x)  # noqa: F821


def annotated(x: float, /) -> float:
    """With a docstring, and everything."""
    return x * 2


def call(compiled, *arguments):
    """A definition is inlined into kernels; from Python it is called through one."""

    @kernel
    def one(x):
        return compiled(x)

    @kernel
    def two(x, y):
        return compiled(x, y)

    entry = one if len(arguments) == 1 else two
    return entry(*arguments), entry


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("function", [calls_a_helper, returns_a_bool, annotated])
def test_result_has_the_arrays_type(function, real):
    out, entry = call(compile_scalar(function, real), real(0.75))
    if JIT:
        returned = entry.overloads[entry.signatures[0]].signature.return_type
        assert str(returned) == np.dtype(real).name
    assert out == pytest.approx(float(function(0.75)), rel=1e-6)


@pytest.mark.parametrize("x", [-2.5, -0.5, 0.5, 1.5, 7.0])
@pytest.mark.parametrize("y", [-1.25, 0.25, 2.5])
def test_constructs_mean_the_same(x, y):
    compiled = compile_scalar(many_constructs, np.float64)
    assert call(compiled, x, y)[0] == pytest.approx(many_constructs(x, y))


def test_an_unknown_name_is_refused():
    with pytest.raises(TypeError, match=r"uses_an_unknown_name, line \d+: cannot compile 'nowhere"):
        compile_scalar(uses_an_unknown_name, np.float32)


def test_only_functions_are_definitions():
    with pytest.raises(TypeError, match="a scalar definition is a Python function"):
        compile_scalar(math.exp, np.float32)


def test_lambdas_and_closures_are_compiled_as_they_stand():
    k = 2.0
    assert call(compile_scalar(lambda x: x + 1, np.float32), np.float32(1))[0] == 2
    assert call(compile_scalar(lambda x: x * k, np.float32), np.float32(3))[0] == 6


def test_inside_a_kernel():
    scalar = compile_scalar(calls_a_helper, np.float32)

    @kernel
    def run(x, out):
        for i in range(x.size):
            out[i] = scalar(x[i])

    x = np.linspace(-1, 1, 33, dtype=np.float32)
    out = np.empty_like(x)
    run(x, out)
    np.testing.assert_allclose(out, 3 * x + np.float32(math.pi), rtol=1e-6)


def exp_of_minus_magnitude(x, y):
    return math.exp(-abs(x)) + y


def exp_of_a_sum(x, y):
    return math.exp(-abs(x) + y)


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_only_the_exp_of_a_whole_negative_magnitude_is_the_faster_one(real):
    # the faster one is 0 where the other is subnormal, and wrong above 0
    deep = real(np.log(np.finfo(real).smallest_normal) - 2)
    out, _ = call(compile_scalar(exp_of_minus_magnitude, real), deep, real(0))
    assert out == 0
    out, _ = call(compile_scalar(exp_of_a_sum, real), deep, real(0))
    assert 0 < out < np.finfo(real).smallest_normal
    out, _ = call(compile_scalar(exp_of_a_sum, real), real(1), real(60))
    assert out == pytest.approx(math.exp(59), rel=1e-5)


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_division_is_the_processors_and_means_what_the_table_says(real):
    largest, least = np.finfo(real).max, np.finfo(real).smallest_subnormal
    some = [0.0, -0.0, 1.0, -3.0, math.inf, -math.inf, math.nan, largest, least]
    _, divide = call(compile_scalar(ops.div.scalar, real), real(1), real(1))
    for a in some:
        for b in some:
            with np.errstate(all="ignore"):
                wanted = real(ops.div.scalar(float(a), float(b)))
            got = divide(real(a), real(b))
            np.testing.assert_equal(got, wanted)
            assert math.isnan(wanted) or np.signbit(got) == np.signbit(wanted), (a, b)
