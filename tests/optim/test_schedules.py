"""Schedules beside PyTorch's, and their errors."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

import tinytorch
from tinytorch import optim
from tinytorch.optim import SGD, Adam, OneCycleLR, ReduceLROnPlateau, RMSprop

STEPS = 40
whole = st.integers(1, 15)
rate = st.sampled_from([0.1, 0.5, 0.97])


def optimizers(name: str = "SGD") -> tuple[Any, Any]:
    """Two groups each, ours and PyTorch's."""
    rates = [0.5, 0.02]
    p = [{"params": [tinytorch.zeros(1)], "lr": lr} for lr in rates]
    q = [{"params": [torch.zeros(1)], "lr": lr} for lr in rates]
    return getattr(optim, name)(p), getattr(torch.optim, name)(q)


def rates_of(optimizer: Any) -> list[float]:
    return [
        value
        for group in optimizer.param_groups
        for value in (group["lr"], group["betas"][0] if "betas" in group else group["momentum"])
    ]


def assert_like_torch(
    make: Callable[[Any, Any], Any], name: str = "SGD", steps: int = STEPS
) -> None:
    ours, theirs = optimizers(name)
    mine = make(ours, optim)
    with warnings.catch_warnings():
        # PyTorch warns that no optimizer step came first, and of its own calls in SequentialLR
        warnings.simplefilter("ignore")
        other = make(theirs, torch.optim.lr_scheduler)
        for t in range(steps):
            assert mine.last_epoch == t
            assert mine.get_last_lr() == [group["lr"] for group in ours.param_groups]
            assert rates_of(ours) == pytest.approx(rates_of(theirs), rel=1e-12, abs=1e-15)
            if t < steps - 1:
                mine.step()
                other.step()


@given(whole, rate)
def test_step(size: int, gamma: float) -> None:
    assert_like_torch(lambda o, m: m.StepLR(o, size, gamma))


@given(st.lists(whole, max_size=4), rate)
def test_multi_step(milestones: list[int], gamma: float) -> None:
    assert_like_torch(lambda o, m: m.MultiStepLR(o, milestones, gamma))


@given(rate)
def test_exponential(gamma: float) -> None:
    assert_like_torch(lambda o, m: m.ExponentialLR(o, gamma))


@given(rate, st.sampled_from([0.0, 0.3, 1.0]), whole)
def test_linear(start: float, end: float, total: int) -> None:
    assert_like_torch(lambda o, m: m.LinearLR(o, start, end, total))


@given(st.integers(STEPS, 3 * STEPS), st.sampled_from([0.0, 0.001]))
def test_cosine(period: int, least: float) -> None:
    assert_like_torch(lambda o, m: m.CosineAnnealingLR(o, period, least))


def test_cosine_rises_again() -> None:
    (ours, _) = optimizers()
    schedule = optim.CosineAnnealingLR(ours, 10)
    seen = [schedule.lr_at(1.0, t, 0) for t in range(21)]
    assert seen == pytest.approx(seen[::-1])
    assert (seen[0], seen[20]) == (1.0, 1.0) and seen[10] == pytest.approx(0.0, abs=1e-15)


def test_lambda() -> None:
    assert_like_torch(lambda o, m: m.LambdaLR(o, lambda t: 1 / (1 + t)))
    assert_like_torch(lambda o, m: m.LambdaLR(o, [lambda t: 1 / (1 + t), lambda t: 0.5**t]))


@given(whole, whole, rate)
def test_sequential(first: int, second: int, gamma: float) -> None:
    def make(o: Any, m: Any) -> Any:
        parts = [
            m.LinearLR(o, 0.1, total_iters=first),
            m.StepLR(o, second),
            m.ExponentialLR(o, gamma),
        ]
        return m.SequentialLR(o, parts, [first, first + second])

    assert_like_torch(make)


one_cycle_options = st.fixed_dictionaries(
    {
        "pct_start": st.sampled_from([0.1, 0.3, 0.45]),
        "anneal_strategy": st.sampled_from(["cos", "linear"]),
        "cycle_momentum": st.booleans(),
        "div_factor": st.sampled_from([2.0, 25.0]),
        "final_div_factor": st.sampled_from([10.0, 1e4]),
        "three_phase": st.booleans(),
        "max_lr": st.sampled_from([1.0, [0.5, 0.25]]),
    }
)


@settings(max_examples=50)
@given(one_cycle_options, st.sampled_from(["SGD", "Adam", "RMSprop"]))
def test_one_cycle(options: dict[str, Any], name: str) -> None:
    assert_like_torch(lambda o, m: m.OneCycleLR(o, total_steps=STEPS, **options), name)


@pytest.mark.parametrize("total", [1, 2, 3, 10])
def test_one_cycle_ends_at_its_last_rate(total: int) -> None:
    (ours, _) = optimizers()
    schedule = OneCycleLR(ours, 1.0, total, div_factor=10.0, final_div_factor=10.0)
    for _ in range(total):
        schedule.step()
    assert schedule.get_last_lr() == pytest.approx([0.01, 0.01])
    with pytest.raises(ValueError, match=f"step {total + 1} of a OneCycleLR of {total} steps"):
        schedule.step()


plateau_options = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["min", "max"]),
        "factor": st.sampled_from([0.1, 0.5]),
        "patience": st.integers(0, 3),
        "threshold": st.sampled_from([0.0, 1e-4, 0.1]),
        "threshold_mode": st.sampled_from(["rel", "abs"]),
        "cooldown": st.integers(0, 2),
        "min_lr": st.sampled_from([0.0, 0.01]),
    }
)


@given(
    plateau_options,
    st.lists(st.sampled_from([0.0, 0.5, 0.95, 1.0, 1.05, math.inf, math.nan]), max_size=20),
)
def test_plateau(options: dict[str, Any], results: list[float]) -> None:
    ours, theirs = optimizers()
    mine = ReduceLROnPlateau(ours, **options)
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    for result in results:
        mine.step(result)
        other.step(result)
        assert mine.get_last_lr() == [group["lr"] for group in theirs.param_groups]


def test_plateau_takes_tensors() -> None:
    (ours, _) = optimizers()
    plateau = ReduceLROnPlateau(ours)
    plateau.step(tinytorch.tensor(0.5))
    assert plateau.best == 0.5


@pytest.mark.parametrize(
    "make", [lambda o: optim.StepLR(o, 3), lambda o: OneCycleLR(o, 1.0, STEPS)]
)
def test_a_saved_schedule_continues(make: Any) -> None:
    (one, _), (two, _) = optimizers(), optimizers()
    schedule, resumed = make(one), make(two)
    for _ in range(5):
        schedule.step()
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    resumed.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    for _ in range(10):
        assert rates_of(two) == rates_of(one)
        schedule.step()
        resumed.step()


def test_a_saved_plateau_continues() -> None:
    (one, _), (two, _) = optimizers(), optimizers()
    schedule, resumed = ReduceLROnPlateau(one, patience=1), ReduceLROnPlateau(two, patience=1)
    resumed.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    assert resumed.best == math.inf
    schedule.step(1.0)
    schedule.step(1.0)
    resumed.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    resumed.step(1.0)
    assert resumed.get_last_lr() == pytest.approx([0.05, 0.002])


def test_a_second_schedule_starts_from_the_initial_rate() -> None:
    (ours, _) = optimizers()
    optim.LinearLR(ours, 0.1)
    assert optim.ExponentialLR(ours, 0.5).get_last_lr() == [0.5, 0.02]


def schedule() -> Any:
    return optim.StepLR(optimizers()[0], 3)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda o: optim.StepLR(o, 0), "step_size must be at least 1, got 0"),
        (lambda o: optim.CosineAnnealingLR(o, 0), "T_max must be at least 1, got 0"),
        (lambda o: optim.LinearLR(o, 0.0), "start_factor must be in (0, 1] and end_factor"),
        (lambda o: optim.LambdaLR(o, [abs]), "2 groups need as many functions, got 1"),
        (lambda o: OneCycleLR(o, 1.0, 0), "total_steps must be at least 1, got 0"),
        (lambda o: OneCycleLR(o, [1.0], 5), "2 groups need as many max_lr, got 1"),
        (lambda o: OneCycleLR(o, 1.0, 5, 1.5), "pct_start must be in [0, 1]"),
        (lambda o: OneCycleLR(o, 1.0, 5, anneal_strategy="log"), "one of cos, linear, got 0.3 and"),
        (lambda o: ReduceLROnPlateau(o, factor=1.0), "factor must be below 1, got 1.0"),
        (lambda o: ReduceLROnPlateau(o, mode="best"), "mode must be 'min' or 'max'"),
        (lambda o: optim.SequentialLR(o, [schedule()], [3]), "1 schedules need one rising mile"),
        (lambda o: optim.SequentialLR(o, [schedule()], []), "must be made for the same optimizer"),
        (
            lambda o: optim.StepLR(o, 1).load_state_dict(optim.ExponentialLR(o, 1).state_dict()),
            "this is no state of StepLR: it is one of ExponentialLR",
        ),
        (
            lambda o: optim.StepLR(o, 1).load_state_dict({"schedule": "StepLR"}),
            "this is no state of StepLR: it lacks base_lrs, last_epoch",
        ),
        (
            lambda o: optim.StepLR(o, 1).load_state_dict(
                optim.StepLR(SGD([tinytorch.zeros(1)]), 1).state_dict()
            ),
            "the state has 1 groups, this schedule 2",
        ),
        (
            lambda o: ReduceLROnPlateau(o).load_state_dict(optim.StepLR(o, 1).state_dict()),
            "this is no state of ReduceLROnPlateau: it lacks best, cooldown_counter",
        ),
    ],
)
def test_errors(action: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        action(optimizers()[0])


class NoMomentum(optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1, "weight_decay": 0.0})

    def update(self, p: Any, g: Any, state: Any, group: Any) -> None:
        p.sub_(g * group["lr"])


def test_one_cycle_needs_a_momentum_to_cycle() -> None:
    optimizer = NoMomentum([tinytorch.zeros(1)])
    with pytest.raises(ValueError, match="NoMomentum has no momentum; pass cycle_momentum=False"):
        OneCycleLR(optimizer, 1.0, 10)
    assert OneCycleLR(optimizer, 1.0, 10, cycle_momentum=False).get_last_lr() == [0.04]


def test_schedules_work_with_every_optimizer() -> None:
    for cls in (SGD, Adam, RMSprop):
        optimizer = cls([tinytorch.zeros(1)], lr=1.0)
        optim.StepLR(optimizer, 1).step()
        assert optimizer.param_groups[0]["lr"] == 0.1
