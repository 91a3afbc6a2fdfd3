from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.graph import trace

UNARY = [
    *("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "log"),
    *("log1p", "log2", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin"),
    *("sqrt", "square", "tanh"),
]
BINARY = ["add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
UNDEFINED_FOR_BOOL = ("-", "//", "%", "**")
EDGES = np.array([0.0, -0.0, 1, -1, 0.5, -2.5, 30, np.inf, -np.inf, np.nan], np.float32)
DTYPES = ["bool", "int32", "int64", "float32", "float64"]


def values(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Small positive numbers, so that every operator is defined."""
    return np.asarray(rng.integers(1, 5, shape)).astype(dtype)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("form", ["function", "method"])
def test_unary_functions(name, form):
    theirs = getattr(torch, name)
    if form == "function":
        assert_like_torch(getattr(tinytorch, name), theirs, EDGES)
    else:
        assert_like_torch(lambda x: getattr(x, name)(), theirs, EDGES)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["naive", "numpy", "blocked", "optimized"])
@pytest.mark.parametrize("name", ["log2", "log10"])
def test_powers_have_whole_logarithms(name, backend, dtype):
    """`int(log10(1000))` is 3, and not what is left of 2.9999999999999996."""
    exponents = np.arange(-30, 31)
    base = 2 if name == "log2" else 10
    powers = [float(Fraction(base) ** int(k)) for k in exponents]
    with tinytorch.using_backend(backend):
        found = getattr(tinytorch, name)(tinytorch.tensor(powers, dtype=dtype)).numpy()
    if name == "log10" and dtype == "float32" and backend in ("numpy", "blocked"):
        np.testing.assert_allclose(found, exponents, rtol=2e-7)  # NumPy's vector code rounds so
    else:
        np.testing.assert_array_equal(found, exponents)


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("isfinite", "isinf", "isnan")])
def test_unary_functions_of_integers_have_the_dtype_of_pytorch(name):
    if name in ("floor", "ceil", "round"):
        assert_like_torch(getattr(tinytorch, name), getattr(torch, name), np.array([-2, 0, 3]))
    else:
        assert_like_torch(getattr(tinytorch, name), getattr(torch, name), np.array([1, 2, 3]))


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_broadcast(name, rng):
    a = rng.uniform(0.5, 3, (4, 1, 3)).astype(np.float32)
    b = rng.uniform(0.5, 3, (2, 1)).astype(np.float32)
    assert_like_torch(getattr(tinytorch, name), _with_gradient(name), a, b)
    assert_like_torch(lambda x, y: getattr(x, name)(y), _with_gradient(name), a, b)


def _with_gradient(name: str):
    if name == "floor_divide":  # PyTorch's own has no gradient
        return lambda a, b: torch.div(a, b, rounding_mode="floor")
    return getattr(torch, name)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name):
    assert_like_torch(getattr(tinytorch, name), getattr(torch, name), EDGES, EDGES[::-1].copy())
    assert_like_torch(lambda x: getattr(x, name)(1), None, EDGES)


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("second", [*DTYPES, "bool scalar", "int scalar", "float scalar"])
@pytest.mark.parametrize("first", DTYPES)
def test_promotion(symbol, first, second, rng):
    operator = OPERATORS[symbol]
    a = values(first, (3,), rng)
    b = {"bool scalar": True, "int scalar": 2, "float scalar": 2.5}.get(second)
    shapes = [(3,), ()] if b is None else [None]
    for shape in shapes:
        other = b if shape is None else values(second, shape, rng)
        for x, y in ((a, other), (other, a)):
            if symbol in UNDEFINED_FOR_BOOL and {first, second} <= {"bool", "bool scalar"}:
                with pytest.raises(DTypeError, match="is not defined for bool"):
                    operator(_ours(x), _ours(y))
                continue
            try:
                wanted = operator(_plain(x), _plain(y))
            except RuntimeError:  # PyTorch subtracts no bool; we do, if the other is a number
                assert symbol == "-"
                common = (_plain(x) + _plain(y)).dtype
                wanted = torch.as_tensor(x).to(common) - torch.as_tensor(y).to(common)
            got = operator(_ours(x), _ours(y))
            assert got.dtype.name == str(wanted.dtype).removeprefix("torch.")
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6)


def _plain(x):
    return torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x


def _ours(x):
    return tinytorch.tensor(x) if isinstance(x, np.ndarray) else x


@given(
    a=st.floats(width=32),
    b=st.floats(width=32),
    symbol=st.sampled_from(["+", "-", "*", "/", "**", "%", "==", "<"]),
)
def test_operators_of_any_two_floats(a, b, symbol):
    x, y = np.array([a], np.float32), np.array([b], np.float32)
    with np.errstate(all="ignore"):
        got = OPERATORS[symbol](tinytorch.tensor(x), tinytorch.tensor(y)).numpy()
    wanted = OPERATORS[symbol](torch.from_numpy(x), torch.from_numpy(y)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-40)


def test_powers(rng):
    x = rng.uniform(-2, 2, (5,)).astype(np.float32)
    for exponent in (0, 1, 2, 3, -1, 0.5, 2.0, -2.5):
        assert_like_torch(lambda x, e=exponent: x**e, None, np.abs(x) + 0.5)
    for exponent in (0, 1, 2, 3, 2.0, 3.0):
        assert_like_torch(lambda x, e=exponent: x**e, None, x)
    assert_like_torch(lambda x: 2**x, None, x)
    assert_like_torch(lambda x: x**2, None, np.array([1, 2, 3]))
    assert_like_torch(lambda x: x**2.0, None, np.array([1, 2, 3]))
    base, exponent = np.array([0.0, 0, 0, 2, -2]), np.array([0.0, 1, 2, 0, 3])
    assert_like_torch(lambda x, y: x**y, None, base, exponent)


def test_alpha(rng):
    a, b = rng.standard_normal((2, 3)).astype(np.float32)
    assert_like_torch(lambda x, y: x.add(y, alpha=3), None, a, b)
    assert_like_torch(lambda x, y: x.sub(y, alpha=0.5), None, a, b)
    assert_like_torch(lambda x: x.add(3, alpha=2), None, a)
    integers = np.array([100, -100, 3], "int8")  # twice 100 is no int8
    assert_like_torch(lambda x, y: x.add(y, alpha=2), None, a, integers)
    assert_like_torch(lambda x, y: x.clone().sub_(y, alpha=2), None, a, integers)
    true = np.array([True, False, True])
    assert_like_torch(lambda x, y: x.add(y, alpha=2), None, true, ~true)
    assert_like_torch(lambda x, y: x.clone().add_(y, alpha=True), None, true, ~true)
    assert_like_torch(lambda x: x.add(True, alpha=2), None, true)
    assert_like_torch(lambda x, y: x.add(y, alpha=2), None, true, integers)


@pytest.mark.parametrize("alpha", [3, 0.25, -2.5, 0.0])
def test_multiples_are_added_as_before_once_they_are_replayed(alpha, rng):
    with tinytorch.using_backend("optimized"):
        for _ in range(40):
            a, b = rng.standard_normal((2, 3, 4)).astype(np.float32)
            for name in ("add", "sub"):
                assert_like_torch(lambda x, y, f=name: getattr(x, f)(y, alpha=alpha), None, a, b)


@pytest.mark.parametrize("alpha", [2.0, 2.5, True])
def test_alpha_of_another_kind_than_the_sum_is_refused(alpha):
    x = tinytorch.tensor([1, 2])
    with pytest.raises(DTypeError, match=r"alpha=.* beside operands whose sum is int64"):
        x.add(x, alpha=alpha)
    with pytest.raises(RuntimeError):
        torch.tensor([1, 2]).add(torch.tensor([1, 2]), alpha=alpha)


def test_bounds_of_another_type_are_not_cut_to_the_numbers_of_this_one():
    x, low = np.array([-3, 5], "int8"), np.array([300, 2])
    assert_like_torch(lambda x, low: x.clamp(low), None, x, low)
    assert_like_torch(lambda x, high: x.clamp(max=high), None, x, low / 8)


def test_a_copied_sign_has_the_type_of_both():
    for kinds in (("int32", "float64"), ("float32", "float64"), ("float64", "int32")):
        a, b = (tinytorch.tensor([3, -3]).to(kind) for kind in kinds)
        assert a.copysign(b).dtype is tinytorch.float64


def test_ties_share_the_gradient():
    a, b = np.array([1.0, 2, 3, np.nan, 5]), np.array([1.0, 3, 2, 4, np.nan])
    assert_like_torch(tinytorch.maximum, torch.maximum, a, b)
    assert_like_torch(tinytorch.minimum, torch.minimum, a, b)


@pytest.mark.parametrize("bounds", [(-1, 1), (None, 0.5), (0, None), (2, -2), (0.5, 0.5)])
def test_clip(bounds):
    for name in ("clip", "clamp"):
        assert_like_torch(lambda x, n=name: getattr(x, n)(*bounds), None, EDGES)


def test_clip_of_integers_and_by_tensors(rng):
    assert_like_torch(lambda x: x.clip(min=-1, max=2), None, np.arange(-5, 6))
    assert_like_torch(lambda x: x.clip(min=0), None, np.arange(-5, 6, dtype=np.int32))
    x, low, high = rng.standard_normal((3, 20))
    assert_like_torch(lambda x, a, b: x.clip(a, b), None, x, low, high)
    assert_like_torch(lambda x, a: x.clip(max=a), None, x, low)
    with pytest.raises(ValueError, match="clip needs min, max or both"):
        tinytorch.tensor([1.0]).clip()
    with pytest.raises(DTypeError, match="clip is not defined for bool"):
        tinytorch.tensor([True]).clip(0, 1)


def test_where_and_masked_fill(rng):
    mask = rng.random((4, 3)) < 0.5
    a, b = rng.standard_normal((4, 1)), rng.standard_normal(3)
    assert_like_torch(tinytorch.where, torch.where, mask, a, b)
    for x, y in ((1.0, a), (a, 2), (1, 2), (1.5, 2), (True, False), (1, 2.5)):
        assert_like_torch(tinytorch.where, torch.where, mask, x, y)
    assert_like_torch(lambda x, m: x.masked_fill(m, -np.inf), None, rng.random((4, 3)), mask)


@pytest.mark.parametrize("name", ["logical_and", "logical_or"])
def test_logic_reads_numbers_as_truth_values(name):
    a, b = np.array([0, 1, 2, 0]), np.array([0.0, 0.0, np.nan, 3.0])
    assert_like_torch(getattr(tinytorch, name), getattr(torch, name), a, b)
    assert_like_torch(tinytorch.logical_not, torch.logical_not, b)


def test_bool_operators():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    for operator in (lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y, lambda x, y: ~x):
        assert_like_torch(operator, None, a, b)
    with pytest.raises(DTypeError, match="& is for bool and integer tensors, not float32; use lo"):
        tinytorch.tensor([1.0]) & tinytorch.tensor([2])
    with pytest.raises(DTypeError, match="~ is for bool and integer tensors, not float32"):
        ~tinytorch.tensor([1.0])


@pytest.mark.parametrize("backend", ["naive", "numpy"])
def test_integer_division_by_zero_raises(backend):
    a, zero = tinytorch.tensor([1, 2]), tinytorch.tensor([1, 0])
    with tinytorch.using_backend(backend):
        for operator in (lambda: a // zero, lambda: a % zero, lambda: a // 0):
            with pytest.raises(ZeroDivisionError):
                operator()
        with pytest.raises(ValueError, match=r"pow: int64 to the power of -1; use a\.float"):
            a**-1


@pytest.mark.parametrize("backend", ["naive", "numpy", "blocked", "optimized"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_negative_powers_of_integers_are_rounded_towards_zero(dtype, backend):
    bases, exponents = np.meshgrid(np.arange(-3, 4), np.arange(-3, 4))
    bases = np.abs(bases) if dtype == "uint8" else bases
    with tinytorch.using_backend(backend):
        for other in ("int8", "int64"):
            given = bases.astype(dtype), exponents.astype(other)
            assert_like_torch(lambda a, b: a**b, None, *given)
            assert_like_torch(lambda a, b: 2**b, None, *given)
        compiled = tinytorch.compile(lambda a, b: a * 2 - a**b)
        theirs = lambda a, b: a * 2 - a**b  # noqa: E731
        assert_like_torch(compiled, theirs, *(g.astype("int64") for g in given))
        with pytest.raises(ValueError, match=rf"{dtype} to the power of -1; use a\.float"):
            tinytorch.tensor(bases.astype(dtype)) ** -1


@pytest.mark.parametrize("backend", ["naive", "numpy", "blocked", "optimized"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_nothing_divided_by_zero_is_nothing(dtype, backend):
    nothing, zeros = np.zeros((2, 0), dtype), np.zeros((2, 1), dtype)
    with tinytorch.using_backend(backend):
        for call in (lambda a, b: a % 0, lambda a, b: a // b, lambda a, b: a % b,
                     lambda a, b: a.fmod(0), lambda a, b: a.fmod(b), lambda a, b: a.fmod_(b),
                     lambda a, b: a.div(b, rounding_mode="trunc")):  # fmt: skip
            assert_like_torch(call, None, nothing, zeros)


def test_errors_say_what_does_not_fit():
    with pytest.raises(
        ShapeError,
        match=r"add: shapes \(2,\) and \(3,\) do not broadcast: .*"
        r"dimension -1 is 2 in one and 3 in the other",
    ):
        tinytorch.zeros(2) + tinytorch.zeros(3)
    with pytest.raises(TypeError, match="add needs at least one tensor, not only Python numbers"):
        tinytorch.add(1.0, 2.0)
    with pytest.raises(TypeError, match="exp needs at least one tensor"):
        tinytorch.exp(1.0)
    with pytest.raises(TypeError, match="mul takes tensors, NumPy arrays and numbers, not str"):
        tinytorch.zeros(2) * "two"
    with pytest.raises(DTypeError, match="add: float16 is for storage only; compute on"):
        tinytorch.zeros(2).half() + 1
    with pytest.raises(OverflowError):
        tinytorch.tensor([1], dtype="int32") + 2**40


def test_numpy_arrays_and_numbers_take_part():
    x = tinytorch.tensor([1.0, 2.0])
    for result in (x + np.float32(1), np.float64(1) + x, np.array([1.0, 1.0]) + x, x + np.ones(2)):
        assert isinstance(result, tinytorch.Tensor)
        assert result.tolist() == [2.0, 3.0]
    assert (x + np.ones(2)).dtype is tinytorch.float64
    assert (x + np.float64(1)).dtype is tinytorch.float32


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_integers_at_full_range_as_in_pytorch(dtype: str, rng: np.random.Generator) -> None:
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 90, dtype, endpoint=True)
    x[:5] = info.min, info.max, 0, 1, info.max - 1
    bits = np.resize(np.arange(-3, 67) if info.min else np.arange(67), 90).astype(dtype)
    divisors = np.where(bits == 0, 7, bits).astype(dtype)
    for name in ("bitwise_left_shift", "bitwise_right_shift", "fmod"):
        other = divisors if name == "fmod" else bits
        wanted = getattr(torch, name)(torch.from_numpy(x), torch.from_numpy(other)).numpy()
        function = getattr(tinytorch, name)
        found = function(tinytorch.tensor(x), tinytorch.tensor(other)).numpy()
        np.testing.assert_array_equal(found, wanted, strict=True)
        program = trace(function, tinytorch.tensor(x), tinytorch.tensor(other))  # by ops
        traced = program(tinytorch.tensor(x), tinytorch.tensor(other))
        np.testing.assert_array_equal(traced.numpy(), wanted, strict=True)
    for name in ("ceil", "trunc", "floor", "sign", "isinf", "isnan", "isfinite", "nansum"):
        tensor = tinytorch.tensor(x)
        found = getattr(tensor, name)()
        wanted = getattr(torch, name)(torch.from_numpy(x)).numpy()
        np.testing.assert_array_equal(found.numpy(), wanted, strict=True)
        assert not np.shares_memory(found.numpy(), tensor.numpy())
    np.testing.assert_array_equal(tinytorch.tensor(x).clip(1, 9).numpy(), np.clip(x, 1, 9))
    np.testing.assert_array_equal(tinytorch.relu(tinytorch.tensor(x)).numpy(), np.maximum(x, 0))


def test_fmod_of_integers_by_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError, match="by zero"):
        tinytorch.fmod(tinytorch.tensor([1, 2]), tinytorch.tensor([1, 0]))


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_the_gradient_of_fmod_at_zero_is_that_of_either_side(backend: str) -> None:
    with tinytorch.using_backend(backend):
        x = tinytorch.tensor([-1.5, -0.0, 0.0, 1.5], requires_grad=True)
        x.fmod(2.0).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0, 1.0, 1.0]
