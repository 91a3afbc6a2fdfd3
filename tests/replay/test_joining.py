"""Loops over the same elements are one loop with several results, bit for bit; which are not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.replay.common import runs, traced
from tinytorch import from_numpy
from tinytorch.autograd import grad
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.program import Program
from tinytorch.replay import (
    NotReplayable,
    function as replaying,
    fusion,
    joining,
    make_program,
    replayed,
)
from tinytorch.tensor import Tensor

BACKEND = OptimizedBackend()


@pytest.fixture(autouse=True)
def _on_optimized(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(replaying, "HOT", 1)
    with tinytorch.using_backend(BACKEND):
        yield


def steps_of(function: Any, *given: Tensor) -> list[Any]:
    """The steps of a function: names of ops, and of a loop how many results it has."""
    trace, results = traced(function, *given)
    steps = fusion.fuse_steps(trace.needed(results), results, BACKEND.fusible)
    found = joining.join_loops(trace, steps, results, BACKEND.fusible)
    return list(map(_text, found))


def _text(step: Any) -> Any:
    scalar = step.plan.op.scalar
    if not isinstance(scalar, Program):
        return step.plan.op.name
    return f"sum({len(scalar.results)})" if step.params else len(scalar.results)


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Tensor:
    rng = np.random.default_rng([*shape, seed])
    return from_numpy(rng.standard_normal(shape).astype(dtype))


def gates(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    a, b = x.tanh(), y.sigmoid()
    c = a * b + z
    return c, c * a, c * b


X, Y, Z = numbers(4, 32), numbers(4, 32, seed=1), numbers(4, 32, seed=2)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (gates, [3, "part", "part", "part"]),
        (lambda x, y, z: ((x + y) * 2.0, (x - y) * 3.0), [2, "part", "part"]),
        # two of single ops are not worth it; nor is there one for what has nothing in common
        (lambda x, y, z: (x * y, x + y), ["mul", "add"]),
        (lambda x, y, z: (x.exp(), y.tanh(), z.sigmoid()), ["exp", "tanh", "sigmoid"]),
        # one that reads another, what others read besides, and what a sum reads in between
        (lambda x, y, z: ((p := x * y), p.exp(), p.exp() * z, p.sum()),
         [3, "part", "part", "part", "sum"]),
        (lambda x, y, z: ((p := x * y), x - y, (x / y) * p.sum()), ["mul", "sub", "sum", 1]),
        (lambda x, y, z: ((p := x * y), p @ z.mT, x - y, x / y),
         ["mul", "permute", "matmul", "sub", "div"]),
        # sums of what a loop gives are no loops
        (lambda x, y, z: ((x * y).sum(1), (x - y).exp().sum(1), (p := x.sum(1)) * p),
         ["sum(1)", "sum(1)", "sum", "mul"]),
        # other shapes, other types
        (lambda x, y, z: (x * y, x + y, x[:1] * y[:1], x < y),
         ["mul", "add", "slice", "slice", "mul", "lt"]),
        (lambda x, y, z: (x * y, x + y, x.double() * 2.0), ["mul", "add", "cast", "mul"]),
        (lambda x, y, z: ((p := x[0, 0]) * 2.0, p * 3.0, p * 4.0),
         ["slice", "reshape", "mul", "mul", "mul"]),
    ],
)  # fmt: skip
def test_which_join(function: Callable[..., Any], expected: list[Any]) -> None:
    assert steps_of(function, X, Y, Z) == expected


def test_a_backend_without_loops_joins_none() -> None:
    trace, results = traced(gates, X, Y, Z)
    steps = trace.needed(results)
    assert joining.join_loops(trace, steps, results, NumpyBackend().fusible) == steps


def test_not_more_operands_than_a_loop_has() -> None:
    xs = [numbers(2, 32, seed=i) for i in range(fusion.MOST_INPUTS + 6)]

    def pairs(*xs: Tensor) -> tuple[Tensor, ...]:
        return tuple(a * b for a, b in pairwise(xs))

    found = steps_of(pairs, *xs)
    assert len([s for s in found if s not in ("part", "mul")]) > 1
    function = replayed(pairs)
    for _ in range(3):
        for out, wanted in zip(function(*xs), pairs(*xs), strict=True):
            assert np.array_equal(out.numpy(), wanted.numpy())


UNARY = ("exp", "tanh", "sigmoid", "abs", "neg", "sin", "sqrt", "relu")
BINARY = ("add", "sub", "mul", "div", "maximum")


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., tuple[Tensor, ...]]:
    """A function of three tensors with several results: elementwise ops, and what ends a group."""
    lines = draw(
        st.lists(
            st.tuples(
                st.sampled_from([*UNARY, *BINARY, *BINARY, "sum", "slices", "product", "number"]),
                st.integers(0, 30),
                st.integers(0, 30),
            ),
            min_size=3,
            max_size=14,
        )
    )
    wanted = draw(st.lists(st.integers(0, 30), min_size=2, max_size=6))

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        values = [*given]
        for name, i, j in lines:
            a, b = values[i % len(values)], values[j % len(values)]
            if name in UNARY:
                values.append(getattr(a.abs() if name == "sqrt" else a, name)())
            elif name in BINARY:
                values.append(getattr(tinytorch, name)(a, b))
            elif name == "sum":
                values.append(a - b.mean(-1, keepdim=True))
            elif name == "slices":
                a, b = tinytorch.broadcast_tensors(a, b)
                half = a.shape[-1] // 2
                values.append(tinytorch.cat([a[..., half:].tanh(), b[..., :half]], -1))
            elif name == "product":
                values.append((a @ b.mT).tanh() @ b)
            else:
                values.append(a * (0.25 + j))
        made = values[len(given) :]
        return tuple(made[i % len(made)] * 1.5 for i in wanted)

    return function


def bits(tensors: Any) -> list[bytes]:
    arrays = [t.detach().numpy() for t in tensors]
    return [np.where(x != x, np.float64(0), x).tobytes() for x in arrays]


def laid_out(layout: str, shape: tuple[int, ...], dtype: Any) -> list[Tensor]:
    xs = [numbers(*shape, seed=i, dtype=dtype) for i in range(3)]
    if layout == "columns":
        xs[0] = xs[0].mT.contiguous().mT
    elif layout == "part":
        xs[1] = tinytorch.cat([xs[1], xs[1]], -1)[..., shape[-1] :]
    elif layout == "broadcast":
        xs[2] = xs[2][..., :1, :]
    return xs


LAYOUTS = ["rows", "columns", "part", "broadcast"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 32), (5, 7), (2, 3, 40), (2, 3, 4, 5, 6)])
def test_operands_in_any_order(layout: str, shape: tuple[int, ...]) -> None:
    """Rows too short for one loop of all, and more dimensions than it has, are one loop each."""
    xs, function = laid_out(layout, shape, np.float32), replayed(gates)
    wanted = bits(gates(*xs))
    for _ in range(3):
        assert bits(function(*xs)) == wanted
    assert runs(function)


def is_not_replayable(function: Any, xs: list[Tensor]) -> bool:
    """Whether a program is refused: any other error, which a call would not show, is raised."""
    try:
        make_program(function, BACKEND, tuple(xs), {})
    except NotReplayable:
        return True
    return False


@pytest.mark.slow
@given(
    function=functions(),
    shape=st.sampled_from([(3, 32), (5, 7), (2, 3, 40), (64, 64), (1, 16), (300, 300)]),
    dtype=st.sampled_from([np.float32, np.float64]),
    layout=st.sampled_from(LAYOUTS),
)
@settings(max_examples=80, deadline=None)
def test_generated_functions_and_their_gradients(
    function: Any, shape: tuple[int, ...], dtype: Any, layout: str
) -> None:
    xs = laid_out(layout, shape, dtype)
    program = replayed(function)
    wanted = bits(function(*xs))
    for _ in range(3):
        assert bits(program(*xs)) == wanted
    assert runs(program) or is_not_replayable(function, xs)
    leaves = [x.detach().clone().requires_grad_() for x in xs]
    for _ in range(3):
        found, plain = (
            grad(sum(out.sum() for out in f(*leaves)), leaves, allow_unused=True)
            for f in (program, function)
        )
        for a, b in zip(found, plain, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-5)
