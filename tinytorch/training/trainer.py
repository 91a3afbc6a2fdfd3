"""`Trainer`: the training loop."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tinytorch.data.sampler import check_count
from tinytorch.errors import NonFiniteError, ShapeError
from tinytorch.nn import Module
from tinytorch.optim import LRScheduler, Optimizer, ReduceLROnPlateau
from tinytorch.tensor import Tensor
from tinytorch.training import loop
from tinytorch.training.callbacks import Callback
from tinytorch.training.checkpoint import copy_tree, load_checkpoint, save_checkpoint
from tinytorch.training.history import VALIDATION, History
from tinytorch.training.interrupt import Interrupt, deferred_interrupt
from tinytorch.training.metrics import Averages, Metric
from tinytorch.training.nonfinite import blame, is_finite
from tinytorch.training.progress import make_progress
from tinytorch.training.resume import attach, capture, note_position, restore

Loss = Callable[[Tensor, Tensor], Tensor]
Loader = Iterable[Any]

INTERRUPTED = 130  # exit status of a program that Ctrl-C ended: 128 + SIGINT


class Trainer:
    """Trains a model: p <- step(p, gradient of the loss), batch for batch.

        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, metrics={"accuracy": accuracy})
        history = trainer.fit(loader, validation=test_loader, epochs=10)

    To be able to continue an interrupted run, bit for bit, in another process:

        trainer = Trainer(..., callbacks=[Checkpoint("run.safetensors")])
        if Path("run.safetensors").exists():
            trainer.load("run.safetensors")
        trainer.fit(loader, epochs=10)

    A batch is a pair (inputs, targets); override `forward` for others.

    Args:
        model: the Module.
        loss: a function of (outputs, targets), the mean over the samples of a batch, 0-d.
        optimizer: of the model's parameters.
        metrics: name -> function of (outputs, targets); see `tinytorch.training.metrics`.
        callbacks: what else is to happen; see `tinytorch.training.callbacks`.
        clip_norm: the largest norm of the gradients of one step; None for any.
        accumulate: how many batches' gradients add up before an update; their mean is that over
            all samples, counted by `samples_in`.
        progress: "auto", "bar", "plain" or "quiet".

    Attributes:
        epoch: how many epochs are complete.
        step: how many updates were made, in all.
        batch: how many batches of the epoch under way are done.
        epochs: how many epochs there are to be, in all.
        history: a record of each complete epoch.
        should_stop: no further epoch begins.

    Raises:
        ValueError: a metric has the name of something else that the history records; or the
            optimizer is of another model; or accumulate is no integer from 1 up; or clip_norm is
            not above 0.
        TypeError: the loss or a callback is a class; a callback is no Callback, or callbacks no
            sequence; metrics have no names.
    """

    def __init__(
        self,
        model: Module,
        loss: Loss,
        optimizer: Optimizer,
        *,
        metrics: Mapping[str, Metric] | None = None,
        callbacks: Sequence[Callback] = (),
        clip_norm: float | None = None,
        accumulate: int = 1,
        progress: str = "auto",
    ) -> None:
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        _check_types(loss, callbacks, metrics)
        self.metrics = dict(metrics or {})
        recorded = {"epoch", "step", "lr", "seconds", "loss"}
        validated = {VALIDATION + name for name in ("loss", *self.metrics)}
        if taken := self.metrics.keys() & (recorded | validated):
            raise ValueError(f"a metric cannot have the name {', '.join(sorted(taken))}")
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if trained.isdisjoint(id(p) for p in model.parameters()):
            raise ValueError("the optimizer has none of the model's parameters: make it of them")
        check_count("accumulate", accumulate)
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, or None to clip nothing, got {clip_norm}")
        self.clip_norm = clip_norm
        self.accumulate = accumulate
        self._progress = make_progress(progress)
        self.callbacks: list[Callback] = [self._progress, *callbacks]
        self.history = History()
        self.epoch = self.step = self.batch = self.epochs = 0
        self.should_stop = False
        self.batches_per_epoch: int | None = None
        self.averages = Averages()
        self.loaders: dict[str, Any] = {}
        self.pending: dict[str, Any] = {}  # of a loaded state: what the next `fit` is to restore
        self.position: dict[int, Any] = {}  # of an epoch, where its last update left the loaders
        self.used_up = False  # the epoch under way has no more batches
        self._ended = False  # the loader has none
        self._snapshots: deque[dict[str, Any]] = deque(maxlen=2)
        self._first_step = 0  # of the epoch under way
        self._interrupt = Interrupt()

    # -- the loop ----------------------------------------------------------------------------------

    def fit(self, loader: Loader, *, validation: Loader | None = None, epochs: int) -> History:
        """Train until `epochs` epochs are complete, counting those of earlier calls and loads.

        Args:
            loader: batches to train on; each iteration over it is an epoch.
            validation: batches to evaluate on after each epoch.
            epochs: the number of epochs in all, so that the same call continues a loaded run.

        Returns:
            The history.

        Raises:
            ValueError: a loader is a generator, and several epochs are left.
            NonFiniteError: the loss or a weight became NaN or infinite; the trainer is then as it
                was at the start of the last epoch that began well.
            SystemExit: Ctrl-C was pressed and a `Checkpoint` has saved the state.
        """
        given = (loader, validation)
        if any(isinstance(each, Generator) for each in given) and epochs - self.epoch > 1:
            raise ValueError(
                "a generator gives its batches once, and each epoch iterates over the loader: give "
                "a DataLoader, or a list"
            )
        attach(self, {"training": loader, "validation": validation})
        self.batches_per_epoch = _length(loader)
        self.epochs, self.should_stop = epochs, False
        self._snapshots.clear()
        deferred = any(callback.handles_interrupt for callback in self.callbacks)
        try:
            self.call("on_fit_start")
            if self.epoch >= epochs:
                self.report(f"{self.epoch} of {epochs} epochs are complete: nothing to do")
            with deferred_interrupt(deferred) as self._interrupt:
                while self.epoch < epochs and not self.should_stop:
                    self.run_epoch(loader, validation)
        finally:
            self.call("on_fit_end")
            self._snapshots.clear()
        return self.history

    def evaluate(self, loader: Loader) -> dict[str, float]:
        """Means of the loss and of the metrics over all batches, in evaluation mode.

        Raises:
            ValueError: there are no batches.
        """
        return loop.evaluate(self, loader)

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """(outputs, targets) of a batch, which both go to the loss and to the metrics. Override it
        for batches that are not pairs.
        """
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            what = f"{len(batch)} fields" if isinstance(batch, (tuple, list)) else type(batch)
            raise TypeError(
                f"a batch must be a pair (inputs, targets), not {what}; override Trainer.forward"
            )
        inputs, targets = batch
        return self.model(inputs), targets

    # -- what the loop is made of ------------------------------------------------------------------

    def run_epoch(self, loader: Loader, validation: Loader | None) -> None:
        """Run one epoch of `fit`, or what is left of it."""
        left = () if self.batch and self.used_up else self._until_the_end(loader)
        loop.run_epoch(self, left, validation)

    def _until_the_end(self, loader: Loader) -> Iterator[Any]:
        """The batches of an epoch, and a note that the loader gave its last one. Of `accumulate`
        batches the last few are known only then: the loader is at the next epoch before they are
        trained on.
        """
        self._ended = False
        yield from loader
        self._ended = True

    def update(self, batches: Sequence[Any]) -> float:
        """Update the parameters once by `batches`; the mean loss."""
        self.model.zero_grad()  # clip_norm counts what the optimizer does not have, too
        mean = loop.update(self, batches)
        self.used_up = self._ended
        note_position(self)
        return mean

    def begin_epoch(self) -> None:
        """Keep a copy of the state, for `fail` to go back to; put the model into training mode."""
        if not self.batch:
            self.averages, self.used_up = Averages(), False
        note_position(self)
        self._snapshots.append(copy_tree(self.state_dict()))
        self._first_step = self.step
        self.model.train()

    def loss_of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch, 0-d."""
        loss = self.loss(outputs, targets)
        if loss.shape != ():
            raise ShapeError(
                f"the loss must be one number, the mean over the batch, not of shape {loss.shape}"
            )
        return loss

    def measure(self, averages: Averages, loss: float, outputs: Tensor, targets: Tensor) -> None:
        """Add the loss and the metrics of a batch to the averages, weighted by its samples."""
        values = {name: float(metric(outputs, targets)) for name, metric in self.metrics.items()}
        averages.add({"loss": loss, **values}, targets.shape[0] if targets.ndim else 1)

    def call(self, moment: str, *args: Any) -> None:
        """Call that method of all callbacks, with the trainer and `args`."""
        for callback in self.callbacks:
            getattr(callback, moment)(self, *args)

    def exit_if_interrupted(self) -> None:
        """End the program, by callbacks' `on_interrupt` and SystemExit, if Ctrl-C was pressed."""
        if self._interrupt.pressed:
            self.check_weights()
            self.call("on_interrupt")
            raise SystemExit(INTERRUPTED)

    # -- what can go wrong -------------------------------------------------------------------------

    def check_loss(self, value: float, batch: Any) -> None:
        """Raise NonFiniteError, by `fail`, if the training loss of a batch is not finite."""
        if not math.isfinite(value):
            where = blame(self.model, batch, lambda: self.forward(batch))
            self.fail(f"the training loss is {value}{where}")

    def check_weights(self) -> None:
        """Raise NonFiniteError, by `fail`, if a parameter is not finite."""
        for name, p in self.model.named_parameters():
            if not is_finite(p):
                self.fail(f"{name} is no longer finite")

    def fail(self, what: str) -> NoReturn:
        """Go back to the start of this epoch, or of the one before if this one did not begin well:
        the weights that it began with are then those that are no good. Then raise NonFiniteError.
        """
        where = f"epoch {self.epoch + 1}, step {self.step + 1} (batch {self.batch + 1})"
        lr = self.optimizer.param_groups[0]["lr"]
        step_done = self.step > self._first_step
        self.load_state_dict(self._snapshots[-1 if step_done else 0])
        clip = "" if self.clip_norm is not None else " or pass clip_norm=1.0,"
        raise NonFiniteError(
            f"{what} at {where}. Model and optimizer are again as they were after step "
            f"{self.step}. Lower the learning rate (it is {lr:.4g}),{clip} or look for NaN in the "
            f"data"
        )

    # -- state -------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write all that is needed to continue to a file, atomically; see `save_checkpoint`."""
        save_checkpoint(path, self.state_dict())

    def load(self, path: str | Path) -> None:
        """Continue from a file that `save` or a `Checkpoint` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            DataError, ValueError: it is damaged, or of another model, optimizer or set of
                callbacks. The trainer is then as it was.
        """
        self.load_state_dict(load_checkpoint(path))

    def state_dict(self) -> dict[str, Any]:
        """The state of model, optimizer, callbacks, random numbers, loaders, history, as a tree."""
        return capture(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from where `state_dict` was taken; loaders and random numbers at the next `fit`.

        Raises:
            DataError, ValueError: it does not fit; everything is then as it was.
        """
        restore(self, state)

    # -- reports -----------------------------------------------------------------------------------

    def report(self, text: str) -> None:
        """Show a line where the progress is shown."""
        self._progress.message(text)


def _check_types(loss: Any, callbacks: Any, metrics: Any) -> None:
    """Raise TypeError where an argument of a `Trainer` is another thing than it takes."""
    if isinstance(callbacks, Callback):
        raise TypeError(f"callbacks are several: write callbacks=[{type(callbacks).__name__}(...)]")
    for each in (loss, *callbacks):
        if isinstance(each, type):
            raise TypeError(f"loss and callbacks must be objects: write {each.__name__}(...)")
    for each in callbacks:
        if not isinstance(each, Callback):
            schedule = isinstance(each, LRScheduler | ReduceLROnPlateau)
            raise TypeError(
                f"{type(each).__name__} is no Callback: "
                + ("wrap it in ScheduleLR(...)" if schedule else "derive its class from Callback")
            )
    if metrics is not None and not isinstance(metrics, Mapping):
        raise TypeError("metrics have names: write metrics={'accuracy': accuracy}")


def _length(loader: Any) -> int | None:
    """How many batches there are; None if nobody knows: a loader of a stream has a `__len__` that
    raises."""
    try:
        return len(loader)
    except TypeError:
        return None
