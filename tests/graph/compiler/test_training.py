"""A hundred training steps, compiled and eager: the same losses, and the same state everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.steps import training_step
from tests.graph.test_training_steps import MODELS, OPTIMIZERS
from tinytorch import optim
from tinytorch.nn import functional as F
from tinytorch.state import using_backend

STEPS = 100


class Run:
    """Training steps with dropout, batch norm and a schedule, and all that they leave behind."""

    def __init__(
        self, model: str, optimizer: str, steps: int, options: dict[str, Any] | None
    ) -> None:
        make, shape = MODELS[model]
        tinytorch.manual_seed(1)
        self.model = make()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        schedule = optim.StepLR(self.optimizer, step_size=20, gamma=0.5)
        rng = np.random.default_rng(2)

        step = training_step(self.model, self.optimizer)

        self.step: Callable[..., Any]
        self.step = step if options is None else tinytorch.compile(step, **options)
        self.losses = []
        before = self.objects()
        for _ in range(steps):
            x = tinytorch.tensor(rng.standard_normal((6, *shape)).astype(np.float32))
            y = tinytorch.tensor(rng.integers(0, 4, 6))
            self.losses.append(self.step(x, y).item())
            schedule.step()
        assert self.objects() == before

    def objects(self) -> list[int]:
        """Who holds the parameters and buffers, and their memory: these stay the same objects."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return [*map(id, tensors), *(id(t._data) for t in tensors)]

    def state(self) -> dict[str, np.ndarray]:
        found = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for i, saved in self.optimizer.state_dict()["state"].items():
            found.update({f"optimizer.{i}.{k}": v for k, v in saved.items()})
        grads = {f"grad.{k}": p.grad for k, p in self.model.named_parameters()}
        random = tinytorch.random.default_generator.get_state()
        return {k: np.array(v) for k, v in {**found, **grads, **random}.items()}


def compare(model: str, optimizer: str, steps: int = STEPS, **options: Any) -> Run:
    eager = Run(model, optimizer, steps, None)
    expected = eager.state()
    compiled = Run(model, optimizer, steps, options)
    np.testing.assert_allclose(compiled.losses, eager.losses, 1e-4)
    for name, value in compiled.state().items():
        assert value.dtype == expected[name].dtype, name
        # rounding differs, and a hundred steps carry it on
        np.testing.assert_allclose(value, expected[name], 2e-3, 2e-5, err_msg=name)
    return compiled


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("mode", ["python", "interpret"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_mlp(optimizer: str, mode: str):
    with using_backend("numpy"):
        run = compare("mlp", optimizer, STEPS if mode == "python" else 20, mode=mode)
    assert run.step.traces[-1].code.mode == mode
    # a momentum buffer that the first step makes takes a second trace
    assert len(run.step.reasons) == (2 if optimizer == "momentum" else 1), run.step.reasons


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_lenet(optimizer: str):
    with using_backend("numpy"):
        compare("lenet", optimizer, 30, mode="python")


def test_on_the_naive_backend():
    with using_backend("naive"):
        compare("mlp", "momentum", 5, mode="python")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["python", "auto"])
@pytest.mark.parametrize(("model", "optimizer"), [("mlp", "adam"), ("lenet", "momentum")])
def test_on_the_optimized_backend(model: str, optimizer: str, mode: str):
    with using_backend("optimized"):
        compare(model, optimizer, mode=mode)


@pytest.mark.parametrize("mode", ["python", "auto"])
@pytest.mark.parametrize("steps", [True, False])
def test_gradients_that_others_left_are_dropped_and_used_as_in_eager_mode(mode, steps):
    """Of a parameter that the step does not use, by an optimizer that has it."""
    p, q = (tinytorch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    optimizer = optim.SGD([p, q], lr=0.5)

    def step(x):
        (p * x).sum().backward()
        if steps:
            optimizer.step()
        optimizer.zero_grad()

    compiled = tinytorch.compile(step, mode=mode)
    x = tinytorch.ones(2)
    compiled(x)
    for _ in range(3):
        before = q.tolist()
        q.grad = tinytorch.ones(2)
        compiled(x)
        assert p.grad is None and q.grad is None
        assert q.tolist() == [v - 0.5 * steps for v in before]
        compiled(x)
        assert p.grad is None and q.grad is None


def test_gradients_can_be_dropped():
    with using_backend("numpy"):
        eager = Run("mlp", "adam", 10, None)
        dropped = Run("mlp", "adam", 10, {"mode": "python", "keep_grads": False})
    np.testing.assert_allclose(dropped.losses, eager.losses, 1e-4)
    assert all(p.grad is None for p in dropped.model.parameters())


def test_a_schedule_and_a_changed_rate_do_not_retrace():
    with using_backend("numpy"):
        run = Run("mlp", "adam", 25, {"mode": "python"})
        assert run.step.reasons == ["first call"]
        run.optimizer.param_groups[0]["lr"] = 0.0
        before = run.state()
        x, y = tinytorch.ones(6, 12), tinytorch.zeros(6, dtype="int64")
        run.step(x, y)
    after = run.state()
    assert run.step.reasons == ["first call"]
    assert np.array_equal(after["model.0.weight"], before["model.0.weight"])
    assert not np.array_equal(after["optimizer.0.exp_avg"], before["optimizer.0.exp_avg"])
    assert after["optimizer.0.step"] == before["optimizer.0.step"] + 1


def test_eager_and_compiled_steps_alternate():
    with using_backend("numpy"):
        runs = [Run("mlp", "adam", 0, None) for _ in range(2)]
        compiled = tinytorch.compile(runs[1].step, mode="python")
        rng = np.random.default_rng(0)
        for i in range(8):
            x = tinytorch.tensor(rng.standard_normal((6, 12)).astype(np.float32))
            y = tinytorch.tensor(rng.integers(0, 4, 6))
            losses = []
            for run in runs:
                tinytorch.manual_seed(i)
                step = compiled if run is runs[1] and i % 2 else run.step
                losses.append(step(x, y).item())
            assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        for name, value in runs[0].state().items():
            np.testing.assert_allclose(runs[1].state()[name], value, 1e-4, 1e-6, err_msg=name)


def test_clipping_and_a_moving_average_inside():
    def run(compiled: bool) -> list[np.ndarray]:
        tinytorch.manual_seed(0)
        model = MODELS["mlp"][0]()
        parameters = list(model.parameters())
        averages = [p.detach().clone() for p in parameters]
        optimizer = optim.SGD(parameters, lr=0.05, momentum=0.9)

        def step(x: tinytorch.Tensor, y: tinytorch.Tensor) -> dict[str, Any]:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            norm = optim.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
            with tinytorch.no_grad():
                for average, p in zip(averages, parameters, strict=True):
                    average.mul_(0.9).add_(p, alpha=0.1)
            return {"loss": loss, "norm": norm}

        function = tinytorch.compile(step, mode="python") if compiled else step
        rng = np.random.default_rng(1)
        found = []
        for _ in range(10):
            x = tinytorch.tensor(rng.standard_normal((6, 12)).astype(np.float32))
            result = function(x, tinytorch.tensor(rng.integers(0, 4, 6)))
            found += [np.array(result["loss"].detach()), np.array(result["norm"].detach())]
        return [*found, *(np.array(t.detach()) for t in [*averages, *parameters])]

    with using_backend("numpy"):
        for a, b in zip(run(True), run(False), strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-6)
