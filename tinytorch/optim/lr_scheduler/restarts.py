"""Cosine annealing with warm restarts."""

from __future__ import annotations

import math
import operator

from tinytorch.optim.lr_scheduler.base import LRScheduler, at_least_one
from tinytorch.optim.optimizer import Optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """eta_min + (base - eta_min) * (1 + cos(pi T_cur / T_i)) / 2

    T_cur counts the steps since the last restart; the i-th period is T_i = T_0 T_mult^i long.
    `step(epoch + i / batches)` takes parts of an epoch.

    Raises:
        ValueError: T_0 or T_mult below 1, or a negative epoch.
        TypeError: T_0 or T_mult is no whole number.

    Source: I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017.
    """

    chainable = False

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_0 = self.T_i = operator.index(at_least_one("T_0", T_0))
        self.T_mult = operator.index(at_least_one("T_mult", T_mult))
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def _position(self, t: float) -> tuple[float, int]:
        """How many steps after a restart t is, and how long that period is."""
        period = self.T_0
        if self.T_mult == 1:
            return t % period, period
        while t >= period:
            t, period = t - period, period * self.T_mult
        return t, period

    def lr_at(self, base: float, t: float, group: int) -> float:
        done, period = self._position(t)
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * done / period)) / 2

    def get_lr(self) -> list[float]:
        half = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * half for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one step; or, given its number, go to that one, or to a part of it."""
        if epoch is not None or self.last_epoch < 0:
            self._go_to(epoch or 0)
            return
        self._step_count += 1
        self.last_epoch += 1
        self.T_cur += 1
        if self.T_cur >= self.T_i:
            self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        self._set(self.get_lr())

    def _go_to(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"epoch must be 0 or more, got {epoch}")
        self.last_epoch = math.floor(epoch)
        self.T_cur, self.T_i = self._position(epoch)
        self._set(self.get_lr())
