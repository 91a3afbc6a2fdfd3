"""Fused kernels of a backend: when they are called, and that they change nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tinytorch
from tests.optim.test_against_torch import adam_options, dtypes, seeds, sgd_options
from tinytorch import AutogradError, Mode, Tensor
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized.backend import OptimizedBackend
from tinytorch.dtypes import Array
from tinytorch.optim import SGD, Adam, AdamW, Optimizer
from tinytorch.updates import UPDATES


class FusedBackend(NumpyBackend):
    """The kernels as their contract says, in NumPy."""

    def __init__(self) -> None:
        self.calls = 0

    def sgd_step(
        self,
        p: Array,
        g: Array,
        buffer: Array | None,
        *,
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
        first: bool,
    ) -> None:
        self._check(p, g, *([] if buffer is None else [buffer]))
        direction = g + weight_decay * p
        if momentum:
            assert buffer is not None
            buffer[...] = direction if first else momentum * buffer + (1 - dampening) * direction
            direction = direction + momentum * buffer if nesterov else buffer
        p -= lr * direction

    def adam_step(
        self,
        p: Array,
        g: Array,
        m: Array,
        v: Array,
        step: Array,
        *,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        decoupled: bool,
    ) -> None:
        self._check(p, g, m, v)
        assert step.shape == () and step.dtype == np.float32
        step += 1
        t = int(step)
        if decoupled:
            p *= 1 - lr * weight_decay
        else:
            g = g + weight_decay * p
        m[...] = beta1 * m + (1 - beta1) * g
        v[...] = beta2 * v + (1 - beta2) * g * g
        mean, variance = m / (1 - beta1**t), v / (1 - beta2**t)
        p -= lr * mean / (np.sqrt(variance) + eps)

    def _check(self, *arrays: Array) -> None:
        """A compiled kernel reads any memory as if it were like this."""
        self.calls += 1
        first, *_ = arrays
        assert all(a.flags.c_contiguous for a in arrays)
        assert all((a.shape, a.dtype) == (first.shape, first.dtype) for a in arrays)


def updated(backend: Any, make: Any, dtype: str, seed: int) -> list[Array]:
    """A parameter after each of 20 steps."""
    rng = np.random.default_rng(seed)
    p = tinytorch.tensor(rng.normal(size=(3, 4)).astype(dtype), requires_grad=True)
    seen = []
    with tinytorch.using_backend(backend):
        optimizer = make([p])
        for _ in range(20):
            gradient = rng.normal(size=(4, 3)).astype(dtype).T  # not contiguous
            p.grad = tinytorch.from_numpy(gradient)
            optimizer.step()
            seen.append(p.detach().numpy().copy())
    return seen


def assert_fusing_changes_nothing(make: Any, dtype: str, seed: int) -> int:
    backend = FusedBackend()
    fused = updated(backend, make, dtype, seed)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    for ours, parts in zip(fused, updated("numpy", make, dtype, seed), strict=True):
        np.testing.assert_allclose(ours, parts, rtol=tolerance, atol=tolerance)
    return backend.calls


@settings(max_examples=25)
@given(sgd_options(), dtypes, seeds)
def test_sgd(options: dict[str, Any], dtype: str, seed: int) -> None:
    calls = assert_fusing_changes_nothing(lambda p: SGD(p, **options), dtype, seed)
    assert calls == 20


@settings(max_examples=25)
@given(adam_options, dtypes, seeds)
def test_adam(options: dict[str, Any], dtype: str, seed: int) -> None:
    for cls in (Adam, AdamW):
        calls = assert_fusing_changes_nothing(lambda p, cls=cls: cls(p, **options), dtype, seed)
        assert calls == (0 if options["amsgrad"] else 20)


#: Optimizers by the update that they make.
MAKERS: dict[str, list[Any]] = {
    "sgd_step": [
        lambda p: SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
        lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
        lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    ],
    "adam_step": [
        lambda p: Adam(p, lr=0.1, weight_decay=0.1),
        lambda p: AdamW(p, lr=0.1, weight_decay=0.1),
    ],
}


#: Updates of no optimizer, and the tests that compare them.
COMPARED = {"running_statistics": "tests/nn/functional/test_norm.py"}


@pytest.mark.parametrize("name", UPDATES)
def test_every_update_is_compared_on_the_optimized_backend(name: str) -> None:
    elsewhere = Path(__file__).parents[2] / COMPARED.get(name, "README.md")
    assert name in MAKERS or f'"{name}"' in elsewhere.read_text(encoding="utf-8"), (
        f"the update {name} is in no test: add optimizers to MAKERS in {__file__}"
    )
    assert callable(getattr(tinytorch.backends.find_backend("optimized"), name))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("make", [make for makers in MAKERS.values() for make in makers])
def test_the_kernels_of_the_optimized_backend(make: Any, dtype: str) -> None:
    fused, parts = (updated(backend, make, dtype, 3) for backend in ("optimized", "numpy"))
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(fused, parts, rtol=tolerance, atol=tolerance)


def one_step(p: Tensor, optimizer: Optimizer, backend: FusedBackend) -> None:
    with tinytorch.using_backend(backend):
        p.grad = tinytorch.ones(p.shape)
        optimizer.step()


def test_a_mode_gets_the_update_in_parts() -> None:
    p, backend = tinytorch.ones(2, requires_grad=True), FusedBackend()
    with Mode():
        one_step(p, SGD([p], lr=0.5), backend)
    assert backend.calls == 0
    assert p.tolist() == [0.5, 0.5]


def test_a_parameter_that_is_a_view_is_updated_in_parts() -> None:
    whole, backend = np.ones((2, 3), np.float32), FusedBackend()
    p = tinytorch.from_numpy(whole.T).requires_grad_()
    one_step(p, SGD([p], lr=0.5), backend)
    assert backend.calls == 0
    assert np.all(whole == 0.5)


def parameters_of_all_kinds() -> list[Tensor]:
    """Plain ones before, between and behind: gradients in another order or read-only, a view."""
    wide = np.ones((3, 4), np.float32)
    arrays = [np.full((3, 4), 2.0, np.float32), np.ones(4, np.float32), np.ones((4, 3), np.float32),
              wide[:, ::2], np.ones((2, 2), np.float32), np.ones(3)]  # fmt: skip
    params = [tinytorch.from_numpy(a).requires_grad_() for a in arrays]
    gradients = [np.arange(float(p.meta.size)).reshape(p.shape).astype(a.dtype)
                 for p, a in zip(params, arrays, strict=True)]  # fmt: skip
    gradients[2] = np.asfortranarray(gradients[2])
    gradients[4].flags.writeable = False
    for p, g in zip(params, gradients, strict=True):
        p.grad = tinytorch.from_numpy(g)
    return [*params, tinytorch.ones(2, requires_grad=True)]  # without a gradient


def test_plain_parameters_take_a_step_together_with_the_bits_of_each_alone() -> None:
    steps = []
    for each_alone in (False, True):
        params = parameters_of_all_kinds()
        for group in [[p] for p in params] if each_alone else [params]:
            with tinytorch.using_backend("optimized"):
                SGD(group, lr=0.1, weight_decay=0.1).step()
        steps.append([p.detach().numpy() for p in params])
    for together, alone in zip(*steps, strict=True):
        np.testing.assert_array_equal(together, alone, strict=True)
    assert not np.array_equal(steps[0][3], np.ones((3, 2)))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_backward_notices_what_was_written_together(number: int) -> None:
    params = [tinytorch.ones(2, requires_grad=True) for _ in range(3)]
    other = tinytorch.ones(2, requires_grad=True)
    loss = (other * params[number]).sum()
    for p in params:
        p.grad = tinytorch.ones(2)
    with tinytorch.using_backend("optimized"):
        SGD(params, lr=0.5).step()
    assert [p.tolist() for p in params] == [[0.5, 0.5]] * 3
    with pytest.raises(AutogradError, match="overwritten in place"):
        loss.backward()


def test_a_kernel_of_ones_own_is_called_for_each_parameter() -> None:
    seen = []

    class Mine(OptimizedBackend):
        def sgd_step(self, p: Array, *rest: Any, **params: Any) -> None:
            seen.append(p)

    params = [tinytorch.ones(2, requires_grad=True) for _ in range(3)]
    for p in params:
        p.grad = tinytorch.ones(2)
    with tinytorch.using_backend(Mine()):
        SGD(params, lr=0.5).step()
    assert len(seen) == 3


def test_a_read_only_parameter_is_refused() -> None:
    array, backend = np.ones(2, np.float32), FusedBackend()
    array.flags.writeable = False
    p = tinytorch.from_numpy(array).requires_grad_()
    with pytest.raises(AutogradError, match="read-only view"):
        one_step(p, SGD([p], lr=0.5), backend)
    assert backend.calls == 0


@pytest.mark.parametrize("make", [lambda p: SGD(p, momentum=0.9), Adam], ids=["SGD", "Adam"])
def test_backward_notices_what_a_kernel_has_written(make: Any) -> None:
    p, backend = tinytorch.ones(2, requires_grad=True), FusedBackend()
    optimizer = make([p])
    one_step(p, optimizer, backend)
    changed = [p, *(t for t in optimizer.state[p].values() if isinstance(t, Tensor))]
    other = tinytorch.ones(2, requires_grad=True)
    losses = [(other * t).sum() for t in changed]  # the gradient of `other` reads t
    one_step(p, optimizer, backend)
    for loss in losses:
        with pytest.raises(AutogradError):
            loss.backward()


def test_the_step_count_of_adam_is_a_tensor_as_in_pytorch() -> None:
    p = tinytorch.ones(2, requires_grad=True)
    optimizer = Adam([p], lr=0.5)
    for _ in range(2):
        one_step(p, optimizer, FusedBackend())
    step = optimizer.state[p]["step"]
    assert (step.dtype, step.shape, step.item()) == (tinytorch.float32, (), 2.0)
    # at gradients of 1 each step is lr, but for eps
    assert math.isclose(p.tolist()[0], 0.0, abs_tol=1e-6)


@pytest.mark.parametrize("base", [SGD, Adam])
def test_an_update_of_ones_own_is_called_for_each_parameter(base: Any) -> None:
    class Halved(base):  # type: ignore[misc]
        def update(self, p: Tensor, g: Tensor, state: Any, group: Any) -> None:
            super().update(p, g * 0.5, state, group)
            seen.append(p)

    seen: list[Tensor] = []
    params = [tinytorch.ones(2, requires_grad=True) for _ in range(3)]
    for p in params:
        p.grad = tinytorch.ones(2)
    Halved(params, lr=0.5).step()
    assert [id(p) for p in seen] == [id(p) for p in params]
    assert params[0].tolist()[0] == pytest.approx(0.75 if base is SGD else 0.5)


def test_a_group_may_have_parameters_of_two_dtypes_and_some_at_their_first_step() -> None:
    params = [tinytorch.ones(2, requires_grad=True, dtype=d) for d in ("float32", "float64")]
    late = tinytorch.ones(2, requires_grad=True)
    optimizer = SGD([*params, late], lr=0.5, momentum=0.5, dampening=0.5)
    for step in range(2):
        for p in [*params, late][: 2 + step]:
            p.grad = tinytorch.ones(2, dtype=p.dtype)
        optimizer.step()
    assert [p.tolist()[0] for p in (*params, late)] == [0.0, 0.0, 0.5]
