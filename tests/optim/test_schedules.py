"""Schedules beside PyTorch's, and their errors."""

from __future__ import annotations

import inspect
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
    mine = make(ours, optim.lr_scheduler)
    with warnings.catch_warnings():
        # PyTorch warns that no optimizer step came first, and of its own calls in SequentialLR
        warnings.simplefilter("ignore")
        other = make(theirs, torch.optim.lr_scheduler)
        for t in range(steps):
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


@given(rate, whole)
def test_constant(factor: float, total: int) -> None:
    assert_like_torch(lambda o, m: m.ConstantLR(o, factor, total))


@given(whole, st.sampled_from([0.5, 1.0, 2.0]))
def test_polynomial(total: int, power: float) -> None:
    assert_like_torch(lambda o, m: m.PolynomialLR(o, total, power))


def test_multiplicative() -> None:
    assert_like_torch(lambda o, m: m.MultiplicativeLR(o, lambda t: 0.9))
    assert_like_torch(lambda o, m: m.MultiplicativeLR(o, [lambda t: 0.9, lambda t: t / (1 + t)]))


@given(whole, st.integers(1, 3), st.sampled_from([0.0, 0.001]))
def test_cosine_with_restarts(first: int, factor: int, least: float) -> None:
    assert_like_torch(lambda o, m: m.CosineAnnealingWarmRestarts(o, first, factor, least))


@pytest.mark.parametrize("factor", [1, 2])
def test_restarts_at_parts_of_an_epoch(factor: int) -> None:
    ours, theirs = optimizers()
    mine = optim.lr_scheduler.CosineAnnealingWarmRestarts(ours, 3, factor)
    other = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(theirs, 3, factor)
    for epoch in [0.5, 1.25, 2.75, 3.0, 4.5, None, None, 8.5, None]:
        mine.step(epoch)
        other.step(epoch)
        assert rates_of(ours) == pytest.approx(rates_of(theirs), rel=1e-12, abs=1e-15)
        assert mine.last_epoch == other.last_epoch


cyclic_options = st.fixed_dictionaries(
    {
        "base_lr": st.sampled_from([0.01, [0.01, 0.02]]),
        "max_lr": st.sampled_from([0.1, [0.3, 0.4]]),
        "step_size_up": st.integers(1, 8),
        "step_size_down": st.sampled_from([None, 1, 5]),
        "mode": st.sampled_from(["triangular", "triangular2", "exp_range"]),
        "gamma": st.sampled_from([1.0, 0.9]),
        "scale_fn": st.sampled_from([None, lambda x: 1 / (1 + x)]),
        "scale_mode": st.sampled_from(["cycle", "iterations"]),
        "cycle_momentum": st.booleans(),
        "max_momentum": st.sampled_from([0.9, [0.95, 0.85]]),
    }
)


@settings(max_examples=50)
@given(cyclic_options, st.sampled_from(["SGD", "Adam"]))
def test_cyclic(options: dict[str, Any], name: str) -> None:
    assert_like_torch(lambda o, m: m.CyclicLR(o, **options), name)


CHAINABLE: list[Callable[[Any, Any], Any]] = [
    lambda o, m: m.StepLR(o, 3, 0.5),
    lambda o, m: m.MultiStepLR(o, [2, 2, 7], 0.5),
    lambda o, m: m.ConstantLR(o, 0.25, 4),
    lambda o, m: m.ExponentialLR(o, 0.9),
    lambda o, m: m.LinearLR(o, 0.25, 0.75, 6),
    lambda o, m: m.PolynomialLR(o, 12, 1.5),
    lambda o, m: m.CosineAnnealingLR(o, 5, 0.001),
    lambda o, m: m.CosineAnnealingLR(o, 4),
    lambda o, m: m.MultiplicativeLR(o, lambda t: 0.9),
]


def test_factors_begin_with_the_first_where_a_sequence_comes_to_them() -> None:
    assert_like_torch(
        lambda o, m: m.SequentialLR(
            o, [m.StepLR(o, 2, 0.5), m.MultiplicativeLR(o, lambda t: 0.9 / (1 + t))], [3]
        )
    )


@given(st.lists(st.sampled_from(CHAINABLE), min_size=2, max_size=3))
def test_chained_schedules_multiply(makers: list[Any]) -> None:
    assert_like_torch(lambda o, m: m.ChainedScheduler([make(o, m) for make in makers]))


def assert_rates_follow(make: Any, steps: int, change: Callable[[int, Any, Any], None]) -> None:
    """The rates of both libraries, of which a program changes an optimizer before some steps."""
    ours, theirs = optimizers()
    mine, other = make(ours, optim.lr_scheduler), make(theirs, torch.optim.lr_scheduler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t in range(steps):
            change(t, ours, tinytorch)
            change(t, theirs, torch)
            mine.step()
            other.step()
            assert rates_of(ours) == pytest.approx(rates_of(theirs), rel=1e-12, abs=1e-15)
            assert mine.get_last_lr() == [group["lr"] for group in ours.param_groups]


@pytest.mark.parametrize("make", CHAINABLE)
def test_a_rate_that_the_program_changes_is_kept(make: Any) -> None:
    def change(t: int, optimizer: Any, library: Any) -> None:
        if t in (2, 9):
            optimizer.param_groups[0]["lr"] *= 0.3

    assert_rates_follow(make, 15, change)


@pytest.mark.parametrize("make", CHAINABLE[:6])  # PyTorch's others raise, the last ones ours too
def test_groups_that_are_added_later_are_taken_in(make: Any) -> None:
    def change(t: int, optimizer: Any, library: Any) -> None:
        if t == 3:
            optimizer.add_param_group({"params": [library.zeros(1)], "lr": 0.3})

    assert_rates_follow(make, 8, change)


def test_a_schedule_with_options_for_each_group_refuses_others() -> None:
    optimizer, _ = optimizers()
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.9**t)
    optimizer.add_param_group({"params": [tinytorch.zeros(1)]})
    with pytest.raises(ValueError, match="make another schedule"):
        schedule.step()


def test_sequences_of_all_kinds() -> None:
    def make(o: Any, m: Any) -> Any:
        parts = [
            m.CosineAnnealingWarmRestarts(o, 3),
            m.LambdaLR(o, lambda t: 1 / (1 + t)),
            m.PolynomialLR(o, 5),
        ]
        return m.SequentialLR(o, parts, [7, 15])

    assert_like_torch(make, steps=30)


@pytest.mark.parametrize("make", [*CHAINABLE, lambda o, m: m.LambdaLR(o, lambda t: 0.9**t)])
def test_a_number_of_the_step_may_be_given(make: Any) -> None:
    ours, theirs = optimizers()
    mine, other = make(ours, optim.lr_scheduler), make(theirs, torch.optim.lr_scheduler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t in (3, 4, 9, 2):
            mine.step(t)
            other.step(t)
            assert rates_of(ours) == pytest.approx(rates_of(theirs), rel=1e-12, abs=1e-15)


def test_a_schedule_that_has_only_get_lr_runs_as_in_pytorch() -> None:
    def make(o: Any, m: Any) -> Any:
        class Warm(m._LRScheduler):
            def __init__(self, optimizer: Any, warm: int, last_epoch: int = -1) -> None:
                self.warm = warm
                super().__init__(optimizer, last_epoch)

            def get_lr(self) -> list[float]:
                if self.last_epoch < self.warm:
                    return [b * (self.last_epoch + 1) / self.warm for b in self.base_lrs]
                return [group["lr"] * 0.9 for group in self.optimizer.param_groups]

        return Warm(o, 5)

    assert_like_torch(make, steps=12)


def exported_schedules() -> list[str]:
    return [name for name in optim.lr_scheduler.__all__ if name != "LRScheduler"]


def test_no_schedule_of_pytorch_is_missing() -> None:
    """And none is more: see test_arguments_stand_where_pytorch_has_them."""
    missing = set(torch.optim.lr_scheduler.__all__) - set(optim.lr_scheduler.__all__)
    assert not missing, f"add {missing} to tinytorch/optim/lr_scheduler"


@pytest.mark.parametrize("name", exported_schedules())
def test_every_schedule_is_compared(name: str) -> None:
    with open(__file__) as file:
        compared = f"m.{name}(" in file.read() or name == "ReduceLROnPlateau"
    assert compared, f"lr_scheduler.{name} is compared with nothing: add a test in {__file__}"


@pytest.mark.parametrize("name", exported_schedules())
def test_arguments_stand_where_pytorch_has_them(name: str) -> None:
    ours = inspect.signature(getattr(optim.lr_scheduler, name))
    assert hasattr(torch.optim.lr_scheduler, name), (
        f"lr_scheduler.{name} is none of PyTorch's: take it out of __all__ in "
        f"tinytorch/optim/lr_scheduler"
    )
    theirs = inspect.signature(getattr(torch.optim.lr_scheduler, name))
    assert list(ours.parameters) == list(theirs.parameters)
    for parameter in ours.parameters.values():
        assert parameter.default == theirs.parameters[parameter.name].default


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
        (lambda o: OneCycleLR(o, 1.0, 5, pct_start=1.5), "pct_start must be in [0, 1]"),
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
