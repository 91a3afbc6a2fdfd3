"""Slices that kernels cut by themselves: which, and that the numbers are those of the ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.replay.common import traced
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.functions.movement import chunk, flip, narrow
from tinytorch.program import Program
from tinytorch.replay import make_program, slices
from tinytorch.replay.fusion import fuse_steps
from tinytorch.tensor import Tensor

BACKEND = OptimizedBackend()


@pytest.fixture(autouse=True)
def _on_optimized() -> Any:
    with tinytorch.using_backend(BACKEND):
        yield


def steps_of(function: Any, *given: Tensor) -> list[Any]:
    """The steps that are left: names of ops, of a loop with how many of its operands it cuts."""
    trace, results = traced(function, *given)
    steps = slices.slice_early(trace, trace.needed(results), results, BACKEND.fusible)
    steps = fuse_steps(steps, results, BACKEND.fusible)
    found, _, _ = slices.with_kernels(steps, BACKEND)
    read, names = set(results), list[Any]()
    for before, step in reversed([*zip(steps, found, strict=True)]):
        if step.out in read:
            read.update(step.reads)
            is_loop = isinstance(step.plan.op.scalar, Program)
            cut = sum(a is not b for a, b in zip(before.args, step.args, strict=True))
            name = "loop" if is_loop else step.plan.op.name
            names.append((name, cut) if cut else name)
    return names[::-1]


def gated(x: Tensor, y: Tensor) -> Tensor:
    a, b = chunk(x + y, 2, -1)
    return a.tanh() * b.sigmoid()


X, Y = tinytorch.ones(6, 64), tinytorch.ones(6, 64)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (gated, [("loop", 4)]),
        (lambda x, y: gated(x, y[0]), ["slice", "reshape", ("loop", 4)]),
        (lambda x, y: narrow(x, 1, 0, 20) + narrow(x, 1, 20, 20), ["slice", "slice", "add"]),
        (lambda x, y: narrow(x, 1, 0, 32) + narrow(x, 1, 32, 32), [("add", 2)]),
        (lambda x, y: narrow(narrow((x.mT @ y) * 2.0, 1, 8, 32), 0, 1, 4).tanh(),
         ["permute", "matmul", ("loop", 1)]),
        # an argument of which a part is read may be in another order
        (lambda x, y: (x + y)[:, :32] * (x @ y.mT)[:1, :1],
         ["slice", "slice", "permute", "matmul", ("loop", 1)]),
        # what something else reads is computed
        (lambda x, y: (lambda s: s[:, :32].tanh() * s.sum())(x + y),
         ["add", "sum", ("loop", 1)]),
        (lambda x, y: (lambda s: (s, s[:, :32].tanh()))(x + y), ["add", ("tanh", 1)]),
        # of slices that overlap, some would be computed twice
        (lambda x, y: (lambda s: s[:, 1:] * s[:, :-1])(x + y), ["add", ("mul", 2)]),
        # short rows, every second number, and those in another order
        (lambda x, y: (x + y)[:, :8].tanh(), ["add", "slice", "tanh"]),
        (lambda x, y: (x + y)[:, ::2].tanh(), ["slice", "slice", "loop"]),
        (lambda x, y: flip(x + y, 1).tanh(), ["add", "slice", "loop"]),
        (lambda x, y: narrow(x.mT, 0, 0, 32).tanh(), ["permute", "slice", "tanh"]),
        # another reader than a loop
        (lambda x, y: (x + y)[:, :32] @ y[:, :32].mT, [
            "slice", "slice", "add", "slice", "permute", "matmul"]),
    ],
)  # fmt: skip
def test_which_slices_are_not_made(function: Any, expected: list[Any]) -> None:
    assert steps_of(function, X, Y) == expected


FUNCTIONS = [
    gated,
    lambda x, y: gated(x, y[:1]),
    lambda x, y: (x[:1] + y[:1])[:0].tanh(),
    lambda x, y: (x[:, :1] * y[:1])[1:3, 16:].tanh(),
    lambda x, y: (x[:, 1:] - x[:, :-1]).abs(),
    lambda x, y: (x[1:], x[1:].tanh() * y[:1] + x[:1]),
    lambda x, y: narrow(narrow(x, 1, 8, 40), 0, 1, 3).exp() * y[2:, 3:43][:3],
    lambda x, y: tinytorch.where(x[:, 16:] > y[:, 16:], x[:, :48], 2.5),
    lambda x, y: chunk(x.reshape(6, 4, 16) + y.reshape(6, 4, 16), 2, 1)[1].sigmoid() * 0.3,
]


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "rows", "expanded", "misaligned"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_programs_give_the_bits_of_the_ops(
    function: Any, dtype: Any, layout: str, rng: np.random.Generator
) -> None:
    def array() -> Any:
        a = rng.standard_normal((6, 64)).astype(dtype)
        if layout == "transposed":
            return np.asfortranarray(a)
        if layout == "rows":
            return rng.standard_normal((12, 80)).astype(dtype)[::2, 3:67]
        if layout == "expanded":
            return np.broadcast_to(a[:, :1], a.shape)
        if layout == "misaligned":
            raw = np.empty(a.nbytes + 1, np.uint8)[1:].view(dtype).reshape(a.shape)
            raw[...] = a
            return raw
        return a

    x, y = (tinytorch.from_numpy(array()) for _ in range(2))
    expected = function(x, y)
    found = make_program(function, BACKEND, (x, y), {}).run(x, y)
    if not isinstance(expected, tuple):
        expected, found = (expected,), (found,)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b._data)
        assert np.may_share_memory(a, x._data) == np.may_share_memory(b._data, x._data)


def test_what_a_result_views_is_not_copied() -> None:
    """The result is a view of the argument at each call, whatever its layout."""
    x = tinytorch.from_numpy(np.zeros((64, 6), np.float32).T)
    run = make_program(lambda x: (x[:1], x[1:] + x[:-1]), BACKEND, (x,), {}).run
    view, _ = run(x)
    assert np.may_share_memory(view, x._data)


def test_results_that_are_slices_view_one_tensor() -> None:
    x = tinytorch.from_numpy(np.zeros((6, 64), np.float32))
    run = make_program(lambda x: (lambda s: (s[:2], s[:2], s[4:]))(x + 1.0), BACKEND, (x,), {}).run
    first, again, other = run(x)
    first[0, 0] = 7.0
    assert again[0, 0] == 7.0
    assert first.base is again.base is other.base


@given(st.data())
def test_the_bounds_of_a_slice_of_a_slice(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 40))
    bounds = []
    for _ in range(2):
        begin = data.draw(st.integers(0, length))
        end, by = data.draw(st.integers(begin, length)), data.draw(st.integers(1, 4))
        bounds.append((begin, end, by))
        length = len(range(begin, end, by))
    x = np.arange(40)
    outer, inner = bounds
    np.testing.assert_array_equal(
        x[slice(*slices._composed(outer, inner))], x[slice(*outer)][slice(*inner)]
    )


UNARY = ["neg", "tanh", "exp", "sigmoid", "abs"]
BINARY = [tinytorch.add, tinytorch.mul, tinytorch.sub, tinytorch.maximum]


def drawn_function(data: st.DataObject) -> Any:
    """A function of two tensors as a list of steps that are drawn once."""
    plan = [
        (
            data.draw(st.sampled_from(["unary", "binary", "narrow", "step", "sum", "matmul"])),
            data.draw(st.integers(0, 10**6)),
            data.draw(st.integers(0, 10**6)),
        )
        for _ in range(data.draw(st.integers(1, 14)))
    ]
    results = data.draw(st.integers(1, 3))

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        made = [x, y]
        for kind, a, b in plan:
            t, other = made[a % len(made)], made[b % len(made)]
            dim = b % t.ndim
            if kind == "unary":
                made.append(getattr(tinytorch, UNARY[b % len(UNARY)])(t.clamp(-3.0, 3.0)))
            elif kind == "binary":
                fits = all(n == m or 1 in (n, m) for n, m in zip(t.shape, other.shape, strict=True))
                made.append(BINARY[a % len(BINARY)](t, other if fits else 0.5))
            elif kind == "narrow":
                begin = a % (t.shape[dim] + 1)
                made.append(narrow(t, dim, begin, b % (t.shape[dim] - begin + 1)))
            elif kind == "step":
                made.append(t[a % 3 :: 1 + b % 2] if dim == 0 else t[:, a % 3 :: 1 + b % 2])
            elif kind == "sum":
                made.append(t.sum(dim, keepdim=True))
            elif t.shape[1] == other.shape[1]:
                made.append((t @ other.mT) * 0.125)
        return tuple(t + 0.0 for t in made[-results:])

    return function


@pytest.mark.slow(seconds=40)
@settings(max_examples=250, deadline=None)
@given(st.data())
def test_drawn_programs_give_what_the_ops_give(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    function = drawn_function(data)
    with tinytorch.using_backend(BACKEND):
        drawn = [rng.standard_normal((4, 48)).astype(np.float32) for _ in range(2)]
        program = make_program(function, BACKEND, tuple(map(tinytorch.from_numpy, drawn)), {})
        for layout in (lambda a: a, np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2]):
            given = [tinytorch.from_numpy(layout(a)) for a in drawn]
            arrays = program.run(*given)
            arrays = arrays if isinstance(arrays, tuple) else (arrays,)
            for found, expected in zip(arrays, function(*given), strict=True):
                # products round by the layout of their operands
                np.testing.assert_allclose(found, expected._data, rtol=2e-5, atol=2e-5)
