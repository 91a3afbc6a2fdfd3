"""The one-cycle schedule: up to a large learning rate, then down to almost none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinytorch.optim.optimizer import Optimizer
from tinytorch.optim.schedules import LRScheduler, at_least_one


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
        total_steps: how many steps there are in all, epochs times batches.
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

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        if not 0 <= pct_start <= 1 or anneal_strategy not in _ANNEAL:
            raise ValueError(
                f"pct_start must be in [0, 1] and anneal_strategy one of {', '.join(_ANNEAL)}, "
                f"got {pct_start} and {anneal_strategy!r}"
            )
        if cycle_momentum and not optimizer.defaults.keys() & {"momentum", "betas"}:
            raise ValueError(
                f"{type(optimizer).__name__} has no momentum; pass cycle_momentum=False"
            )
        groups = optimizer.param_groups
        peaks = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * len(groups)
        if len(peaks) != len(groups):
            raise ValueError(f"{len(groups)} groups need as many max_lr, got {len(peaks)}")
        self.total_steps = at_least_one("total_steps", total_steps)
        self.anneal = _ANNEAL[anneal_strategy]
        self.cycle_momentum = cycle_momentum
        self.momenta = (max_momentum, base_momentum)
        self.factors = (1.0, div_factor, 1 / final_div_factor)
        self.phases = self._phases(pct_start * total_steps, three_phase)
        for group, peak in zip(groups, peaks, strict=True):
            group["initial_lr"] = peak / div_factor
        super().__init__(optimizer)

    def _phases(self, rise: float, three: bool) -> list[tuple[float, int, int, int, int]]:
        """(last step, rate from and to, momentum from and to), as indices of factors and momenta"""
        last = self.total_steps - 1
        if three:
            return [(rise - 1, 0, 1, 0, 1), (2 * rise - 2, 1, 0, 1, 0), (last, 0, 2, 0, 0)]
        return [(rise - 1, 0, 1, 0, 1), (last, 1, 2, 1, 0)]

    def _at(self, t: int) -> tuple[float, float]:
        """The rate over the initial one, and the momentum, after t steps."""
        if t > self.total_steps:
            raise ValueError(f"step {t} of a OneCycleLR of {self.total_steps} steps")
        ends = [end for end, *_ in self.phases]
        i = next((i for i, end in enumerate(ends) if t <= end), len(ends) - 1)
        start, end = ends[i - 1] if i else 0.0, ends[i]
        done = min((t - start) / (end - start), 1.0) if end > start else 1.0
        _, rate_from, rate_to, momentum_from, momentum_to = self.phases[i]
        return (
            self.anneal(self.factors[rate_from], self.factors[rate_to], done),
            self.anneal(self.momenta[momentum_from], self.momenta[momentum_to], done),
        )

    def lr_at(self, base: float, t: int, group: int) -> float:
        return base * self._at(t)[0]

    def _set(self) -> None:
        super()._set()
        if not self.cycle_momentum:
            return
        momentum = self._at(self.last_epoch)[1]
        for group in self.optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum
