"""What a trace cannot repeat: effects on Python's values are refused and undone."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.graph.compiler.worlds import Plain
from tinytorch import nn, optim
from tinytorch.graph import TraceError
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("backend")
GLOBAL = 2.0


def refused(function: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        tinytorch.compile(function)(tinytorch.ones(2, requires_grad=True))


def test_python_effects_are_refused_and_undone() -> None:
    calls: list[int] = []
    counts, seen, plain = {"n": 0}, {1}, Plain()
    number = 0

    def appends(x: Tensor) -> Tensor:
        calls.append(1)
        return x * 2.0

    def counts_in_a_dict(x: Tensor) -> Tensor:
        counts["n"] += 1
        return x * 2.0

    def adds_to_a_set(x: Tensor) -> Tensor:
        seen.add(2)
        return x * 2.0

    def sets_an_attribute(x: Tensor) -> Tensor:
        plain.counter += 1
        plain.new = 1
        return x * 2.0

    def sets_a_variable(x: Tensor) -> Tensor:
        nonlocal number
        number += 1
        return x * 2.0

    def sets_a_global(x: Tensor) -> Tensor:
        global GLOBAL
        GLOBAL += 1.0
        return x * 2.0

    before = GLOBAL
    refused(appends, r"calls\.0 became 1 in the traced function.*; do it outside")
    refused(counts_in_a_dict, r"counts\.n became 1")
    refused(adds_to_a_set, r"seen\.2 became")
    refused(sets_an_attribute, r"plain\.(counter|new) became 1")
    refused(sets_a_variable, r"number became 1")
    refused(sets_a_global, r"GLOBAL became")
    assert (calls, counts, seen, number, GLOBAL) == ([], {"n": 0}, {1}, 0, before)
    assert vars(plain) == vars(Plain())


def test_a_schedule_inside_is_refused_and_undone() -> None:
    w = nn.Parameter([1.0])
    optimizer = optim.SGD([w], lr=0.1)
    schedule = optim.StepLR(optimizer, step_size=1, gamma=0.5)

    def step(x: Tensor) -> None:
        (x * w).sum().backward()
        optimizer.step()
        schedule.step()

    refused(step, r"call scheduler\.step\(\) after the compiled function")
    assert (schedule.last_epoch, optimizer.param_groups[0]["lr"]) == (0, 0.1)


def test_random_numbers_of_others_are_refused() -> None:
    private, numbers = random.Random(0), np.random.default_rng(0)
    states = random.getstate(), np.random.get_state()[1].copy(), private.getstate()
    refused(lambda x: x * random.random(), "drew numbers from Python's random")
    refused(lambda x: x * np.random.rand(), r"drew numbers from np\.random")
    refused(lambda x: x * private.random(), "drew numbers from private")
    refused(lambda x: x * numbers.random(), "drew numbers from numbers")
    assert states[0] == random.getstate() and states[2] == private.getstate()
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert numbers.random() == np.random.default_rng(0).random()


def test_hooks_inside() -> None:
    gradients: list[Any] = []
    w = nn.Parameter([1.0, 2.0])
    handle = w.register_hook(lambda g: gradients.append(g))

    def step(x: Tensor) -> None:
        (x * w).sum().backward()

    refused(step, "gradients.0 was set to a traced tensor")
    handle()
    refused(lambda x: (w.register_hook(lambda g: g), x * w)[1], "register_hook on a leaf")

    def hooked(x: Tensor) -> Tensor:
        y = x * w
        y.register_hook(lambda g: g * 2.0)
        return y * 3.0

    refused(hooked, "register_hook")


def test_seeding_inside_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        tinytorch.manual_seed(0)
        return x + tinytorch.rand(2)

    refused(function, "manual_seed")


def test_a_result_that_hides_tensors_is_refused() -> None:
    refused(lambda x: SimpleNamespace(loss=x * 2.0), "a tuple, a list or a dict")


def test_functional_calls_are_no_state() -> None:
    compiled = tinytorch.compile(lambda x: F.relu(x))
    assert compiled(tinytorch.ones(2)).tolist() == [1.0, 1.0]
