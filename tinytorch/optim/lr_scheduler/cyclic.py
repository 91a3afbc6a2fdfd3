"""The cyclic schedule: up and down between two rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinytorch.optim.lr_scheduler.base import (
    LRScheduler,
    momentum_option,
    per_group,
    set_momentum,
)
from tinytorch.optim.optimizer import Optimizer


class CyclicLR(LRScheduler):
    """base_lr + (max_lr - base_lr) * height * scale

    The height rises from 0 to 1 in step_size_up steps and falls to 0 in step_size_down. The
    momentum goes the other way, between max_momentum and base_momentum. Call `step()` after each
    batch.

    Args:
        base_lr, max_lr: the least and the largest rate, or one for each group.
        step_size_up, step_size_down: lengths of the halves; by default the second is as the first.
        mode: what the scale is: "triangular" 1; "triangular2" 1 / 2^cycle; "exp_range" gamma^t.
        gamma: of "exp_range".
        scale_fn: in place of the mode, a function of the cycle (from 1) or of t.
        scale_mode: what `scale_fn` is a function of: "cycle" or "iterations".
        cycle_momentum: move the momentum (Adam's beta1) too. It then replaces the optimizer's own.
        base_momentum, max_momentum: the least and the largest, or one for each group.

    Raises:
        ValueError: an option is out of range, or the optimizer has no momentum.

    Source: L. Smith, "Cyclical learning rates for training neural networks", 2017.
    """

    chainable = False

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        modes = ("triangular", "triangular2", "exp_range")
        if scale_fn is None and mode not in modes:
            raise ValueError(f"mode must be one of {', '.join(modes)}, got {mode!r}")
        if cycle_momentum:
            momentum_option(optimizer)
        lowest = per_group("base_lr", base_lr, optimizer)
        self.max_lrs = per_group("max_lr", max_lr, optimizer)
        down = step_size_up if step_size_down is None else step_size_down
        if min(step_size_up, down) < 0 or not step_size_up + down > 0:
            raise ValueError(f"a cycle of {step_size_up} steps up and {down} down")
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self._scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn else "iterations" * (mode == "exp_range")
        self.cycle_momentum = cycle_momentum
        self.base_momentums = per_group("base_momentum", base_momentum, optimizer)
        self.max_momentums = per_group("max_momentum", max_momentum, optimizer)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, lowest, strict=True):
                group["lr"] = lr
        self._lowest = lowest
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lowest

    def _height(self, t: int) -> float:
        """The height times the scale, after t steps."""
        cycle = math.floor(1 + t / self.total_size)
        x = 1 + t / self.total_size - cycle
        rising = x <= self.step_ratio
        height = x / self.step_ratio if rising else (x - 1) / (self.step_ratio - 1)
        if self._scale_fn is not None:
            return height * self._scale_fn(t if self.scale_mode == "iterations" else cycle)
        scales = {"triangular": 1.0, "triangular2": 0.5 ** (cycle - 1), "exp_range": self.gamma**t}
        return height * scales[self.mode]

    def lr_at(self, base: float, t: int, group: int) -> float:
        lowest = self._lowest[group]
        return lowest + (self.max_lrs[group] - lowest) * self._height(t)

    def _set(self, rates: Sequence[float]) -> None:
        super()._set(rates)
        if not self.cycle_momentum:
            return
        height = self._height(self.last_epoch)
        for i, group in enumerate(self.optimizer.param_groups):
            largest, least = self.max_momentums[i], self.base_momentums[i]
            set_momentum(group, largest - (largest - least) * height)
