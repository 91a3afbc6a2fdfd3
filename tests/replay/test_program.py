"""Views within a program: copied where a compiled kernel would copy them, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.replay.common import programs
from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.dispatch import apply
from tinytorch.dtypes import float32, tensor_meta
from tinytorch.op import Plan
from tinytorch.replay import function as replaying, replayed
from tinytorch.replay.program import _is_in_order
from tinytorch.replay.trace import Step
from tinytorch.tensor import Tensor


def _gathered_twice(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index) * index


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "slices, elementwise": lambda x: x[:, 1:] - x[:, :-1],
    "a slice, reduced": lambda x: x[:, ::2].sum(1),
    "transposed, elementwise": lambda x: x.t().exp() * 2.0,
    "expanded, by index": lambda x: x.gather(1, x[:1].argsort(1).expand(x.shape)),
    "expanded, scattered": lambda x: x.scatter(1, x[:1].argsort(1).expand(x.shape), x * 2.0),
    "expanded along another": lambda x: x.gather(1, (x[:, :1] > 0).long().expand(x.shape)),
    "expanded, of two readers": lambda x: _gathered_twice(x, x[:1].argsort(1).expand(x.shape)),
    "a slice of two readers": lambda x: (x[:, 1:].exp() @ x[:, 1:].t()) + x[:, 1:].sum(),
    "all there is": lambda x: x[:, 1:],
    "all there is, detached": lambda x: x.detach(),
    "all there is, in windows": lambda x: x.unfold(0, 2, 1),
    "all there is, in windows along both": lambda x: x[1:].unfold(0, 2, 1).unfold(1, 2, 2)[:, 1:],
    "windows along both, copied": lambda x: F.unfold(x[None, None], 2),
    "windows of what is reshaped": lambda x: x.reshape(2, -1).unfold(0, 2, 1) * 2.0,
    "windows, expanded": lambda x: x.unfold(0, 2, 1)[:1].expand(3, 5, 2) * 2.0,
    "windows, turned": lambda x: x.unfold(0, 2, 1).transpose(0, 1) * 2.0,
    "windows, flat": lambda x: x.unfold(0, 1, 1).reshape(-1).cumsum(0),
    "every other window, flat": lambda x: x.unfold(0, 1, 2).reshape(2, 5).sum(1),
    "flat": lambda x: x.reshape(-1).cumsum(0),
    "flat, computed": lambda x: x.exp().reshape(-1).argmax(0),
    "flat, turned": lambda x: x.exp().t().reshape(-1).cumsum(0).reshape(4, 5).sum(1),
    "flat, twice": lambda x: (y := x.exp().reshape(-1)).cumsum(0) * y,
    "flat, by index": lambda x: x[0].reshape(1, -1).gather(1, x[:1].argsort(1).reshape(1, -1)),
    "turned and copied": lambda x: apply(ops.copy, x.t()),
    "detached, in two ways": lambda x: x.detach() * apply(ops.copy, x.flip(1)).detach(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_gives_what_the_function_gives_whatever_the_layout(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "HOT", 1)
    whole = rng.standard_normal((8, 10)).astype(np.float32)
    unaligned = np.frombuffer(b"0" + whole[:2].tobytes(), np.float32, offset=1).reshape(4, 5)
    layouts = (whole[:4, :5].copy(), whole[:4, ::2], whole[::-2, 5:], whole[:5, :4].T, unaligned)
    function = FUNCTIONS[name]
    with tinytorch.using_backend(OptimizedBackend()):
        run = replayed(function)
        for _ in range(3):
            run(tinytorch.from_numpy(layouts[0]))
        for array in layouts:
            x = tinytorch.from_numpy(array)
            found, wanted = run(x), function(x)
            assert found.numpy().tobytes() == wanted.numpy().tobytes()
            shares = np.shares_memory(found.numpy(), array)
            assert shares is name.startswith("all there is")
            assert found.numpy().strides == wanted.numpy().strides


def test_windows_along_any_dimension_are_one_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "HOT", 1)
    made: list[Any] = []
    maker = reference.view_maker
    monkeypatch.setattr(reference, "view_maker", lambda *a: made.append(a) or maker(*a))
    with tinytorch.using_backend(OptimizedBackend()):
        x = tinytorch.arange(24.0).reshape(2, 3, 4)
        for _ in range(40):
            windows = x.unfold(1, 2, 1)
        assert [tuple(shape) for shape, *_ in made[-1:]] == [windows.shape] == [(2, 2, 4, 2)]
        np.testing.assert_array_equal(windows.numpy(), x.numpy()[:, [[0, 1], [1, 2]]].mT)
        with pytest.raises(tinytorch.AutogradError, match="read-only view"):
            windows.zero_()
        x.mul_(2.0)  # the windows are views of x
        np.testing.assert_array_equal(windows.numpy(), x.numpy()[:, [[0, 1], [1, 2]]].mT)
        for _ in range(40):
            assert x[:0].unfold(1, 2, 1).shape == (0, 2, 4, 2)
            assert x.unfold(0, 2, 1).sum().item() == x.sum().item()


def test_an_index_that_is_a_line_is_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "HOT", 1)
    x, index = tinytorch.ones(4, 5), tinytorch.tensor([3, 0])
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "gather": lambda x: x.index_select(1, index),
        "scatter": lambda x: x.index_copy(1, index, x[:, :2] * 2.0),
    }
    for function in calls.values():
        with tinytorch.using_backend(OptimizedBackend()):
            run = replayed(function)
            for _ in range(3):
                run(x)
            (program,) = programs(run)
            assert "empty" not in program.run.__code__.co_names


@pytest.mark.parametrize("layout", [lambda a: a, np.asfortranarray, lambda a: a[:, ::2]])
def test_a_line_that_would_be_long_written_out(
    layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an index of 16,000 elements a program reads the 400 of its line; -1 is the last one."""
    monkeypatch.setattr(replaying, "HOT", 1)
    line = tinytorch.from_numpy(np.arange(-200, 200) % 150)
    a = layout(np.arange(40 * 300).reshape(40, 300).astype(np.float32))[:, :150]
    with tinytorch.using_backend(OptimizedBackend()):
        run = replayed(lambda x: x.index_select(1, line) * 2)
        for _ in range(4):
            found = run(tinytorch.from_numpy(a))
        (program,) = programs(run)
    np.testing.assert_array_equal(found.numpy(), a[:, line.numpy()] * 2)
    assert not any(name.endswith("_shape") for name in program.run.__globals__)  # of an expansion


def test_a_view_is_in_order_exactly_where_numpys_is(rng: np.random.Generator) -> None:
    for _ in range(500):
        shape = tuple(rng.choice([1, 1, 2, 3], rng.integers(0, 5)).tolist())
        x, params, op = np.empty(shape, np.float32), {}, ops.slice_
        if rng.random() < 0.3:
            op, params = ops.permute, {"dims": tuple(rng.permutation(len(shape)).tolist())}
        else:
            params = {"bounds": tuple(_bounds(n, rng) for n in shape)}
        view = (reference.slice_ if op is ops.slice_ else reference.permute)(x, **params)
        meta = tensor_meta(shape, float32)
        plan = Plan(op, (meta,), params, tensor_meta(view.shape, float32), None)
        assert _is_in_order(Step(plan, (), params, 0)) is view.flags.c_contiguous, (shape, params)


def _bounds(extent: int, rng: np.random.Generator) -> Any:
    kind = rng.integers(3)
    if kind == 0:
        return (0, extent, 1)
    if kind == 1:
        return (extent - 1, -1, -1)
    start = int(rng.integers(extent))
    return (start, int(rng.integers(start, extent)) + 1, 1)


def test_views_of_constants_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And are as they were at each call: a result that views one is a copy."""
    monkeypatch.setattr(replaying, "HOT", 1)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        table = tinytorch.arange(6.0).reshape(2, 3).t()
        return x * table[1:], table[0], table.t()

    x = tinytorch.ones(2, 2)
    with tinytorch.using_backend(OptimizedBackend()):
        run = replayed(function)
        for _ in range(4):
            found = run(x)
            for ours, wanted in zip(found, function(x), strict=True):
                np.testing.assert_array_equal(ours.numpy(), wanted.numpy())
            found[1].fill_(7.0)
            found[2].fill_(7.0)
        (program,) = programs(run)
    assert "reshape" not in program.run.__code__.co_names
    assert "transpose" not in program.run.__code__.co_names
