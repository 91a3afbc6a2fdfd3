from __future__ import annotations

import math

import numpy as np
import pytest

from tinytorch.backends import find_backend, reference
from tinytorch.backends.blocked.elementwise import compile_op, compile_same_shape, fuse
from tinytorch.op import OPS

SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 2.5, 88.0, 1e30, -1e30, np.inf, -np.inf, np.nan])


@pytest.mark.slow_beyond(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["neg", "exp", "log", "tanh", "sigmoid", "relu", "sqrt", "abs"])
def test_unary_ops_mean_what_the_table_says(name, dtype):
    x = SPECIAL.astype(dtype)
    expected = np.array([OPS[name].scalar(float(v)) for v in x]).astype(dtype)
    out = compile_op(OPS[name])(x)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, expected, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "relu_backward"])
def test_binary_ops_mean_what_the_table_says(name):
    a, b = np.meshgrid(SPECIAL, SPECIAL)
    expected = [OPS[name].scalar(float(u), float(v)) for u, v in zip(a.flat, b.flat, strict=True)]
    np.testing.assert_array_equal(compile_op(OPS[name])(a, b).reshape(-1), expected)


def test_operands_broadcast(rng):
    a, b = rng.standard_normal((3, 1, 4)), rng.standard_normal((5, 1))
    add = compile_op(OPS["add"])
    np.testing.assert_array_equal(add(a, b), a + b)
    np.testing.assert_array_equal(add(a[::-1].T, 2.0), a[::-1].T + 2.0)
    assert add(a[:0], 1.0).shape == (0, 1, 4)
    out = add(a.astype(np.float32), 0.1)
    assert out.dtype == np.float32


def test_fused_kernel_equals_its_parts(rng):
    x, b = rng.standard_normal((600, 1000)).astype(np.float32), np.float32(0.1)
    fused = fuse(OPS["relu"], OPS["add"])
    np.testing.assert_array_equal(fused(x, b), np.maximum(x + b, 0))
    with pytest.raises(ValueError, match="add has 2 inputs"):
        fuse(OPS["add"], OPS["relu"])


def test_backend_leaves_other_dtypes_to_numpy():
    backend = find_backend("blocked")
    for op, *operands in [
        ("add", np.arange(3), np.arange(3)),
        ("lt", np.arange(3.0), 1.0),
        ("logical_not", np.array([True, False])),
        ("where", np.array([True, False]), np.arange(2), 7),
    ]:
        out = backend.elementwise(OPS[op], *operands)
        expected = reference.find_kernel(OPS[op])(*operands)
        assert out.dtype == expected.dtype
        np.testing.assert_array_equal(out, expected)


def test_where_selects_floats_by_a_bool_condition():
    out = find_backend("blocked").elementwise(
        OPS["where"], np.array([True, False]), np.array([1.0, 2.0], np.float32), 5.0
    )
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, [1, 5])


def _tried(a):
    try:
        return 1 / (1 + math.exp(-a))
    except OverflowError as _:
        return 0.0


@pytest.mark.parametrize("compile_", [compile_op, compile_same_shape])
def test_a_definition_that_cannot_be_compiled_is_looped(compile_, monkeypatch):
    """As on the optimized backend: numba's own error says nothing of the op."""
    monkeypatch.setattr(OPS["sigmoid"], "scalar", _tried)
    run = compile_.__wrapped__(OPS["sigmoid"])
    with pytest.warns(RuntimeWarning, match="sigmoid runs as a slow loop in Python, as its "):
        np.testing.assert_allclose(run(np.array([-1000.0, 0.0])), [0.0, 0.5])
