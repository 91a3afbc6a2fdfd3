"""Schedules made of schedules: one after another, and several at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from tinytorch.optim.lr_scheduler.base import LRScheduler, check_schedule_state
from tinytorch.optim.lr_scheduler.plateau import ReduceLROnPlateau
from tinytorch.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    """Several schedules of one optimizer."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> None:
        name = type(self).__name__
        if any(isinstance(s, ReduceLROnPlateau) for s in schedulers):
            raise ValueError(
                f"{name} cannot step a ReduceLROnPlateau, which needs a result: call its step"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError(f"{name}: all schedules must be made for the same optimizer")
        self.optimizer = optimizer
        self._schedulers = list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        check_schedule_state(state_dict, type(self).__name__, {"_schedulers"})
        parts = state_dict["_schedulers"]
        if len(parts) != len(self._schedulers):
            raise ValueError(
                f"the state has {len(parts)} schedules, this {type(self).__name__} has "
                f"{len(self._schedulers)}"
            )
        for schedule, part in zip(self._schedulers, parts, strict=True):
            schedule.load_state_dict(part)
        self._take({k: v for k, v in state_dict.items() if k != "_schedulers"})


class SequentialLR(_Combined):
    """The first schedule up to the first milestone, then the next one, which starts at its t = 0

        warm_up = LinearLR(optimizer, 0.01, total_iters=5)
        SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, 95)], milestones=[5])

    Raises:
        ValueError: the schedules are not one more than the milestones, or of another optimizer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) != len(milestones) + 1 or list(milestones) != sorted(milestones):
            raise ValueError(
                f"{len(schedulers)} schedules need one rising milestone less, got {milestones}"
            )
        super().__init__(schedulers, optimizer)
        self.last_epoch = last_epoch + 1
        self._milestones = list(milestones)
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for schedule in _leaves(self):  # the step that each made when it was made
            schedule.last_epoch -= 1
        self._initial_step()

    def _initial_step(self) -> None:
        current = self._schedulers[bisect_right(self._milestones, 0)]
        current._initial_step()
        self._last_lr = current.get_last_lr()

    def _go_to(self, epoch: int) -> None:
        raise ValueError("SequentialLR only goes on: call step() without a number")

    def step(self, epoch: int | None = None) -> None:
        """Advance by one epoch (or batch)."""
        if epoch is not None:
            self._go_to(epoch)
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        current = self._schedulers[number]
        if number and self._milestones[number - 1] == self.last_epoch:
            current._go_to(0)
        else:
            current.step()
        self._last_lr = current.get_last_lr()


class ChainedScheduler(_Combined):
    """Applies several schedules at once, one upon the other: their factors multiply

        slow_start = ConstantLR(optimizer, factor=0.1, total_iters=5)
        ChainedScheduler([slow_start, ExponentialLR(optimizer, 0.9)])

    Raises:
        ValueError: there is no schedule, or they are of several optimizers.
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler needs at least one schedule, got none")
        super().__init__(schedulers, optimizer or schedulers[0].optimizer)
        self.last_epoch = 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Advance each of the schedules by one epoch (or batch)."""
        for schedule in self._schedulers:
            schedule.step(epoch)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


def _leaves(schedule: LRScheduler) -> list[LRScheduler]:
    """The schedules in it that are not made of others."""
    if isinstance(schedule, _Combined):
        return [leaf for part in schedule._schedulers for leaf in _leaves(part)]
    return [schedule]
