"""What the eighth module's parts do inside the package."""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.training import (
    Callback,
    Checkpoint,
    EarlyStopping,
    NonFiniteError,
    Trainer,
    accuracy,
)
from tito.checks import check, close, equal, raises


def points(count: int = 24) -> list[tuple[tinytorch.Tensor, tinytorch.Tensor]]:
    """Batches of 10, 10 and 4 points of two classes that a line divides."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(count, 2)).astype(np.float32)
    x, y = tinytorch.tensor(inputs), tinytorch.tensor((inputs.sum(1) > 0).astype(np.int64))
    return [(x[i : i + 10], y[i : i + 10]) for i in range(0, count, 10)]


def trainer_of(dropout: float = 0.25, **options: Any) -> Trainer:
    tinytorch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))
    optimizer = optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    options |= {"metrics": {"accuracy": accuracy}, "progress": "quiet"}
    return Trainer(model, nn.CrossEntropyLoss(), optimizer, **options)


def test_a_network_learns() -> None:
    """a trainer learns two classes, and says so in its history"""
    trainer, batches = trainer_of(), points()
    history = trainer.fit(batches, validation=batches, epochs=12)
    check(history["loss"][-1] < 0.5 * history["loss"][0], f"the losses are {history['loss']}")
    equal((len(history), trainer.step, trainer.batch), (12, 36, 0))
    found = trainer.evaluate(batches)
    check(found["accuracy"] > 0.9, f"{found['accuracy']:.0%} of the training data are right")
    close(found["loss"], history["val_loss"][-1])
    check(trainer.model.training, "an evaluation left the model in eval")


def test_parts_of_a_batch_are_the_batch() -> None:
    """gradients of parts of a batch add up to that of the batch, and are clipped"""
    (x, y), (x2, y2), _ = points()
    whole = [(tinytorch.cat([x, x2[:3]]), tinytorch.cat([y, y2[:3]]))]
    large = trainer_of(0.0, clip_norm=0.1)
    small = trainer_of(0.0, clip_norm=0.1, accumulate=2)
    for _ in range(3):
        large.fit(whole, epochs=large.epoch + 1)
        small.fit([(x, y), (x2[:3], y2[:3])], epochs=small.epoch + 1)
    close(small.model[0].weight.tolist(), large.model[0].weight.tolist())
    equal((small.step, large.step), (3, 3))


def test_a_run_goes_on_to_the_same_bits() -> None:
    """a run that is saved and loaded ends with the same bits, and a wrong file changes nothing"""
    path = Path(tempfile.mkdtemp()) / "run.safetensors"
    whole, first = trainer_of(), trainer_of(callbacks=[Checkpoint(path)])
    batches = points()
    first.fit(batches, epochs=2)
    whole = trainer_of()
    whole.fit(batches, epochs=4)
    resumed = trainer_of()
    resumed.load(path)
    resumed.fit(batches, epochs=4)
    equal(resumed.model[0].weight.tolist(), whole.model[0].weight.tolist())
    close(resumed.history["loss"], whole.history["loss"])
    other = Trainer(model := nn.Linear(2, 2), nn.MSELoss(), optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.tolist()
    raises(Exception, other.load, path)
    equal((model.weight.tolist(), other.epoch), (before, 0))


def test_it_stops() -> None:
    """a run stops when nothing gets better, and gives the best weights back"""
    trainer = trainer_of(callbacks=[EarlyStopping("val_loss", patience=2, restore_best=True)])
    batches = points()
    x, y = batches[2]
    history = trainer.fit(batches, validation=[(x, 1 - y)], epochs=30)
    equal(len(history), 3)
    close(trainer.evaluate([(x, 1 - y)])["loss"], min(history["val_loss"]))


def test_a_nan_has_a_name() -> None:
    """a NaN stops the run before the step, and the layer of the first one is named"""

    class Spoil(Callback):
        def on_epoch_start(self, trainer: Trainer) -> None:
            if trainer.epoch == 1:
                trainer.model[3].weight.detach().fill_(math.nan)

    trainer = trainer_of(callbacks=[Spoil()])
    batches = points()
    raises(
        NonFiniteError, trainer.fit, batches, epochs=3, match="first in the result of 3 (Linear)"
    )
    check(bool(np.isfinite(trainer.model[3].weight.detach().numpy()).all()), "the weights are NaN")
