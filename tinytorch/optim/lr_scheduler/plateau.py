"""A schedule that looks at the results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tinytorch.optim.lr_scheduler.base import LRScheduler, check_schedule_state, per_group
from tinytorch.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """lr <- max(factor lr, min_lr) when a quantity has not improved for more than `patience` steps

        schedule = ReduceLROnPlateau(optimizer, patience=3)
        for epoch in range(epochs):
            schedule.step(validate(...))

    Args:
        optimizer: its `param_groups` are changed.
        mode: "min" if smaller is better, "max" if larger is.
        factor: by which the rate is multiplied, below 1.
        patience: how many steps without improvement are borne.
        threshold: what counts as an improvement: in threshold_mode "rel" by this part of the best
            value, in "abs" by this much.
        cooldown: steps to wait after a reduction before counting again.
        min_lr: no group's rate gets below it; or one for each group.
        eps: reductions smaller than this are not made.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if not factor < 1:
            raise ValueError(f"factor must be below 1, got {factor}")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"mode must be 'min' or 'max' and threshold_mode 'rel' or 'abs', got {mode!r} and "
                f"{threshold_mode!r}"
            )
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = per_group("min_lr", min_lr, optimizer)
        self.eps = eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of the quantity's new value; NaN is no improvement."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._improves(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _improves(self, value: float) -> bool:
        threshold = -self.threshold if self.mode == "min" else self.threshold
        relative = self.threshold_mode == "rel"
        bar = self.best * (1 + threshold) if relative else self.best + threshold
        return value < bar if self.mode == "min" else value > bar

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        least = self.min_lrs + self.min_lrs[-1:] * (len(groups) - len(self.min_lrs))
        for group, lowest in zip(groups, least, strict=True):
            reduced = max(group["lr"] * self.factor, lowest)
            if group["lr"] - reduced > self.eps:
                group["lr"] = reduced

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from where `state_dict` was taken. PyTorch's state fits.

        Raises:
            ValueError: it is the state of another schedule; nothing was changed.
        """
        needed = {"best", "num_bad_epochs", "cooldown_counter"}
        check_schedule_state(state_dict, type(self).__name__, needed)
        self._take(state_dict)
