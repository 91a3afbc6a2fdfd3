"""Gradients of slices are put together once, whatever was cut and whatever else there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import ops
from tinytorch.autograd import grad, slices
from tinytorch.backends import reference
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.replay import replayed
from tinytorch.replay.function import HOT
from tinytorch.state import current_backend


def _halves(x: Any) -> Any:
    return x[:, :3], x[:, 3:]


CUTS: dict[str, Callable[[Any], Any]] = {
    "unbind 0": lambda x: x.unbind(0),
    "unbind 1": lambda x: x.unbind(1),
    "unbind last": lambda x: x.unbind(-1),
    "split": lambda x: x.split(2, 1),
    "sizes, one of them 0": lambda x: x.split([1, 0, 5], 1),
    "all but one": lambda x: x.unbind(1)[1:],
    "twice the same": lambda x: (x[0], x[1], x[1], x[2]),
    "as many elements, with a gap": lambda x: (x[0:1], x[0:1], x[2:3], x[3:4]),
    "overlapping": lambda x: [x[:, i : i + 3] for i in range(4)],
    "two dimensions": lambda x: (x[:2, :3], x[:2, 3:], x[2:, :3], x[2:, 3:]),
    "steps": lambda x: (x[::2], x[1::2]),
    "turned": lambda x: (x.flip(0), x[:2], x.flip(0, 1)),
    "the whole": lambda x: (x, x[1:], x[:1]),
    "the whole through an op": lambda x: (x * 2.0, *x.unbind(0), x + 1.0),
    "in any order": lambda x: (x[2:3], x[:1], x[3:], x[1:2]),
    "slices of a slice": lambda x: (*x[1:].unbind(1), *_halves(x[1:3]), x[:1]),
}


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize("name", CUTS)
def test_gradients_of_slices_are_pytorchs(
    name: str, backend: str, rng: np.random.Generator
) -> None:
    if backend == "optimized":
        pytest.importorskip("numba")
    values = rng.standard_normal((4, 6, 5)).astype("float32")
    x = torch.from_numpy(values).requires_grad_(True)
    parts = list(CUTS[name](x))
    seeds = [rng.standard_normal(tuple(p.shape)).astype("float32") for p in parts]
    (wanted,) = torch.autograd.grad(parts, [x], [torch.from_numpy(s) for s in seeds])
    with tinytorch.using_backend(backend):
        y = tinytorch.from_numpy(values).requires_grad_(True)
        ours = [tinytorch.from_numpy(s) for s in seeds]
        (found,) = grad(list(CUTS[name](y)), [y], ours)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
    for seed, given in zip(seeds, ours, strict=True):
        np.testing.assert_array_equal(given.numpy(), seed)  # nothing was added to them
        assert not np.shares_memory(given.numpy(), found.numpy())


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("name", CUTS)
def test_gradients_of_slices_in_a_program_are_pytorchs(
    name: str, backend: str, rng: np.random.Generator
) -> None:
    """A function that is called often is one program, and so is its gradient."""

    def mixed(x: Any, w: Any) -> Any:
        parts = CUTS[name](x * w)
        return sum((part.tanh() * (i + 1.0)).sum() for i, part in enumerate(parts))

    run, values = replayed(mixed), rng.standard_normal((4, 6, 5)).astype("float32")
    x = torch.from_numpy(values).requires_grad_(True)
    w = torch.from_numpy(values[::-1].copy()).requires_grad_(True)
    wanted = torch.autograd.grad(mixed(x, w), [x, w])
    with tinytorch.using_backend(backend):
        y = tinytorch.from_numpy(values).requires_grad_(True)
        v = tinytorch.from_numpy(values[::-1].copy()).requires_grad_(True)
        for _ in range(2 * HOT):
            found = grad(run(y, v), [y, v])
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(200, 300), (20, 30, 100)])
def test_large_tensors_cut_along_each_dimension(
    shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Columns are joined by rows and turned."""
    x = tinytorch.from_numpy(rng.standard_normal(shape)).requires_grad_(True)
    for dim in range(len(shape)):
        whole = rng.standard_normal(shape)
        seeds = np.split(whole, [1, 2, shape[dim] // 2], dim)
        parts = [x.narrow(dim, start, size) for start, size in _places(seeds, dim)]
        (found,) = grad(parts, [x], [tinytorch.from_numpy(s) for s in seeds])
        np.testing.assert_array_equal(found.numpy(), whole)
        (found,) = grad(
            x.unbind(dim), [x], [tinytorch.from_numpy(w.copy()) for w in np.moveaxis(whole, dim, 0)]
        )
        np.testing.assert_array_equal(found.numpy(), whole)
        assert found.is_contiguous()


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("dim", [0, 1])
def test_large_tensors_cut_in_a_program(dim: int, backend: str, rng: np.random.Generator) -> None:
    """Columns are turned there, too: parts of `cat` are rows."""
    whole = rng.standard_normal((200, 300))
    seeds = [tinytorch.from_numpy(w.copy()) for w in np.moveaxis(whole, dim, 0)]
    x = tinytorch.zeros(200, 300, dtype="float64", requires_grad=True)
    with tinytorch.using_backend(backend):
        for _ in range(2 * HOT):
            (found,) = grad(tinytorch.unbind(x, dim), [x], seeds)
        kernels = current_backend().kernels
    np.testing.assert_array_equal(found.numpy(), whole)
    assert found.is_contiguous()
    joins = {plan.operands for plan in kernels if plan.op is ops.cat and len(plan.operands) > 100}
    assert {parts[0].shape for parts in joins} <= {(1, 300), (1, 200)}


def test_large_tensors_cut_into_pairs_of_columns(rng: np.random.Generator) -> None:
    """What is wider than a column is joined as it is: turned, it would be read along no row."""
    whole = rng.standard_normal((200, 300))
    seeds = [tinytorch.from_numpy(w.copy()) for w in np.split(whole, 150, 1)]
    x = tinytorch.zeros(200, 300, dtype="float64", requires_grad=True)
    with tinytorch.using_backend(NumpyBackend()):
        for _ in range(2 * HOT):
            (found,) = grad(tinytorch.split(x, 2, 1), [x], seeds)
        joins = {plan.operands for plan in current_backend().kernels if plan.op is ops.cat}
    np.testing.assert_array_equal(found.numpy(), whole)
    assert {parts[0].shape for parts in joins} == {(200, 2)}


def _places(parts: list[Any], dim: int) -> list[tuple[int, int]]:
    sizes = [p.shape[dim] for p in parts]
    return list(zip(np.cumsum([0, *sizes[:-1]]).tolist(), sizes, strict=True))


def test_the_gradient_of_a_whole_that_others_hold_stays_as_it_is() -> None:
    x = tinytorch.ones(4, requires_grad=True)
    y = x * 1.0
    seed = tinytorch.arange(4.0)
    for part in (y[1:], y[:2]):
        (found,) = grad([y, part], [y], [seed, tinytorch.ones(*part.shape)], retain_graph=True)
        assert found.tolist() != seed.tolist()
    np.testing.assert_array_equal(seed.numpy(), np.arange(4.0))


def test_zeros_are_made_once_for_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    zeros = reference.unslice
    monkeypatch.setitem(
        reference._FUNCTIONS, "unslice", lambda *a, **k: made.append(1) or zeros(*a, **k)
    )
    with tinytorch.using_backend(NumpyBackend()):
        x = tinytorch.ones(50, 3, requires_grad=True)
        rows = x.unbind(0)
        (rows[0] * 0.0 + rows[1] * 1.0 + rows[49] * 49.0).sum().backward()
        assert len(made) == 1
        x.grad = None
        sum(
            (row * float(i) for i, row in enumerate(x.unbind(0))), tinytorch.zeros(3)
        ).sum().backward()
        assert len(made) == 1  # the rows lie side by side
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.arange(50.0)[:, None] * np.ones(3))


def test_gradients_of_slices_can_be_differentiated_again() -> None:
    def f(x: Any) -> Any:
        a, b = x.split(2)
        return (a * b * b).sum() + (x[1:3] ** 3).sum()

    x = tinytorch.tensor([1.0, 2.0, 3.0, 4.0], dtype="float64", requires_grad=True)
    (first,) = grad(f(x), [x], create_graph=True)
    (second,) = grad(first.sum(), [x])
    t = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True)
    (theirs,) = torch.autograd.grad(f(t), [t], create_graph=True)
    (wanted,) = torch.autograd.grad(theirs.sum(), [t])
    np.testing.assert_allclose(second.numpy(), wanted.numpy())


def test_a_hook_sees_the_gradient_of_the_whole_once() -> None:
    x = tinytorch.ones(4, requires_grad=True)
    y = x * 1.0
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y[:2].sum() + y[2:].sum() * 2.0 + y[1:2].sum()).backward()
    assert seen == [[1.0, 2.0, 2.0, 2.0]]


def test_minus_zero_survives() -> None:
    """As where PyTorch stacks the gradients."""
    x = tinytorch.ones(2, requires_grad=True)
    (found,) = grad(x.unbind(0), [x], [tinytorch.tensor(-0.0), tinytorch.tensor(-0.0)])
    assert np.signbit(found.numpy()).all()


def test_what_waits_is_an_array_and_not_followed() -> None:
    x = tinytorch.ones(4, requires_grad=True)
    record = x[1:].history
    assert record is not None
    assert slices.may_wait(record, tinytorch.ones(3)) is False  # gradients are on
    with tinytorch.no_grad():
        assert slices.may_wait(record, tinytorch.ones(3)) is True
        assert slices.may_wait(record, tinytorch.ones(4)) is False
