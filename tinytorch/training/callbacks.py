"""Callbacks: what happens in training beside the updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinytorch.optim import LRScheduler, ReduceLROnPlateau
from tinytorch.training.checkpoint import copy_tree
from tinytorch.training.history import Record

if TYPE_CHECKING:
    from tinytorch.training.trainer import Trainer


class Callback:
    """Is called by the trainer at these moments; override those that matter.

    What a callback must remember to continue a run goes through `state_dict` and
    `load_state_dict`, and so into checkpoints.
    """

    #: Ctrl-C is to wait for the end of the step, and then call `on_interrupt`.
    handles_interrupt = False

    def on_fit_start(self, trainer: Trainer) -> None:
        """`fit` begins. `trainer.epochs` says how many epochs there are to be in all."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """An epoch begins; `trainer.epoch` are complete."""

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        """The parameters were updated, for a batch with this loss."""

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        """An epoch is complete, and validated. Set `trainer.should_stop` to make it the last."""

    def after_epoch(self, trainer: Trainer, record: Record) -> None:
        """Called when all callbacks have had their `on_epoch_end`, so that the state is whole: save
        it here."""

    def on_interrupt(self, trainer: Trainer) -> None:
        """Ctrl-C was pressed; the step under way is complete, and the program will exit."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """`fit` ends, by an error too."""

    def state_dict(self) -> dict[str, Any]:
        """The state that `load_state_dict` needs, as a tree that a checkpoint can hold; {} for
        nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from where `state_dict` was taken."""


class Best:
    """The best value so far of one quantity of the records.

    Args:
        monitor: its name, say "val_loss".
        mode: "min" if smaller is better, "max" if larger is.
        min_delta: what it must be better by.

    Raises:
        ValueError: another mode.
    """

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
        self.monitor = monitor
        self.mode = mode
        self.min_delta = min_delta
        self.value = math.inf if mode == "min" else -math.inf

    def improves(self, record: Record) -> bool:
        """Whether the record's value of `monitor` (`value_of`) is better than `value`, the best so
        far, by more than `min_delta`. If so, it is the best one from now on.

        In the mode "min" better is smaller, in the mode "max" larger; NaN is never better.
        """
        value = value_of(record, self.monitor)
        better = self.value - value if self.mode == "min" else value - self.value
        if better > self.min_delta:
            self.value = value
            return True
        return False


def value_of(record: Record, monitor: str) -> float:
    """The quantity of this name.

    Raises:
        ValueError: the record has none; the message lists what it has.
    """
    if monitor not in record:
        raise ValueError(
            f"there is no {monitor!r} to monitor; the epoch has {', '.join(record)} (those with "
            f"val_ need fit(..., validation=loader))"
        )
    return record[monitor]


class EarlyStopping(Callback):
    """Stops when a quantity has not improved for `patience` epochs.

    Args:
        monitor: the quantity.
        patience: how many epochs without improvement it takes.
        mode: "min" if smaller is better, "max" if larger is.
        min_delta: what an improvement is at least.
        restore_best: give the model the weights of its best epoch back, if stopped.

    Raises:
        ValueError: another mode, or patience below 1.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 5,
        *,
        mode: str = "min",
        min_delta: float = 0.0,
        restore_best: bool = False,
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience must be at least 1, got {patience}")
        self.best = Best(monitor, mode, min_delta)
        self.patience = patience
        self.restore_best = restore_best
        self.waited = 0
        self.best_weights: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer) -> None:
        if self.waited >= self.patience:  # resumed from after the stop, or a second `fit`
            trainer.should_stop = True
            trainer.report(
                f"stopped before: {self.best.monitor} had not been better than "
                f"{self.best.value:.6g} for {self.waited} epochs. To go on, set waited = 0"
            )

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        """Count the epochs without improvement in `self.waited`, and stop after `self.patience`.

        Where `self.best.improves(record)` it is 0 again; with `self.restore_best` the state_dict of
        `trainer.model` is then kept in `self.best_weights`, as a copy (`copy_tree`).

        To stop, set `trainer.should_stop` to True and call `trainer.report` with a sentence that
        names `self.best.monitor`, its best value and the epochs waited.
        """
        if self.best.improves(record):
            self.waited = 0
            if self.restore_best:
                self.best_weights = copy_tree(trainer.model.state_dict())
            return
        self.waited += 1
        if self.waited >= self.patience:
            trainer.should_stop = True
            trainer.report(
                f"stopped: {self.best.monitor} has not been better than {self.best.value:.6g} for "
                f"{self.waited} epochs"
            )

    def on_fit_end(self, trainer: Trainer) -> None:
        """If the patience is used up and weights were kept: the model gets them back."""
        if self.waited >= self.patience and self.best_weights is not None:
            trainer.model.load_state_dict(self.best_weights)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best.value, "waited": self.waited, "best_weights": self.best_weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best.value, self.waited = state["best"], state["waited"]
        self.best_weights = copy_tree(state["best_weights"])


class Checkpoint(Callback):
    """Saves all that is needed to continue, bit for bit: `Trainer.load` takes it.

    Saved is the state after each `every`-th epoch and after the last one, and on Ctrl-C after the
    step under way; with `monitor` instead, the state after each epoch that is the best so far.

    Args:
        path: the file; each save replaces it, at once and as a whole.
        every: how many epochs lie between saves.
        monitor: save only where this quantity is the best so far.
        mode: "min" if smaller is better, "max" if larger is.

    Raises:
        ValueError: another mode, or every below 1.
    """

    def __init__(
        self, path: str | Path, *, every: int = 1, monitor: str | None = None, mode: str = "min"
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.path = Path(path)
        self.every = every
        self.best = None if monitor is None else Best(monitor, mode)
        self.improved = False
        self.handles_interrupt = monitor is None

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        # not in after_epoch: the file of another Checkpoint must have the new best value too
        self.improved = self.best is not None and self.best.improves(record)

    def after_epoch(self, trainer: Trainer, record: Record) -> None:
        last = trainer.should_stop or trainer.epoch >= trainer.epochs
        regular = self.best is None and (last or trainer.epoch % self.every == 0)
        if self.improved or regular:
            trainer.save(self.path)

    def on_interrupt(self, trainer: Trainer) -> None:
        if self.best is None:
            trainer.save(self.path)
            trainer.report(
                f"interrupted after step {trainer.step}; saved to {self.path}. To go on, call "
                f"trainer.load({str(self.path)!r}) before fit"
            )

    def state_dict(self) -> dict[str, Any]:
        return {} if self.best is None else {"best": self.best.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.best is not None:
            self.best.value = state["best"]


class ScheduleLR(Callback):
    """Steps a learning-rate schedule, after each epoch or after each update.

    Args:
        schedule: of the trainer's optimizer.
        every: "epoch" or "step".
        monitor: the quantity that ReduceLROnPlateau looks at; for no other schedule.

    Raises:
        ValueError: another `every`; a monitor that is missing, or that the schedule does not take;
            at `fit`, a schedule of another optimizer.
    """

    def __init__(
        self,
        schedule: LRScheduler | ReduceLROnPlateau,
        every: str = "epoch",
        monitor: str | None = None,
    ) -> None:
        plateau = isinstance(schedule, ReduceLROnPlateau)
        if every not in ("epoch", "step") or (plateau and every == "step"):
            raise ValueError(
                f"every must be 'epoch' or, but for ReduceLROnPlateau, 'step', got {every!r}"
            )
        if plateau != (monitor is not None):
            raise ValueError(
                f"{type(schedule).__name__} "
                + ("needs a monitor, say 'val_loss'" if plateau else "takes no monitor")
            )
        self.schedule = schedule
        self.every = every
        self.monitor = monitor

    def on_fit_start(self, trainer: Trainer) -> None:
        if self.schedule.optimizer is not trainer.optimizer:
            raise ValueError(
                f"the {type(self.schedule).__name__} of ScheduleLR is of another optimizer than "
                f"the trainer's, whose rate it would not change: make it of that one"
            )

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        if self.every == "step" and isinstance(self.schedule, LRScheduler):
            self.schedule.step()

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        if isinstance(self.schedule, ReduceLROnPlateau):
            assert self.monitor is not None
            self.schedule.step(value_of(record, self.monitor))
        elif self.every == "epoch":
            self.schedule.step()

    def state_dict(self) -> dict[str, Any]:
        return self.schedule.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.schedule.load_state_dict(state)
