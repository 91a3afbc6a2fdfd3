"""`LRScheduler`: what a learning-rate schedule is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tinytorch.optim.optimizer import Optimizer

SIMPLE = (bool, int, float, str, type(None), list, tuple, dict)


class LRScheduler:
    """Sets the learning rate of every group to `lr_at(group's initial rate, t)`; t counts steps.

    Made, it sets the rates for t = 0. Call `step()` after each epoch, or after each batch.

        schedule = CosineAnnealingLR(optimizer, T_max=epochs)
        for epoch in range(epochs):
            train(...)
            schedule.step()

    Where someone else has changed the rate since the last step (another schedule, or the program),
    a schedule that is `chainable` changes it by the factor by which its own would change. So two of
    them on one optimizer multiply, as in PyTorch. It takes in groups that the optimizer is
    given later; of the others, another one is to be made for them.

    A subclass writes `lr_at`, or, as programs for PyTorch do, `get_lr`.

    Args:
        optimizer: its `param_groups` are changed. The initial rate of a group is kept there under
            "initial_lr", so that a second schedule starts from the same one.
        last_epoch: t - 1 to continue at t, or -1 to start. To continue, load the optimizer's state
            first, with "initial_lr": a schedule that is `chainable` leaves its rates as they are.

    Attributes:
        last_epoch: t, PyTorch's name.
        base_lrs: the initial rates.

    Raises:
        TypeError: it is no optimizer.
        KeyError: last_epoch is given, and a group has no "initial_lr".
    """

    #: The rate depends on the one before; otherwise on t alone, whatever the rate is.
    chainable: ClassVar[bool] = True
    #: What the rate goes to 0 from, in schedules that are not proportional to the initial rate.
    eta_min: float = 0.0

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(self).__name__} takes an optimizer, got {type(optimizer).__name__}"
            )
        self.optimizer = optimizer
        self.last_epoch = last_epoch
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"to continue from last_epoch={last_epoch}, group {i} needs its 'initial_lr': "
                    f"load the optimizer's state first, or set it"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self._step_count = 0
        self._initial_step()

    def lr_at(self, base: float, t: int, group: int) -> float:
        """The learning rate after t steps of the group of this number, whose initial is `base`."""
        raise NotImplementedError(f"{type(self).__name__} must define lr_at(base, t, group)")

    def get_lr(self) -> Sequence[float]:
        """The rate of each group at `last_epoch`, from those in force."""
        rates = []
        for i, (group, base) in enumerate(
            zip(self.optimizer.param_groups, self._bases(), strict=False)
        ):
            now = self.lr_at(base, self.last_epoch, i)
            if self.chainable:
                t, rate = self.last_epoch, float(group["lr"])
                before = self.lr_at(base, t - 1, i) if t > 0 else base
                now = rate if self._continues() else self._chained(rate, before, now)
            rates.append(now)
        return rates

    def _continues(self) -> bool:
        """Whether it is being made with `last_epoch`: the rates in force are those of t already."""
        return self._step_count == 1 and self.last_epoch > 0

    def _bases(self) -> list[float]:
        """`base_lrs`; of groups that the optimizer was given since, the rates that they have."""
        if self.chainable:
            for group in self.optimizer.param_groups[len(self.base_lrs) :]:
                self.base_lrs.append(group.setdefault("initial_lr", float(group["lr"])))
        return self.base_lrs

    def _chained(self, rate: float, before: float, now: float) -> float:
        """`now`; but if `rate` is not what this schedule had set, that changed as from before."""
        least = self.eta_min
        if rate == before:
            return now
        if before == least:
            return rate + (now - before)
        return least + (rate - least) * (now - least) / (before - least)

    def step(self, epoch: int | None = None) -> None:
        """Advance the schedule by one epoch (or batch); or, given its number, go to that one."""
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            self._set(self.get_lr())
        else:
            self._go_to(epoch)

    def _go_to(self, epoch: int) -> None:
        """Set the rates of step `epoch`, whatever those in force are."""
        self.last_epoch = epoch
        if type(self).get_lr is LRScheduler.get_lr:
            self._set([self.lr_at(base, epoch, i) for i, base in enumerate(self._bases())])
        else:
            self._set(self.get_lr())

    def _initial_step(self) -> None:
        self.step()

    def _set(self, rates: Sequence[float]) -> None:
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            raise ValueError(
                f"{type(self).__name__} has rates for {len(rates)} groups, the optimizer has "
                f"{len(groups)}: after add_param_group, make another schedule"
            )
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    def get_last_lr(self) -> list[float]:
        """The learning rates that this schedule has set last, by group."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """The options and position of the schedule. The rates in force are in the optimizer's
        state.

        Functions that it was given are not part of it.
        """
        own = {k: v for k, v in vars(self).items() if k != "optimizer" and _is_simple(v)}
        return {"schedule": type(self).__name__, **own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from where `state_dict` was taken. PyTorch's state of the same schedule fits.

        Raises:
            ValueError: it is the state of another schedule or of other groups; nothing was changed.
        """
        check_schedule_state(state_dict, type(self).__name__, {"last_epoch", "base_lrs"})
        if len(state_dict["base_lrs"]) != len(self.base_lrs):
            raise ValueError(
                f"the state has {len(state_dict['base_lrs'])} groups, this schedule "
                f"{len(self.base_lrs)}"
            )
        self._take(state_dict)

    def _take(self, state: Mapping[str, Any]) -> None:
        """Take over what the state and this schedule both have."""
        for name, value in state.items():
            own = vars(self).get(name)
            if name in vars(self) and _is_simple(own) and _is_simple(value):
                setattr(self, name, type(own)(value) if isinstance(own, (list, tuple)) else value)


def _is_simple(value: Any) -> bool:
    """Whether a checkpoint can hold it: no function and no schedule."""
    if isinstance(value, (list, tuple)):
        return all(_is_simple(v) for v in value)
    if isinstance(value, dict):
        return all(_is_simple(v) for v in value.values())
    return isinstance(value, SIMPLE)


def check_schedule_state(state: Mapping[str, Any], kind: str, needed: set[str]) -> None:
    """Raise ValueError if `state` is not of this kind of schedule. PyTorch's do not say."""
    missing = sorted(needed - state.keys())
    if missing or state.get("schedule", kind) != kind:
        raise ValueError(
            f"this is no state of {kind}: "
            + (f"it lacks {', '.join(missing)}" if missing else f"it is one of {state['schedule']}")
        )


def at_least_one(name: str, value: int) -> int:
    """`value`, or a ValueError."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def per_group(name: str, value: Any, optimizer: Optimizer) -> list[float]:
    """One value for each group, from one or from as many.

    Raises:
        ValueError: there are not as many values as groups.
    """
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
    if len(values) != groups:
        raise ValueError(f"{groups} groups need as many {name}, got {len(values)}")
    return values


def momentum_option(optimizer: Optimizer) -> str:
    """The name of the momentum in this optimizer's groups: "momentum", or "betas".

    Raises:
        ValueError: it has neither.
    """
    for name in ("betas", "momentum"):
        if name in optimizer.defaults:
            return name
    raise ValueError(f"{type(optimizer).__name__} has no momentum; pass cycle_momentum=False")


def set_momentum(group: dict[str, Any], momentum: float) -> None:
    """Set the momentum of a group, or Adam's beta1."""
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum
