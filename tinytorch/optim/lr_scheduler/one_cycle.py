"""The one-cycle schedule: up to a large learning rate, then down to almost none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinytorch.optim.lr_scheduler.base import (
    LRScheduler,
    at_least_one,
    momentum_option,
    per_group,
    set_momentum,
)
from tinytorch.optim.optimizer import Optimizer


def _cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * done))


def _linear(start: float, end: float, done: float) -> float:
    return start + (end - start) * done


_ANNEAL: dict[str, Callable[[float, float, float], float]] = {"cos": _cosine, "linear": _linear}


class OneCycleLR(LRScheduler):
    """max_lr / div_factor, up to max_lr, down to max_lr / (div_factor final_div_factor)

    The momentum goes the other way. Call `step()` after each batch.

    Args:
        max_lr: the largest rate, or one for each group.
        total_steps: how many steps there are in all, or
        epochs, steps_per_epoch: their product.
        pct_start: the part of the steps on which the rate rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: move the momentum (Adam's beta1) from max_momentum to base_momentum and
            back. It then replaces the optimizer's own.
        div_factor: max_lr over the initial rate.
        final_div_factor: the initial rate over the last one.
        three_phase: down to the initial rate in as many steps as up, then on to the last one.

    Raises:
        ValueError: an option is out of range, or the optimizer has no momentum; `step` is called
            more than total_steps times.

    Source: L. Smith, N. Topin, "Super-convergence: very fast training of neural networks using
    large learning rates", 2018, in the form of PyTorch.
    """

    chainable = False

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= pct_start <= 1 or anneal_strategy not in _ANNEAL:
            raise ValueError(
                f"pct_start must be in [0, 1] and anneal_strategy one of {', '.join(_ANNEAL)}, "
                f"got {pct_start} and {anneal_strategy!r}"
            )
        if cycle_momentum:
            momentum_option(optimizer)
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
        if total_steps is None:
            total_steps = (epochs or 0) * (steps_per_epoch or 0)
        peaks = per_group("max_lr", max_lr, optimizer)
        self.total_steps = at_least_one("total_steps", total_steps)
        self._anneal = _ANNEAL[anneal_strategy]
        self.cycle_momentum = cycle_momentum
        self.max_momentums = per_group("max_momentum", max_momentum, optimizer)
        self.base_momentums = per_group("base_momentum", base_momentum, optimizer)
        self.factors = (1.0, div_factor, 1 / final_div_factor)
        self.phases = self._phases(pct_start * total_steps, three_phase)
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["initial_lr"] = peak / div_factor
        super().__init__(optimizer, last_epoch)

    def _phases(self, rise: float, three: bool) -> list[tuple[float, int, int, int, int]]:
        """(last step, rate from and to, momentum from and to), as indices of factors and momenta"""
        last = self.total_steps - 1
        if three:
            return [(rise - 1, 0, 1, 0, 1), (2 * rise - 2, 1, 0, 1, 0), (last, 0, 2, 0, 0)]
        return [(rise - 1, 0, 1, 0, 1), (last, 1, 2, 1, 0)]

    def _phase(self, t: int) -> tuple[float, tuple[int, int, int, int]]:
        """How much of its phase is done after t steps, and what the phase goes between."""
        if t > self.total_steps:
            raise ValueError(f"step {t} of a OneCycleLR of {self.total_steps} steps")
        ends = [end for end, *_ in self.phases]
        i = next((i for i, end in enumerate(ends) if t <= end), len(ends) - 1)
        start, end = ends[i - 1] if i else 0.0, ends[i]
        done = min((t - start) / (end - start), 1.0) if end > start else 1.0
        return done, self.phases[i][1:]

    def lr_at(self, base: float, t: int, group: int) -> float:
        done, (start, end, _, _) = self._phase(t)
        return base * self._anneal(self.factors[start], self.factors[end], done)

    def _set(self, rates: Sequence[float]) -> None:
        super()._set(rates)
        if not self.cycle_momentum:
            return
        done, (_, _, start, end) = self._phase(self.last_epoch)
        for i, group in enumerate(self.optimizer.param_groups):
            momenta = (self.max_momentums[i], self.base_momentums[i])
            set_momentum(group, self._anneal(momenta[start], momenta[end], done))
