"""The training loop: one update, one evaluation, one epoch.

Each is a function of a trainer, whose methods of the same names call it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tinytorch.autograd import no_grad
from tinytorch.data.sampler import batched
from tinytorch.optim import clip_grad_norm_
from tinytorch.tensor import Tensor
from tinytorch.training.history import VALIDATION, Record
from tinytorch.training.metrics import Averages

if TYPE_CHECKING:
    from tinytorch.training.trainer import Trainer


def shares(batches: Sequence[Any]) -> list[float]:
    """The part of all samples that each batch has; the parts sum to 1.

    `samples_in(batch)` is how many samples a batch has.

    >>> import tinytorch
    >>> shares([(tinytorch.zeros(6, 4), tinytorch.zeros(6)), (tinytorch.zeros(2, 4), None)])
    [0.75, 0.25]
    """
    sizes = [samples_in(batch) for batch in batches]
    return [size / sum(sizes) for size in sizes]


def samples_in(batch: Any) -> int:
    """The first dimension of the first tensor in a batch; 1 if there is none, or it has none.

    >>> import tinytorch
    >>> samples_in({"x": [tinytorch.zeros(6, 4)], "y": tinytorch.zeros(6)})
    6
    """
    if isinstance(batch, Tensor):
        return max(1, batch.shape[0]) if batch.ndim else 1
    fields = batch.values() if isinstance(batch, dict) else batch
    if isinstance(fields, Iterable) and not isinstance(fields, str):
        for field in fields:
            return samples_in(field)
    return 1


def update(trainer: Trainer, batches: Sequence[Any]) -> float:
    """Update the parameters once, by the gradient of the mean loss over all samples of `batches`.

    1. The optimizer clears the gradients of the update before.
    2. For each batch: `trainer.forward(batch)` gives (outputs, targets), and
       `trainer.loss_of(outputs, targets)` the mean loss over the batch, a 0-d tensor. Its value is
       checked by `trainer.check_loss(value, batch)`, which raises if it is not finite. The loss
       goes backward, multiplied by the batch's share of the samples (`shares`): so the gradients
       add up to those of one large batch, in the memory of a small one. Without history,
       `trainer.measure(trainer.averages, value, outputs, targets)` notes loss and metrics.
    3. If `trainer.clip_norm` is not None, the gradients of `trainer.model.parameters()` are clipped
       to it by `clip_grad_norm_`. The optimizer takes its step.
    4. `trainer.step` grows by 1, `trainer.batch` by the number of batches.

    Returns:
        The mean loss over all samples, before the update: a float.
    """
    trainer.optimizer.zero_grad()
    mean = 0.0
    for batch, share in zip(batches, shares(batches), strict=True):
        outputs, targets = trainer.forward(batch)
        loss = trainer.loss_of(outputs, targets)
        value: float = loss.item()
        trainer.check_loss(value, batch)
        (loss * share).backward()
        mean += share * value
        with no_grad():
            trainer.measure(trainer.averages, value, outputs, targets)
    if trainer.clip_norm is not None:
        clip_grad_norm_(trainer.model.parameters(), trainer.clip_norm)
    trainer.optimizer.step()
    trainer.step += 1
    trainer.batch += len(batches)
    return mean


def evaluate(trainer: Trainer, loader: Iterable[Any]) -> dict[str, float]:
    """Means of the loss and of the metrics over all samples of a loader's batches.

    The whole model is in evaluation mode and nothing is recorded for gradients. Afterwards each
    module has the mode (`training`) that it had before, after an error too.

    For each batch `trainer.forward(batch)` gives (outputs, targets),
    `trainer.loss_of(outputs, targets)` the loss, a 0-d tensor, and
    `trainer.measure(averages, value, outputs, targets)` adds the loss's value and the metrics to an
    `Averages`, whose `means()` are the result.

    Raises:
        ValueError: there are no batches.
    """
    averages = Averages()
    modes = [(module, module.training) for module in trainer.model.modules()]
    trainer.model.eval()
    try:
        with no_grad():
            for batch in loader:
                outputs, targets = trainer.forward(batch)
                loss = trainer.loss_of(outputs, targets)
                trainer.measure(averages, loss.item(), outputs, targets)
    finally:
        for module, training in modes:
            module.training = training
    return averages.means()


def run_epoch(trainer: Trainer, loader: Iterable[Any], validation: Iterable[Any] | None) -> None:
    """Run one epoch: an update for each `trainer.accumulate` batches of the loader, then the
    record.

    1. `trainer.begin_epoch()`, then the callbacks' `on_epoch_start`: `trainer.call(name)` calls the
       method of that name of all callbacks.
    2. `batched(loader, trainer.accumulate, False)` gives lists of batches, the last one
       maybe shorter. For each of them: `trainer.update(batches)`, which returns the loss, then the
       callbacks' `on_step_end`, with `trainer.call("on_step_end", loss)`, and
       `trainer.exit_if_interrupted()`.
    3. `trainer.check_weights()`. Then the `record_of` the epoch goes to `trainer.history.records`,
       `trainer.epoch` grows by 1, and `trainer.batch` is 0 again.
    4. The callbacks' `on_epoch_end` and then their `after_epoch`, both with the record;
       `trainer.exit_if_interrupted()`.
    """
    started = time.perf_counter()
    trainer.begin_epoch()
    trainer.call("on_epoch_start")
    for batches in batched(loader, trainer.accumulate, False):
        loss = trainer.update(batches)
        trainer.call("on_step_end", loss)
        trainer.exit_if_interrupted()
    trainer.check_weights()
    record = record_of(trainer, validation, started)
    trainer.history.records.append(record)
    trainer.epoch, trainer.batch = trainer.epoch + 1, 0
    trainer.call("on_epoch_end", record)
    trainer.call("after_epoch", record)
    trainer.exit_if_interrupted()


def record_of(trainer: Trainer, validation: Iterable[Any] | None, started: float) -> Record:
    """The record that the history keeps of the epoch that is ending, in this order:

    - "epoch": its number, counted from 1, and "step": the updates so far;
    - the means of `trainer.averages`: the loss and the metrics, while the model was trained;
    - if there is `validation`: what `trainer.evaluate(validation)` gives, each name with "val_"
      (`VALIDATION`) in front;
    - "lr": the rate of the optimizer's first group, and "seconds" since `started`, by
      `time.perf_counter()`.

    A validation loss that is not finite goes to `trainer.fail("the validation loss is nan")`, which
    raises.
    """
    record: Record = {"epoch": trainer.epoch + 1, "step": trainer.step}
    record |= trainer.averages.means()
    if validation is not None:
        measured = trainer.evaluate(validation)
        if not math.isfinite(measured["loss"]):
            trainer.fail(f"the validation loss is {measured['loss']}")
        record |= {VALIDATION + name: value for name, value in measured.items()}
    record["lr"] = trainer.optimizer.param_groups[0]["lr"]
    record["seconds"] = time.perf_counter() - started
    return record
