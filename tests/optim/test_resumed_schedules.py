"""Schedules that go on where another one was: from a state, or at a step that they are given."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import pytest
import torch

from tests.optim.test_schedules import CHAINABLE, STEPS, optimizers, rates_of
from tinytorch import optim
from tinytorch.optim import OneCycleLR, ReduceLROnPlateau


def test_continuing_at_a_step_given_when_it_is_made() -> None:
    ours, theirs = optimizers()
    seen = []
    for optimizer, m in ((ours, optim.lr_scheduler), (theirs, torch.optim.lr_scheduler)):
        with pytest.raises(KeyError, match="initial_lr"):
            m.StepLR(optimizer, 3, last_epoch=4)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        m.StepLR(optimizer, 3, last_epoch=4)
        seen.append(rates_of(optimizer))
    assert seen[0] == pytest.approx(seen[1])


@pytest.mark.parametrize("t", range(1, 9))
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("StepLR", {"step_size": 3}),
        ("MultiStepLR", {"milestones": [2, 5]}),
        ("ConstantLR", {}),
        ("LinearLR", {}),
        ("ExponentialLR", {"gamma": 0.9}),
        ("PolynomialLR", {"power": 2.0}),
        ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}),
        ("LambdaLR", {"lr_lambda": lambda t: 0.9**t}),
        ("MultiplicativeLR", {"lr_lambda": lambda t: 0.9}),
        ("OneCycleLR", {"max_lr": 0.1, "total_steps": 30}),
    ],
)
def test_made_with_last_epoch_for_a_loaded_optimizer_it_goes_on_as_before(
    name: str, options: dict[str, Any], t: int
) -> None:
    before, after = optimizers()[0], optimizers()[0]
    make = getattr(optim.lr_scheduler, name)
    schedule = make(before, **options)
    for _ in range(t):
        schedule.step()
    after.load_state_dict(before.state_dict())
    resumed = make(after, **options, last_epoch=t - 1)
    for _ in range(8):
        assert rates_of(after) == pytest.approx(rates_of(before), rel=1e-12, abs=1e-15)
        assert resumed.get_last_lr() == [group["lr"] for group in after.param_groups]
        assert resumed.last_epoch == schedule.last_epoch
        schedule.step()
        resumed.step()


@pytest.mark.parametrize("make", CHAINABLE)
def test_the_state_of_pytorch_is_taken(make: Any) -> None:
    ours, theirs = optimizers()
    mine, other = make(ours, optim.lr_scheduler), make(theirs, torch.optim.lr_scheduler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            other.step()
        mine.load_state_dict(other.state_dict())
        for group, rate in zip(ours.param_groups, other.get_last_lr(), strict=True):
            group["lr"] = rate
        for _ in range(8):
            mine.step()
            other.step()
            assert rates_of(ours) == pytest.approx(rates_of(theirs), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: optim.StepLR(o, 3),
        lambda o: OneCycleLR(o, 1.0, STEPS),
        lambda o: optim.lr_scheduler.CyclicLR(o, 0.1, 1.0, 3),
        lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
        lambda o: optim.SequentialLR(o, [optim.LinearLR(o), optim.StepLR(o, 2)], [3]),
        lambda o: optim.lr_scheduler.ChainedScheduler([optim.LinearLR(o), optim.StepLR(o, 2)]),
    ],
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
