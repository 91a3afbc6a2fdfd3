"""Composed functions as one op: where that happens, where it must not, and what stays the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.op_names import OpNames
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.errors import AutogradError, ShapeError
from tinytorch.functions import fusing
from tinytorch.functions.fusing import Fused
from tinytorch.op import OPS
from tinytorch.state import using_backend

# name: (function, tensors); what follows the tensors is in the function
CASES = {
    "tan": (tinytorch.tan, 1),
    "asinh": (tinytorch.asinh, 1),
    "erfc": (tinytorch.erfc, 1),
    "sinc": (tinytorch.sinc, 1),
    "nan_to_num": (tinytorch.nan_to_num, 1),
    "trunc": (tinytorch.trunc, 1),
    "hypot": (tinytorch.hypot, 2),
    "logaddexp": (tinytorch.logaddexp, 2),
    "xlogy": (tinytorch.xlogy, 2),
    "copysign": (tinytorch.copysign, 2),
    "lerp": (lambda a, b: tinytorch.lerp(a, b, 0.3), 2),
    "isinf": (tinytorch.isinf, 1),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.3), 1),
    "silu": (F.silu, 1),
    "mish": (F.mish, 1),
    "softplus": (F.softplus, 1),
    "hardtanh": (F.hardtanh, 1),
    "hardswish": (F.hardswish, 1),
}
DOUBLES = ("tan", "erfc", "logaddexp", "silu")
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-30, -1e30, 3.0, 2e5, 1e-42]


def on(backend, function, arrays, order=2):
    """Value, first and second derivatives (None where there is none), and the result itself."""
    with using_backend(backend):
        tensors = [tinytorch.tensor(a, requires_grad=True) for a in arrays]
        out = function(*tensors)
        found = [out.detach().numpy()]
        if out.requires_grad:
            options = {"create_graph": True, "allow_unused": True}
            first = tinytorch.autograd.grad(out, tensors, tinytorch.ones_like(out), **options)
            found += [g if g is None else g.detach().numpy() for g in first]
            total = sum(g.sum() for g in first if g is not None)
            if order == 2 and getattr(total, "requires_grad", False):
                second = tinytorch.autograd.grad(total, tensors, allow_unused=True)
                found += [g if g is None else g.numpy() for g in second]
    return found, out


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, np.float32) for name in CASES),
        *(pytest.param(name, np.float64, marks=pytest.mark.slow) for name in DOUBLES),
    ],
)
def test_values_and_gradients_are_those_of_the_ops_one_by_one(name, dtype, rng):
    """Bit by bit those on the same backend, and close to those of NumPy.

    A second derivative is a sum over the first ones, each fused: rounded in another order.
    """
    function, count = CASES[name]
    one_by_one = OptimizedBackend()
    vars(one_by_one)["fusible"] = frozenset()
    arrays = [(np.abs(rng.standard_normal((37, 9))) + 0.2).astype(dtype) for _ in range(count)]
    expected, apart = on(one_by_one, function, arrays)
    found, together = on("optimized", function, arrays)
    by_numpy, _ = on("numpy", function, arrays)
    if together.history is not None:
        assert isinstance(together.history.op, Fused) and not isinstance(apart.history.op, Fused)
    tolerance = 3e-4 if dtype is np.float32 else 1e-11
    for i, (a, b, c) in enumerate(zip(found, expected, by_numpy, strict=False)):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype and a.shape == b.shape
            if i <= count:
                np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, b, rtol=tolerance / 30, atol=tolerance / 30)
            np.testing.assert_allclose(a, c, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_special_values_and_their_signs(name):
    function, count = CASES[name]
    grid = np.meshgrid(*[SPECIAL] * count) if count < 3 else [SPECIAL, SPECIAL[::-1], SPECIAL]
    arrays = [np.asarray(a, np.float32) for a in grid]
    (expected, *_), _ = on("numpy", function, arrays)
    (found, *_), _ = on("optimized", function, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-7)
    exact = np.isfinite(expected) & (np.abs(expected) < 1e-37)
    where = exact & (np.abs(found) == 0) & (np.abs(expected) == 0)
    assert np.array_equal(np.signbit(found[where]), np.signbit(expected[where]))


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize(
    "shapes", [((0, 3), (0, 3)), ((), ()), ((4, 1), (5,)), ((2, 3, 4), (3, 1))]
)
def test_shapes_that_broadcast_and_their_gradients(shapes, rng):
    arrays = [np.asarray(rng.standard_normal(s), np.float32) for s in shapes]
    expected, _ = on("numpy", tinytorch.hypot, arrays, order=1)
    found, out = on("optimized", tinytorch.hypot, arrays, order=1)
    assert isinstance(out.history.op, Fused)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_transposed_and_strided_operands(rng):
    x = rng.standard_normal((6, 10)).astype(np.float32)
    for view in (x.T, x[::2, ::3], x[::-1]):
        with using_backend("optimized"):
            found = F.silu(tinytorch.from_numpy(view)).numpy()
        np.testing.assert_allclose(found, view / (1 + np.exp(-view)), rtol=1e-5)


def test_other_dtypes_run_the_function_itself():
    with using_backend("optimized"):
        assert tinytorch.trunc(tinytorch.tensor([3, -3])).dtype is tinytorch.int64
        mixed = tinytorch.hypot(tinytorch.tensor([3.0]), tinytorch.tensor([4.0]).double())
        assert mixed.dtype is tinytorch.float64 and mixed.item() == 5
        assert tinytorch.tan(tinytorch.tensor([0])).tolist() == [0.0]


def test_a_graph_and_a_mode_see_the_ops_of_the_table():
    with using_backend("optimized"):
        x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
        y = F.silu(x)  # fused, and its gradient is asked for below a mode
        with OpNames() as seen:
            F.softplus(x)
            y.sum().backward()
    assert {"exp", "log1p", "sigmoid"} <= set(seen.names) <= OPS.keys()
    assert not any(isinstance(op, Fused) for op in OPS.values())


def test_kernels_of_a_subclass_are_not_passed_over():
    class Mine(OptimizedBackend):
        calls = 0

        def sigmoid(self, a):
            Mine.calls += 1
            return 1 / (1 + np.exp(-a))

    with using_backend(Mine()):
        F.silu(tinytorch.ones(3))
    assert Mine.calls == 1


def test_another_number_needs_no_other_program():
    x = tinytorch.tensor([-1.0, 1.0], requires_grad=True)
    with using_backend("optimized"):
        results = [F.leaky_relu(x, slope) for slope in (0.1, 0.25)]
        gradients = [tinytorch.autograd.grad(r.sum(), x)[0].tolist() for r in results]
    first, second = (r.history.op for r in results)
    assert first is second
    assert gradients[0] == pytest.approx([0.1, 1]) and gradients[1] == [0.25, 1]


def test_the_two_zeros_are_two_numbers():
    with using_backend("optimized"):
        x = tinytorch.tensor([2.0])
        signs = [tinytorch.copysign(x, z).item() for z in (0.0, -0.0, 0.0)]
    assert signs == [2.0, -2.0, 2.0]


def test_what_is_cut_off_stays_without_gradient():
    # hardtanh has the gradient 0 at its bounds, by a detached copy
    with using_backend("optimized"):
        x = tinytorch.tensor([-1.0, 0.5, 1.0], requires_grad=True)
        F.hardtanh(x).sum().backward()
    assert x.grad.tolist() == [0, 1, 0]


def test_an_input_that_was_overwritten_is_noticed():
    with using_backend("optimized"):
        x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
        y = x * 1
        out = F.silu(y)
        with tinytorch.no_grad():
            y.mul_(2)
        with pytest.raises(AutogradError, match="overwritten"):
            out.sum().backward()


def test_errors_are_those_of_the_function():
    a, b = tinytorch.ones(2), tinytorch.ones(3)
    said = []
    for backend in ("numpy", "optimized"):
        with using_backend(backend), pytest.raises(ShapeError) as error:
            tinytorch.hypot(a, b)
        said.append(str(error.value))
    assert said[0] == said[1]
    with using_backend("optimized"), pytest.raises(ValueError, match="lambd"):
        F.softshrink(tinytorch.ones(2), -1.0)


def test_arguments_by_name_and_in_place(rng):
    with using_backend("optimized"):
        x = tinytorch.tensor([-1.0, 1.0])
        assert F.elu(x, alpha=0.5).tolist() == F.elu(x, 0.5).tolist()
        named = tinytorch.lerp(x, end=x * 2, weight=0.5)
        assert named.tolist() == [-1.5, 1.5]
        y = x.clone()
        assert F.silu(y, inplace=True) is y
        assert y.tolist() == F.silu(x).tolist()


def test_a_function_that_looks_at_values_is_run_as_it_is():
    def by_value(x):
        return x * 2 if float(x.sum()) > 0 else x * 3

    def by_reduction(x):
        return x - x.sum()

    for function, expected in ((by_value, [2.0, 4.0]), (by_reduction, [-2.0, -1.0])):
        module = {"function": function}
        fusing.fuse(module, "function")
        with using_backend("optimized"):
            assert module["function"](tinytorch.tensor([1.0, 2.0])).tolist() == expected


def test_fuse_names_a_function_that_is_there():
    with pytest.raises(KeyError):
        fusing.fuse({}, "missing")


def test_numbers_by_name_are_told_apart():
    x = tinytorch.tensor([-1.0, 0.25, 2.0])
    y = tinytorch.tensor([1.0, -1.0, 1.0])
    with using_backend(OptimizedBackend()):
        for value in (0.0, -0.0, 1.0, 0.0):
            out = tinytorch.addcmul(tinytorch.tensor([-0.0] * 3), x, y, value=value)
            with using_backend("numpy"):
                expected = tinytorch.addcmul(tinytorch.tensor([-0.0] * 3), x, y, value=value)
            assert out.numpy().tobytes() == expected.numpy().tobytes(), value
        for slope in (0.0, -0.0, 0.5):
            named = F.leaky_relu(x, negative_slope=slope).numpy()
            assert named.tobytes() == F.leaky_relu(x, slope).numpy().tobytes()
        assert tinytorch.lerp(x, weight=0.5, end=y).tolist() == [0.0, -0.375, 1.5]


def test_hypot_of_the_least_integer_is_not_negative() -> None:
    least = tinytorch.tensor([-(2**31)], dtype=tinytorch.int32)
    assert tinytorch.hypot(least, tinytorch.tensor([-0.0])).tolist() == [2.0**31]
