"""Learning-rate schedules: the learning rate as a function of the number of steps taken.

Each schedule is one formula, `lr_at`; the rest is `LRScheduler`. `OneCycleLR` and
`ReduceLROnPlateau`, which are more, stand in files of their own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinytorch.optim.optimizer import Optimizer


class LRScheduler(ABC):
    """Sets the learning rate of every group to `lr_at(group's initial rate, t)`; t counts steps.

    Made, it sets the rates for t = 0. Call `step()` after each epoch, or after each batch.

        schedule = CosineAnnealingLR(optimizer, T_max=epochs)
        for epoch in range(epochs):
            train(...)
            schedule.step()

    Args:
        optimizer: its `param_groups` are changed. The initial rate of a group is kept there under
            "initial_lr", so that a second schedule starts from the same one.

    Attributes:
        last_epoch: t, PyTorch's name.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.last_epoch = 0
        self.base_lrs: list[float] = []
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            self.base_lrs.append(group["initial_lr"])
        self._set()

    @abstractmethod
    def lr_at(self, base: float, t: int, group: int) -> float:
        """The learning rate after t steps of the group of this number, whose initial is `base`."""

    def step(self) -> None:
        """One epoch (or batch) is over."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        """The learning rates in force, by group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def _set(self) -> None:
        groups = self.optimizer.param_groups
        for i, (group, base) in enumerate(zip(groups, self.base_lrs, strict=True)):
            group["lr"] = self.lr_at(base, self.last_epoch, i)

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule stands. The rates themselves are in the optimizer's state."""
        return {
            "schedule": type(self).__name__,
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from where `state_dict` was taken.

        Raises:
            ValueError: it is the state of another schedule or of other groups; nothing was changed.
        """
        check_schedule_state(state, self.state_dict())
        if len(state["base_lrs"]) != len(self.base_lrs):
            raise ValueError(
                f"the state has {len(state['base_lrs'])} groups, this schedule {len(self.base_lrs)}"
            )
        self.last_epoch = state["last_epoch"]
        self.base_lrs = list(state["base_lrs"])


def check_schedule_state(state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise ValueError if `state` is not of the kind of schedule whose state is `own`."""
    missing = sorted(own.keys() - state.keys())
    if missing or state["schedule"] != own["schedule"]:
        raise ValueError(
            f"this is no state of {own['schedule']}: "
            + (f"it lacks {', '.join(missing)}" if missing else f"it is one of {state['schedule']}")
        )


class LambdaLR(LRScheduler):
    """base * lr_lambda(t)

    Args:
        lr_lambda: a function of t, or one for each group.

    Raises:
        ValueError: there are not as many functions as groups.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = (
            list(lr_lambda) if isinstance(lr_lambda, Sequence) else [lr_lambda] * groups
        )
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"{groups} groups need as many functions, got {len(self.lr_lambdas)}")
        super().__init__(optimizer)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.lr_lambdas[group](t)


class StepLR(LRScheduler):
    """base * gamma^floor(t / step_size)"""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size = at_least_one("step_size", step_size)
        self.gamma = gamma
        super().__init__(optimizer)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.gamma ** (t // self.step_size)


class MultiStepLR(LRScheduler):
    """base * gamma^(number of milestones up to t)"""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, t)


class ExponentialLR(LRScheduler):
    """base * gamma^t"""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.gamma**t


class LinearLR(LRScheduler):
    """base * (start_factor + (end_factor - start_factor) * min(t, total_iters) / total_iters)

    Linear warm-up, unless the factors say otherwise.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(
                f"start_factor must be in (0, 1] and end_factor in [0, 1], got {start_factor} and "
                f"{end_factor}"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = at_least_one("total_iters", total_iters)
        super().__init__(optimizer)

    def lr_at(self, base: float, t: int, group: int) -> float:
        done = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) * (1 + cos(pi t / T_max)) / 2

    After T_max it rises again, with period 2 T_max.

    Source: I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017,
    without the restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max = at_least_one("T_max", T_max)
        self.eta_min = eta_min
        super().__init__(optimizer)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / self.T_max)) / 2


class SequentialLR(LRScheduler):
    """The first schedule up to the first milestone, then the next one, which starts at its t = 0

        warm_up = LinearLR(optimizer, 0.01, total_iters=5)
        SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, 95)], milestones=[5])

    Raises:
        ValueError: the schedules are not one more than the milestones, or of another optimizer.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        if len(schedulers) != len(milestones) + 1 or list(milestones) != sorted(milestones):
            raise ValueError(
                f"{len(schedulers)} schedules need one rising milestone less, got {milestones}"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("SequentialLR: all schedules must be made for the same optimizer")
        self.schedulers = list(schedulers)
        self.milestones = list(milestones)
        super().__init__(optimizer)

    def lr_at(self, base: float, t: int, group: int) -> float:
        current = bisect_right(self.milestones, t)
        start = self.milestones[current - 1] if current else 0
        return self.schedulers[current].lr_at(base, t - start, group)


def at_least_one(name: str, value: int) -> int:
    """`value`, or a ValueError."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value
