"""Python numbers beside tensors of integers: what PyTorch makes of those that do not fit."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.errors import DTypeError, ShapeError

VALUES = {
    "uint8": [0, 1, 2, 5, 200, 255], "int8": [-128, -3, 0, 1, 2, 127],
    "int16": [-(2**15), -3, 0, 1, 2, 2**15 - 1], "int32": [-(2**31), -3, 0, 1, 2, 2**31 - 1],
    "int64": [-(2**63), -3, 0, 1, 2, 2**63 - 1],
}  # fmt: skip
NUMBERS = [
    -1, -3, -128, -129, -255, 0, 1, 3, 127, 128, 200, 255, 256, 300, 2**15 - 1, 40_000, 70_000,
    2**31, 2**31 - 1, -(2**31) - 1, 2**33, 2**63 - 1, -(2**63), 2**63, 2**70,
]  # fmt: skip
FLOATS = [1.5, -1.5, 300.7, 1e30, float("inf"), float("nan")]

Case = Callable[[Any, Any, Any], Any]
SYMBOLS = [
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.and_,
    operator.or_, operator.xor, operator.lshift, operator.rshift, operator.pow,
]  # fmt: skip


def _beside(symbol: Callable[[Any, Any], Any]) -> dict[str, Case]:
    name = symbol.__name__.rstrip("_")
    cases: dict[str, Case] = {name: lambda lib, x, n: symbol(x, n)}
    if symbol not in (operator.floordiv, operator.mod):  # there a 0 of the tensor is an error
        cases[f"r{name}"] = lambda lib, x, n: symbol(n, x)
    return cases


def _written(write: Callable[[Any, Any, Any], object]) -> Case:
    def case(lib: Any, x: Any, n: Any) -> Any:
        write(lib, x := x.clone(), n)
        return x

    return case


ARITHMETIC = {name: case for symbol in SYMBOLS for name, case in _beside(symbol).items()}
ARITHMETIC |= {
    "add_": _written(lambda lib, x, n: x.add_(n)),
    "fmod": lambda lib, x, n: lib.fmod(x, n),
    "alpha": lambda lib, x, n: lib.add(x, x, alpha=n),
    "addcmul": lambda lib, x, n: lib.addcmul(x, x, x, value=n),
}
STORED: dict[str, Case] = {
    "tensor": lambda lib, x, n: lib.tensor([n], dtype=x.dtype),
    "full": lambda lib, x, n: lib.full((2,), n, dtype=x.dtype),
    "full_like": lambda lib, x, n: lib.full_like(x, n),
    "fill_": _written(lambda lib, x, n: x.fill_(n)),
    "where": lambda lib, x, n: lib.where(x > 1, x, n),
    "masked_fill": lambda lib, x, n: x.masked_fill(x > 1, n),
    "index_fill": lambda lib, x, n: x.index_fill(0, lib.tensor([0]), n),
    "scatter": lambda lib, x, n: x.scatter(0, lib.tensor([0, 1]), n),
    "index": _written(lambda lib, x, n: x.__setitem__(0, n)),
    "mask": _written(lambda lib, x, n: x.__setitem__(x > 1, n)),
    "clamp_min": lambda lib, x, n: lib.clamp(x, min=n),
    "clamp_max": lambda lib, x, n: lib.clamp(x, max=n),
    "threshold": lambda lib, x, n: lib.nn.functional.threshold(x, 1, n),
}
OF_FLOATS = ["tensor", "where", "masked_fill", "clamp_min", "clamp_max", "fmod", "add", "mul"]


def _result(library: Any, case: Case, dtype: str, number: Any) -> Any:
    x = library.tensor(VALUES[dtype], dtype=getattr(library, dtype))
    try:
        return case(library, x, number).numpy()
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        return error


def _differ(case: Case, dtype: str, number: Any) -> str | None:
    expected, bits = _result(torch, case, dtype, number), np.iinfo(dtype).bits
    with np.errstate(all="ignore"), tinytorch.using_backend("numpy"):
        found = _result(tinytorch, case, dtype, number)
    if isinstance(found, OverflowError) and "does not fit into" in str(found):
        # PyTorch takes the last bits also of numbers that lose others
        same = isinstance(expected, Exception) or not -(2**bits) <= number < 2**bits
    elif isinstance(expected, Exception) or isinstance(found, Exception):
        same = isinstance(expected, Exception) and isinstance(found, Exception)
    else:
        same = found.dtype == expected.dtype and np.allclose(found, expected, equal_nan=True)
        same = same and (found.dtype.kind == "f" or np.array_equal(found, expected))
    return None if same else f"{dtype} {number}: {found!r}, PyTorch {expected!r}"


@pytest.mark.parametrize("name", [*ARITHMETIC, *STORED])
def test_whole_numbers(name: str) -> None:
    case = (ARITHMETIC | STORED)[name]
    assert not [d for t in VALUES for n in NUMBERS if (d := _differ(case, t, n))]


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name: str) -> None:
    case = (ARITHMETIC | STORED)[name]
    assert not [d for t in VALUES for n in FLOATS if (d := _differ(case, t, n))]


@pytest.mark.parametrize("backend", ["naive", "numpy", "blocked", "optimized"])
def test_every_backend_takes_the_last_bits_and_compares(backend: str) -> None:
    x = tinytorch.tensor([0, 2, 255], dtype=tinytorch.uint8)
    with tinytorch.using_backend(backend):
        for _ in range(2):  # at first by the rules, then by what is known
            assert (x + -1).tolist() == [255, 1, 254] and (x & -2).tolist() == [0, 2, 254]
            # a comparison is of the numbers themselves: PyTorch says that 255 equals -1
            assert (x < 300).all() and (x > -1).all() and not (x == -1).any()


def test_a_compiled_function_takes_the_last_bits() -> None:
    x = tinytorch.tensor([0, 2, 255], dtype=tinytorch.uint8)
    compiled = tinytorch.compile(lambda x: ((x + -1) * 200) & -2)
    expected = ((torch.tensor(x.tolist(), dtype=torch.uint8) + -1) * 200) & -2
    assert compiled(x).tolist() == expected.tolist()


def test_what_does_not_fit_is_said() -> None:
    x = tinytorch.tensor([1, 2], dtype=tinytorch.uint8)
    with pytest.raises(DTypeError, match=r"masked_fill: 300 is not within 0 and 255, .* of uint8"):
        x.masked_fill(x > 1, 300)
    with pytest.raises(OverflowError, match="300 does not fit into uint8") as error:
        x + 300
    assert error.value.__suppress_context__ or error.value.__context__ is None
    with pytest.raises(OverflowError, match="inf does not fit into int32"):
        tinytorch.tensor([float("inf")], dtype=tinytorch.int32)


def test_powers_in_float64() -> None:
    x = torch.tensor([1, 2, 200], dtype=torch.uint8)
    ours = tinytorch.float_power(tinytorch.tensor(x.tolist(), dtype=tinytorch.uint8), -1)
    np.testing.assert_array_equal(ours.numpy(), torch.float_power(x, -1).numpy())


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_no_integer_is_infinite(number: float) -> None:
    x = tinytorch.tensor([1, 2])
    with pytest.raises(DTypeError, match=rf"fill_: {number} is not within .* of int64"):
        x.fill_(number)
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
@pytest.mark.parametrize("name", ["full", "full_like", "fill_", "masked_fill", "index", "scatter"])
def test_a_fraction_beyond_the_last_integer_is_not_within(name: str, dtype: str) -> None:
    info, case = np.iinfo(dtype), STORED[name]
    for number in (info.min - 0.5, info.min, info.max - 0.5, info.max, info.max + 0.25):
        assert _differ(case, dtype, float(number)) is None


BEYOND: dict[str, Case] = {
    "full": lambda lib, x, n: lib.full((2,), n),
    "full_like": lambda lib, x, n: lib.full_like(x, n),
    "fill_": lambda lib, x, n: x.clone().fill_(n),
    "masked_fill": lambda lib, x, n: x.masked_fill(x > 0, n),
    "where": lambda lib, x, n: lib.where(x > 1, x, n),
    "where not": lambda lib, x, n: lib.where(x > 1, n, x),
    "clamp from": lambda lib, x, n: x.clamp(n),
    "clamp to": lambda lib, x, n: x.clamp(max=n),
    "clamp_": lambda lib, x, n: x.clone().clamp_(-1.0, n),
    "t[...] = n": _written(lambda lib, x, n: operator.setitem(x, 0, n)),
}


@pytest.mark.parametrize("backend", ["naive", "optimized"])
@pytest.mark.parametrize("number", [1e39, -1e39, 3.4028235e38, 1e38, float("inf")])
@pytest.mark.parametrize("name", BEYOND)
def test_no_finite_number_becomes_infinite_where_it_is_stored(
    name: str, number: float, backend: str
) -> None:
    case, values = BEYOND[name], np.float32([1, 2])
    try:
        wanted = case(torch, torch.tensor(values), number)
    except RuntimeError:
        with (
            tinytorch.using_backend(backend),
            pytest.raises(DTypeError, match="numbers of float32"),
        ):
            case(tinytorch, tinytorch.tensor(values), number)
        return
    with tinytorch.using_backend(backend):
        found = case(tinytorch, tinytorch.tensor(values), number)
        in_double = case(tinytorch, tinytorch.tensor(values, dtype="float64"), number)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    assert in_double.dtype is tinytorch.float64 or name == "full"


@pytest.mark.parametrize("backend", ["naive", "optimized"])
@pytest.mark.parametrize("value", ["1", None, [1.0, 2.0], {}])
@pytest.mark.parametrize(
    "name",
    ["add_", "mul_", "fill_", "clamp", "clamp_", "t[0] =", "add", "full", "full_like", "alpha"],
)
def test_what_is_no_number_is_refused_by_its_type(name: str, value: Any, backend: str) -> None:
    x = tinytorch.tensor([1.0, 2.0])
    calls: dict[str, Callable[[], object]] = {
        "t[0] =": lambda: operator.setitem(x, 0, value),
        "full": lambda: tinytorch.full((2,), value, dtype="float32"),
        "full_like": lambda: tinytorch.full_like(x, value),
        "alpha": lambda: x.add_(x, alpha=value),
    }
    call = calls.get(name, lambda: getattr(x, name)(value))
    refused = (
        (TypeError, ShapeError, ValueError) if name in ("t[0] =", "clamp", "clamp_") else TypeError
    )
    with tinytorch.using_backend(backend), pytest.raises(refused):
        call()
    assert x.tolist() == [1.0, 2.0]


OF_NUMPY = ["clamp_min", "clamp_max", "scatter", "fill_", "full", "full_like", "masked_fill"]


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
@pytest.mark.parametrize("number", [np.float32(1.5), np.float64(3), np.int64(1), np.int32(3)])
@pytest.mark.parametrize("name", OF_NUMPY)
def test_numbers_of_numpy_count_as_numbers(name: str, number: Any, dtype: str) -> None:
    if name.startswith("clamp") or isinstance(number, np.integer):
        assert _differ(STORED[name], dtype, number) is None
    x = tinytorch.tensor([1.0, 2.0])
    assert STORED[name](tinytorch, x, number).dtype is tinytorch.float32
    assert x.clone().clamp_(number).tolist() == x.clamp(float(number)).tolist()


@pytest.mark.parametrize("number", [1, 1.0, 1e39])
def test_a_number_is_taken_beside_an_array_of_numpy(number: float) -> None:
    x, mask = np.float64([3, 4]), tinytorch.tensor([True, False])
    assert tinytorch.where(mask, x, number).tolist() == [3.0, number]
    assert tinytorch.where(mask, number, x).tolist() == [number, 4.0]
