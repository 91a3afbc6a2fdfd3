"""Progress: a bar on a terminal, a line for each epoch elsewhere, or nothing."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tinytorch.errors import missing_extra
from tinytorch.training.callbacks import Callback
from tinytorch.training.history import Record

if TYPE_CHECKING:
    from tinytorch.training.trainer import Trainer


class Progress(Callback):
    """Shows nothing; the others derive from it."""

    def message(self, text: str) -> None:
        """Show a line."""


class PlainProgress(Progress):
    """A line for each epoch, on standard output."""

    def message(self, text: str) -> None:
        print(text, flush=True)

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        self.message(format_record(record, trainer.epochs))


class BarProgress(Progress):
    """A bar over the batches of the epoch under way, and the lines of the epochs above it."""

    def __init__(self) -> None:
        if find_spec("rich") is None:
            raise missing_extra("rich", "train", "a progress bar")
        self._bar: Any = None
        self._task: Any = None

    def on_fit_start(self, trainer: Trainer) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as RichProgress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("loss {task.fields[loss]}"),
            transient=True,
        )
        self._bar.start()

    def on_epoch_start(self, trainer: Trainer) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(
            f"epoch {trainer.epoch + 1}/{trainer.epochs}",
            total=trainer.batches_per_epoch,
            completed=trainer.batch,
            loss="-",
        )

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        self._bar.update(self._task, completed=trainer.batch, loss=f"{loss:.4f}")

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        self.message(format_record(record, trainer.epochs))

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None

    def message(self, text: str) -> None:
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)


def make_progress(kind: str) -> Progress:
    """The progress of a kind: "bar", "plain", "quiet"; "auto" is a bar if standard output is a
    terminal and rich is installed, and plain otherwise.

    Raises:
        ValueError: another kind.
        MissingExtraError: "bar" without rich.
    """
    if kind == "auto":
        kind = "bar" if sys.stdout.isatty() and find_spec("rich") else "plain"
    kinds: dict[str, type[Progress]] = {
        "bar": BarProgress,
        "plain": PlainProgress,
        "quiet": Progress,
    }
    if kind not in kinds:
        raise ValueError(f"progress must be 'auto', 'bar', 'plain' or 'quiet', got {kind!r}")
    return kinds[kind]()


def format_record(record: Record, epochs: int) -> str:
    """The record as one line.

    >>> format_record({"epoch": 2, "step": 64, "loss": 0.25, "lr": 0.001, "seconds": 1.5}, 10)
    'epoch 2/10  loss 0.2500  lr 0.001  1.5 s'
    """
    parts = [f"epoch {record['epoch']}/{epochs}"]
    for name, value in record.items():
        if name == "lr":
            parts.append(f"lr {value:.4g}")
        elif name == "seconds":
            parts.append(f"{value:.1f} s")
        elif name not in ("epoch", "step"):
            parts.append(f"{name} {value:.4f}")
    return "  ".join(parts)
