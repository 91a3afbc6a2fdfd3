"""Schedules that are one formula: the learning rate as a function of the number t of steps."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tinytorch.optim.lr_scheduler.base import LRScheduler, at_least_one
from tinytorch.optim.optimizer import Optimizer

Lambdas = Callable[[int], float] | Sequence[Callable[[int], float]]


def _lambdas(optimizer: Optimizer, lr_lambda: Lambdas) -> list[Callable[[int], float]]:
    groups = len(optimizer.param_groups)
    given = list(lr_lambda) if isinstance(lr_lambda, Sequence) else [lr_lambda] * groups
    if len(given) != groups:
        raise ValueError(f"{groups} groups need as many functions, got {len(given)}")
    return given


class LambdaLR(LRScheduler):
    """base * lr_lambda(t)

    Args:
        lr_lambda: a function of t, or one for each group.

    Raises:
        ValueError: there are not as many functions as groups.
    """

    chainable = False

    def __init__(self, optimizer: Optimizer, lr_lambda: Lambdas, last_epoch: int = -1) -> None:
        self.lr_lambdas = _lambdas(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.lr_lambdas[group](t)


class MultiplicativeLR(LRScheduler):
    """base * lr_lambda(1) * ... * lr_lambda(t)

    Args:
        lr_lambda: a function of t, or one for each group.

    Raises:
        ValueError: there are not as many functions as groups.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Lambdas, last_epoch: int = -1) -> None:
        self.lr_lambdas = _lambdas(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * math.prod(self.lr_lambdas[group](i) for i in range(1, t + 1))

    def get_lr(self) -> list[float]:
        t = self.last_epoch
        return [
            group["lr"] * factor(t) if t > 0 and not self._continues() else group["lr"]
            for group, factor in zip(self.optimizer.param_groups, self.lr_lambdas, strict=False)
        ]

    def _go_to(self, epoch: int) -> None:
        self.last_epoch = epoch
        groups = zip(self.optimizer.param_groups, self.lr_lambdas, strict=False)
        self._set([group["lr"] * factor(epoch) for group, factor in groups])


class StepLR(LRScheduler):
    """base * gamma^floor(t / step_size)"""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = at_least_one("step_size", step_size)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.gamma ** (t // self.step_size)


class MultiStepLR(LRScheduler):
    """base * gamma^(number of milestones up to t)"""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, t)

    def _take(self, state: Mapping[str, Any]) -> None:
        given = state.get("milestones")
        if isinstance(given, Mapping):  # PyTorch's: how often each is there
            given = sorted(m for m, count in given.items() for _ in range(count))
            state = {**state, "milestones": given}
        super()._take(state)


class ConstantLR(LRScheduler):
    """base * factor for the first total_iters steps, then base

    Raises:
        ValueError: factor is not in [0, 1].
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"factor must be in [0, 1], got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self.factor if t < self.total_iters else base


class ExponentialLR(LRScheduler):
    """base * gamma^t"""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

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
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(
                f"start_factor must be in (0, 1] and end_factor in [0, 1], got {start_factor} and "
                f"{end_factor}"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = at_least_one("total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        done = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class PolynomialLR(LRScheduler):
    """base * (1 - min(t, total_iters) / total_iters)^power"""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = at_least_one("total_iters", total_iters)
        self.power = power
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        left: float = 1 - min(t, self.total_iters) / self.total_iters
        return base * float(left**self.power)


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) * (1 + cos(pi t / T_max)) / 2

    After T_max it rises again, with period 2 T_max.

    Source: I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017,
    without the restarts.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = at_least_one("T_max", T_max)
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def lr_at(self, base: float, t: int, group: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * t / self.T_max)) / 2
