"""The world changes between calls: compiled code notices, and does what eager code does.

Each world is a function and something that it reads; each has mutations. Eager code on a second,
equal world is the specification: results, gradients and state must be the same after every call.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.compiler.worlds import PAIRS, WORLDS, Twins, X, linear
from tinytorch import nn, optim
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("backend")

BOTH = ["numpy", pytest.param("optimized", marks=pytest.mark.slow)]


@pytest.mark.slow_beyond(7)
@pytest.mark.parametrize("backend", BOTH, indirect=True)
@pytest.mark.parametrize(("name", "mutation"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_a_change_between_calls_is_noticed(name: str, mutation: str) -> None:
    twins = Twins(name)
    twins.check()
    twins.check()
    twins.mutate(mutation)
    twins.check()
    twins.check()


def combine(name: str, seed: int, length: int) -> None:
    """Mutations and calls in random order, on one compiled function."""
    rng, twins = random.Random(seed), Twins(name)
    history = []
    names = list(twins.eager.mutations)
    for _ in range(length):
        grad = rng.random() < 0.8
        for _ in range(rng.randrange(3)):
            history.append(rng.choice(names))
            twins.mutate(history[-1])
        for _ in range(rng.randrange(1, 4)):
            try:
                twins.check(grad)
            except Exception as error:
                error.add_note(f"{name}, seed {seed}: {history}, gradients {grad}")
                raise


@pytest.mark.slow_beyond(4)
@pytest.mark.parametrize("name", WORLDS)
def test_changes_combined(name: str) -> None:
    combine(name, seed=0, length=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("name", WORLDS)
def test_many_changes_combined(name: str, seed: int) -> None:
    combine(name, seed, length=8)


# -- modes and arguments ---------------------------------------------------------------------------


def test_an_encoder_evaluated_first_still_trains() -> None:
    encoder = linear(3, 2)
    compiled = tinytorch.compile(encoder)
    x = tinytorch.tensor(X)
    with tinytorch.no_grad():
        assert not compiled(x).requires_grad
    for _ in range(2):
        out = compiled(x)
        assert out.requires_grad
        out.sum().backward()
        np.testing.assert_allclose(encoder.weight.grad.numpy(), np.tile(X.sum(0), (2, 1)), 1e-5)
        encoder.zero_grad()
    with tinytorch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled.compiled.reasons == ["first call", "gradients are on, and were not"]


def test_arguments_are_compared_by_what_they_hold() -> None:
    @dataclass
    class Config:
        scale: float
        flags: list[bool] = field(default_factory=lambda: [True])

    def function(x: Tensor, config: Any, sign: float) -> Tensor:
        y = x * config.scale if config.flags[0] else x
        return y + (1.0 / (tinytorch.ones(1) * sign))

    compiled = tinytorch.compile(function)
    x, config = tinytorch.tensor(X), Config(2.0)

    def check(*args: Any) -> None:
        assert np.array_equal(compiled(x, *args).numpy(), function(x, *args).numpy())

    check(config, 0.0)
    check(Config(2.0), 0.0)
    assert len(compiled.reasons) == 1  # equal, though another object
    check(config, -0.0)
    config.scale = 3.0
    check(config, 0.0)
    config.flags[0] = False
    check(config, 0.0)
    assert compiled.reasons[1:] == [
        "argument 2 is -0.0, and was 0.0",
        "argument 1.scale is 3.0, and was 2.0",
        "argument 1.flags[0] is False, and was True",
    ]


def test_nan_is_no_other_number_than_nan() -> None:
    compiled = tinytorch.compile(lambda x, fill: x * fill)
    for _ in range(3):
        assert math.isnan(compiled(tinytorch.ones(1), float("nan")).item())
    assert compiled.reasons == ["first call"]


def test_a_counter_beside_the_function_costs_no_trace() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.steps, self.weight = 0, tinytorch.ones(3)

        @tinytorch.compile
        def step(self, x: Tensor) -> Tensor:
            return x * self.weight

        def fit(self) -> None:
            for _ in range(4):
                self.step(tinytorch.ones(3))
                self.steps += 1

    trainer = Trainer()
    trainer.fit()
    assert trainer.step.reasons == ["first call"] and trainer.steps == 4


def test_live_rates_cost_no_trace_and_rates_that_code_reads_do() -> None:
    for reads in (False, True):
        w = nn.Parameter([1.0, 2.0])
        optimizer = optim.SGD([w], lr=0.1)

        @tinytorch.compile
        def step(x: Tensor, reads: bool = reads, optimizer: Any = optimizer, w: Any = w) -> Any:
            optimizer.zero_grad()
            (x * w).sum().backward()
            optimizer.step()
            return optimizer.param_groups[0]["lr"] if reads else None

        rates = []
        for rate in (0.1, 0.2, 0.3):
            optimizer.param_groups[0]["lr"] = rate
            rates.append(step(tinytorch.ones(2)))
        np.testing.assert_allclose(w.detach().numpy(), [0.4, 1.4], 1e-5)
        assert rates == ([0.1, 0.2, 0.3] if reads else [None] * 3)
