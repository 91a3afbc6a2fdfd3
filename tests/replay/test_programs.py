"""A function and its programs do the same, bit for bit: every function that is replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.replay.common import programs, runs
from tinytorch import tensor
from tinytorch.autograd import grad
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.functions.publish import FUNCTIONS, METHODS
from tinytorch.replay import function as replaying
from tinytorch.state import current_backend
from tinytorch.tensor import Tensor

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CREATED = (
    "full",
    "zeros",
    "ones",
    "empty",
    "full_like",
    "zeros_like",
    "ones_like",
    "empty_like",
    "eye",
)
PUBLIC = {
    **METHODS,
    **FUNCTIONS,
    **{f"F.{name}": getattr(F, name) for name in F.__all__},
    **{name: getattr(tinytorch, name) for name in CREATED},
}
NAMES = sorted(  # without aliases
    name
    for name, f in PUBLIC.items()
    if hasattr(f, "replayed") and f.__name__ == name.split(".")[-1]
)


GUARDED = ("prod",)  # gradients depend on values
WARNS = ("F.softmax", "F.log_softmax", "F.softmin")  # without a dimension


@pytest.fixture(autouse=True)
def _on_numpy() -> Any:
    with tinytorch.using_backend(NumpyBackend()):
        yield


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import op_arguments

    return op_arguments


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call makes the program, which the third runs."""
    monkeypatch.setattr(replaying, "HOT", 1)


def same(a: Any, b: Any) -> bool:
    """Every bit, but for those of a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    is_nan = a != a
    return bool((is_nan == (b != b)).all()) and a[~is_nan].tobytes() == b[~is_nan].tobytes()


def _with_special_values(a: Any) -> Any:
    """A copy of a tensor of floats with NaN, infinities and both zeros in it; else the value."""
    if not isinstance(a, Tensor) or not a.is_floating_point() or not a.numel():
        return a
    array = np.array(a._data)
    array.flat[:5] = [np.nan, np.inf, -np.inf, -0.0, 0.0][: array.size]
    return tinytorch.from_numpy(array).requires_grad_(a.requires_grad)


def outcome(function: Callable[..., Any], args: Any, options: Any) -> Any:
    """The bits of a result, those of a NaN apart, or the error."""
    try:
        array = function(*args, **options)._data
    except ValueError as error:
        return str(error)
    return np.where(array != array, np.zeros_like(array), array).tobytes(), (
        array != array
    ).tobytes()


def several(function: Callable[..., Any], args: Any, options: Any, expected: Any) -> None:
    """Results that are tuples, and gradients of some of them and of all."""
    results = [function(*args, **options) for _ in range(3)]
    assert type(programs(function)[-1]) is replaying.Several
    for result in results:
        assert type(result) is type(expected) and len(result) == len(expected)
        for out, wanted in zip(result, expected, strict=True):
            assert same(out._data, wanted._data) and out.meta is wanted.meta
            assert out.requires_grad == wanted.requires_grad
    recorded = [i for i, t in enumerate(expected) if t.requires_grad]
    given = [x for a in (*args, *options.values()) for x in (a if isinstance(a, list) else [a])]
    leaves = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    rng = np.random.default_rng(0)
    for chosen in [recorded, recorded[:1], recorded[-1:], recorded[::-2]]:
        seeds = [
            tensor(rng.standard_normal(expected[i].shape), dtype=expected[i].dtype) for i in chosen
        ]
        for graph in (False, True) if chosen else ():
            found, wanted = (
                grad([outs[i] for i in chosen], leaves, seeds, create_graph=graph,
                     retain_graph=True, allow_unused=True)
                for outs in (results[-1], expected)
            )  # fmt: skip
            for g, w in zip(found, wanted, strict=True):
                assert (g is None) == (w is None)
                assert w is None or (g is not None and same(g._data, w._data))


def check(arguments: Any, name: str, dtype: str, layout: str = "contiguous") -> None:
    """The function, its program and its gradients, with and without a graph of them."""
    function = PUBLIC[name]
    for dim in arguments.dims_of(name):
        if dim is None and name in WARNS:
            continue
        for requires_grad in (False, True)[: 1 if name in GUARDED else 2]:
            values = arguments.Values((12, 16), dtype, layout, dim)
            call = arguments.call_of(name, values)

            def make(array: Any, needed: bool = requires_grad) -> Tensor:
                t = tinytorch.from_numpy(array)
                return t.requires_grad_(needed and t.is_floating_point())

            args = arguments.as_tensors(call.args, make, tinytorch)
            options = {k: arguments.as_tensors(x, make, tinytorch) for k, x in call.options.items()}
            expected = function.replayed(*args, **options)
            if isinstance(expected, (tuple, list)):
                several(function, args, options, expected)
                continue
            special = [_with_special_values(a) for a in args]
            outs = [function(*args, **options) for _ in range(3)]
            assert runs(function), f"{name} has no program"
            for out in outs:
                assert same(out._data, expected._data) and out.meta is expected.meta
                assert out.requires_grad == expected.requires_grad
            assert outcome(function, special, options) == outcome(
                function.replayed, special, options
            )
            if not expected.requires_grad:
                continue
            given = [t for t in (*args, *options.values()) if isinstance(t, Tensor)]
            leaves = [t for t in given if t.requires_grad]
            seed = tensor(values.rng.standard_normal(expected.shape), dtype=expected.dtype)
            for graph in (True, False):
                wanted = grad(
                    [expected],
                    leaves,
                    [seed],
                    create_graph=graph,
                    retain_graph=True,
                    allow_unused=True,
                )
                found = grad(
                    [outs[-1]], leaves, [seed], create_graph=graph, retain_graph=True,
                    allow_unused=True,
                )  # fmt: skip
                for g, w in zip(found, wanted, strict=True):
                    assert (g is None) == (w is None)
                    assert w is None or same(g._data, w._data)
            current_backend().programs.clear()


@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_what_the_function_does(name: str, arguments: Any, hot: None) -> None:
    check(arguments, name, "float32")


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    "name",
    [
        "F.cross_entropy",
        "F.group_norm",
        "norm",
        "tril",
        "gather",
        "hypot",
        "F.hardswish",
        "F.cosine_embedding_loss",
    ],
)
def test_programs_of_compiled_kernels(name: str, arguments: Any, hot: None) -> None:
    with tinytorch.using_backend(OptimizedBackend()):
        check(arguments, name, "float32")


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize(
    "dtype, layout, every",
    [
        ("float32", "contiguous", 3),
        pytest.param("float32", "contiguous", 1, marks=pytest.mark.exhaustive),
        pytest.param("float32", "transposed", 1, marks=pytest.mark.exhaustive),
        pytest.param("float64", "contiguous", 1, marks=pytest.mark.exhaustive),
        pytest.param("float64", "transposed", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_programs_of_functions(
    dtype: str, layout: str, every: int, arguments: Any, hot: None
) -> None:
    """Of every n-th function, and so of all; the bits are those of compiled kernels."""
    with tinytorch.using_backend(OptimizedBackend()):
        for name in NAMES[::every]:
            check(arguments, name, dtype, layout)
