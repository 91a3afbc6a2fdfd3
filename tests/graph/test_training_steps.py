"""Whole training steps: traced once, optimized, replayed, and equal to eager to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.steps import training_step
from tinytorch import nn, optim
from tinytorch.graph import PassManager, Specializing, TracedFunction, trace

pytestmark = pytest.mark.usefixtures("numpy_backend")
PASSES = ["algebra", "layout", "fold", "cse", "dce", "fusion"]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 4)
    )


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 2 * 2, 10), nn.Tanh(), nn.Linear(10, 4),
    )  # fmt: skip


MODELS = {"mlp": (mlp, (12,)), "lenet": (lenet, (1, 12, 12))}
OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.05),
    "momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=1e-3),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=1e-3),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def optimized(traced: TracedFunction) -> TracedFunction:
    graph, report = PassManager(PASSES, rounds=2).run(traced.graph)
    assert not report.failures, report
    return traced.with_graph(graph)


class Run:
    """Some training steps, and everything that they leave behind."""

    def __init__(self, model: str, optimizer: str, transform: Any, steps: int = 5) -> None:
        make, shape = MODELS[model]
        tinytorch.manual_seed(1)
        self.model = make()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        schedule = optim.StepLR(self.optimizer, step_size=2, gamma=0.5)
        rng = np.random.default_rng(2)

        step = training_step(self.model, self.optimizer)

        self.step = step if transform is None else Specializing(step, transform=transform)
        self.losses = []
        for _ in range(steps):
            x = tinytorch.tensor(rng.standard_normal((6, *shape)).astype(np.float32))
            y = tinytorch.tensor(rng.integers(0, 4, 6))
            self.losses.append(self.step(x, y).item())
            schedule.step()

    def state(self) -> dict[str, np.ndarray]:
        found = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for i, saved in self.optimizer.state_dict()["state"].items():
            found.update({f"optimizer.{i}.{k}": v for k, v in saved.items()})
        grads = {f"grad.{k}": p.grad for k, p in self.model.named_parameters()}
        random = tinytorch.random.default_generator.get_state()
        return {k: np.array(v) for k, v in {**found, **grads, **random}.items()}


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("transform", [lambda t: t, optimized], ids=["traced", "optimized"])
@pytest.mark.parametrize(
    ("model", "optimizer"), [*(("mlp", o) for o in OPTIMIZERS), ("lenet", "sgd"), ("lenet", "adam")]
)
def test_replayed_steps_equal_eager_ones(model: str, optimizer: str, transform: Any):
    eager = Run(model, optimizer, None)
    replayed = Run(model, optimizer, transform)
    assert replayed.losses == eager.losses
    expected = eager.state()
    for name, value in replayed.state().items():
        assert value.dtype == expected[name].dtype, name
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_a_traced_step_can_be_traced_again():
    tinytorch.manual_seed(1)
    model = mlp()
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    step = training_step(model, optimizer)

    x, y = tinytorch.rand(6, 12), tinytorch.zeros(6, dtype="int64")
    once = trace(step, x, y)
    twice = trace(once, x, y)
    names = [[n.target.name for n in t.graph.find_nodes(op="call_function")] for t in (once, twice)]
    # putting state back in place shows as an expand or copy of what is put back
    assert [n for n in names[1] if n not in ("expand", "copy")] == [
        n for n in names[0] if n not in ("expand", "copy")
    ]
    start = {k: v.clone() for k, v in model.state_dict().items()}
    random = tinytorch.random.default_generator.get_state()
    first = once(x, y).item()
    after = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(start)
    optimizer.state.clear()
    tinytorch.random.default_generator.set_state(random)
    assert trace(trace(step, x, y), x, y)(x, y).item() == first
    for name, value in model.state_dict().items():
        assert np.array_equal(value.numpy(), after[name].numpy()), name


def test_a_schedule_does_not_retrace():
    run = Run("mlp", "adam", lambda t: t, steps=6)
    assert run.step.reasons == ["first call"]


def test_switching_to_evaluation_retraces():
    model = mlp()
    step = Specializing(model)
    x = tinytorch.ones(3, 12)
    step(x)
    model.eval()
    assert np.array_equal(step(x).detach().numpy(), model(x).detach().numpy())
    model.train()
    step(x)
    assert step.reasons == ["first call", "training is False, and was True"]
    assert len(step.traces) == 2


def test_the_cache_is_bounded():
    double = Specializing(lambda x: x * 2.0, maxsize=2)
    for n in (1, 2, 1, 3, 2):
        assert double(tinytorch.ones(n)).tolist() == [2.0] * n
    assert len(double.traces) == 2 and len(double.reasons) == 4
    with pytest.raises(ValueError, match="maxsize must be at least 1"):
        Specializing(lambda x: x, maxsize=0)


def test_phases_are_told_apart():
    run = Run("mlp", "momentum", lambda t: t, steps=1)
    (traced,) = run.step.traces
    phases = [n.meta["phase"] for n in traced.graph.find_nodes(op="call_function")]
    assert list(dict.fromkeys(phases)) == ["forward", "backward", "optimizer"]


def test_lenet_names_what_it_reads():
    make, shape = MODELS["lenet"]
    model = make()
    traced = trace(model, tinytorch.zeros(2, *shape))
    names = {n.target for n in traced.graph.find_nodes(op="placeholder")}
    parameters = dict(model.named_parameters())
    assert parameters.keys() <= names and "4.running_mean" in names and "seed" in names


@pytest.mark.parametrize("of", ["model", "optimizer"])
def test_a_gradient_that_is_not_there_is_not_set_to_zeros(of: str) -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2)})
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)

    def step(x: tinytorch.Tensor) -> None:
        (model if of == "model" else optimizer).zero_grad(set_to_none=False)
        model["used"](x).sum().backward()
        optimizer.step()

    before = model["unused"].weight.tolist()
    compiled = tinytorch.compile(step, mode="interpret")
    for _ in range(2):
        compiled(tinytorch.ones(4, 3))
        assert [p.grad is None for p in model.parameters()] == [False, False, True, True]
    assert model["unused"].weight.tolist() == before
