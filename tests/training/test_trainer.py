"""The training loop: what it computes, what it refuses, and what it does when numbers go bad."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.training.runs import BATCHES, make_loader, make_trainer, whole_state
from tinytorch import ShapeError, Tensor, nn, optim
from tinytorch.data import DataLoader, IterableDataset
from tinytorch.training import Callback, Checkpoint, NonFiniteError, Trainer, accuracy
from tinytorch.training.checkpoint import copy_tree

LOSS = nn.CrossEntropyLoss()


def linear_trainer(loss: Any = LOSS, *, lr: float = 0.5, **options: Any) -> Trainer:
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), lr=lr)
    return Trainer(model, loss, optimizer, **{"progress": "quiet", **options})


def test_the_loop_is_the_one_written_by_hand() -> None:
    trainer = linear_trainer(metrics={"accuracy": accuracy})
    model = nn.Linear(3, 2)
    model.load_state_dict(trainer.model.state_dict())
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    loader, test = make_loader(3), make_loader(shuffle=False)
    inputs, labels = test.dataset.tensors
    history = trainer.fit(make_loader(3), validation=test, epochs=2)
    for epoch in range(2):
        losses, hits = [], 0
        for x, y in loader:
            out = model(x)
            loss = LOSS(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            hits += (out.argmax(1) == y).sum().item()
        assert history["loss"][epoch] == pytest.approx(np.mean(losses), rel=1e-12)
        assert history["accuracy"][epoch] == hits / (4 * BATCHES)
        expected = LOSS(model(inputs), labels).item()
        assert history["val_loss"][epoch] == pytest.approx(expected, rel=1e-6)
    assert trainer.model.weight.tolist() == model.weight.tolist()
    assert (trainer.epoch, trainer.step, trainer.batch) == (2, 2 * BATCHES, 0)
    assert history["step"] == [BATCHES, 2 * BATCHES] and history["lr"] == [0.5, 0.5]


def test_fit_counts_all_epochs() -> None:
    trainer = linear_trainer()
    loader = make_loader(0)
    trainer.fit(loader, epochs=1)
    assert len(trainer.fit(loader, epochs=3)) == 3
    weights = trainer.model.weight.tolist()
    assert len(trainer.fit(loader, epochs=3)) == 3
    assert trainer.model.weight.tolist() == weights


def test_modes_of_the_model() -> None:
    seen = []

    class Probe(nn.Module):
        def __init__(self) -> None:
            self.linear, self.frozen = nn.Linear(3, 2), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            seen.append((self.training, tinytorch.is_grad_enabled()))
            return self.linear(x)

    model = Probe()
    trainer = Trainer(model, LOSS, optim.SGD(model.parameters()), progress="quiet")
    trainer.fit(make_loader(0), validation=make_loader(0), epochs=1)
    assert seen == [(True, True)] * BATCHES + [(False, False)] * BATCHES
    assert model.training
    model.frozen.eval()
    trainer.evaluate(make_loader(0))
    assert (model.training, model.frozen.training) == (True, False)


def test_batches_count_by_their_size() -> None:
    x, y = tinytorch.zeros(3, 3), tinytorch.tensor([0, 0, 1])
    trainer = linear_trainer(metrics={"accuracy": lambda out, y: float(y.shape[0] == 1)})
    assert trainer.evaluate([(x, y), (x[:1], y[:1])])["accuracy"] == 0.25


def test_clip_norm_limits_every_update() -> None:
    trainer = linear_trainer(lr=1.0, clip_norm=0.01)
    before = trainer.model.weight.detach().clone()
    trainer.fit(make_loader(0), epochs=1)
    moved = (trainer.model.weight.detach() - before).norm().item()
    assert 0 < moved <= 0.01 * BATCHES


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 2)])
def test_accumulated_gradients_are_those_of_one_large_batch(sizes: tuple[int, ...]) -> None:
    inputs, labels = make_loader().dataset.tensors
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [(inputs[i:j], labels[i:j]) for i, j in itertools.pairwise(ends)]
    large = linear_trainer(metrics={"accuracy": accuracy}, clip_norm=0.1)
    small = linear_trainer(metrics={"accuracy": accuracy}, clip_norm=0.1, accumulate=2)
    small.model.load_state_dict(large.model.state_dict())
    large.fit([(inputs[:8], labels[:8]), (inputs[8 : ends[-1]], labels[8 : ends[-1]])], epochs=3)
    small.fit(parts, epochs=3)
    assert (small.step, large.step) == (6, 6)
    assert small.model.weight.tolist() == [pytest.approx(r) for r in large.model.weight.tolist()]
    for name in ("loss", "accuracy"):
        assert small.history[name] == pytest.approx(large.history[name])


def test_accumulation_weights_batches_by_their_samples() -> None:
    inputs, labels = make_loader().dataset.tensors
    parts = [(inputs[:7], labels[:7]), (inputs[7:8], labels[7:8])]
    large, small = linear_trainer(), linear_trainer()
    small.model.load_state_dict(large.model.state_dict())
    losses = [large.update([(inputs[:8], labels[:8])]), small.update(parts)]
    assert losses[1] == pytest.approx(losses[0])
    assert small.model.weight.tolist() == [pytest.approx(r) for r in large.model.weight.tolist()]
    assert (small.step, small.batch) == (1, 2)
    with pytest.raises(ValueError, match="accumulate must be at least 1, and an integer, got 0"):
        linear_trainer(accumulate=0)


def test_a_stream_whose_length_nobody_knows() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([([1.0, 2.0, 3.0], 1)] * 10)

    def collated(samples: Any) -> Any:
        return tinytorch.tensor([x for x, _ in samples]), tinytorch.tensor([y for _, y in samples])

    trainer = linear_trainer()
    trainer.fit(DataLoader(Stream(), 4, collate_fn=collated), epochs=2)
    assert (trainer.step, trainer.batches_per_epoch) == (6, None)


def test_gradients_that_no_optimizer_clears_do_not_add_up() -> None:
    """As clip_norm counts them, the steps of the others would become shorter and shorter."""

    def moved(updates: int) -> float:
        tinytorch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        optimizer = optim.SGD(model[1].parameters(), lr=0.0)
        trainer = Trainer(model, LOSS, optimizer, clip_norm=0.01, progress="quiet")
        for _ in range(updates):
            trainer.update([next(iter(make_loader(0)))])
        norm: float = model[1].weight.grad.norm().item()
        return norm

    assert moved(20) == moved(1)


def test_a_metric_may_give_a_tensor() -> None:
    def hits(outputs: Tensor, targets: Tensor) -> Any:
        return (outputs.argmax(1) == targets).float().mean()

    trainer = linear_trainer(metrics={"hits": hits, "accuracy": accuracy})
    record = trainer.fit(make_loader(0), epochs=1).records[0]
    assert type(record["hits"]) is float and record["hits"] == record["accuracy"]


def test_forward_can_be_overridden() -> None:
    class ByName(Trainer):
        def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
            return self.model(batch["x"]), batch["y"]

    model = nn.Linear(3, 2)
    trainer = ByName(model, LOSS, optim.SGD(model.parameters()), progress="quiet")
    trainer.fit([{"x": x, "y": y} for x, y in make_loader(0)], epochs=1)
    assert trainer.step == BATCHES


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (
            lambda: linear_trainer(metrics={"loss": accuracy}),
            ValueError,
            "a metric cannot have the name loss",
        ),
        (
            lambda: linear_trainer(metrics={"hits": accuracy, "val_hits": accuracy}),
            ValueError,
            "a metric cannot have the name val_hits",
        ),
        (
            lambda: linear_trainer(accumulate=2.5),
            ValueError,
            "accumulate must be at least 1, and an integer, got 2.5",
        ),
        (
            lambda: linear_trainer(clip_norm=-1.0),
            ValueError,
            "clip_norm must be above 0, or None to clip nothing, got -1.0",
        ),
        (
            lambda: linear_trainer(callbacks=[Callback]),
            TypeError,
            "callbacks must be objects: write Callback(...)",
        ),
        (
            lambda: linear_trainer(callbacks=Callback()),
            TypeError,
            "write callbacks=[Callback(...)]",
        ),
        (
            lambda: linear_trainer(
                callbacks=[optim.StepLR(optim.SGD([tinytorch.zeros(1)], lr=0.1), 1)]
            ),
            TypeError,
            "StepLR is no Callback: wrap it in ScheduleLR(...)",
        ),
        (
            lambda: linear_trainer(callbacks=[print]),
            TypeError,
            "builtin_function_or_method is no Callback: derive its class from Callback",
        ),
        (
            lambda: linear_trainer(metrics=[accuracy]),
            TypeError,
            "metrics have names: write metrics={'accuracy': accuracy}",
        ),
        (
            lambda: linear_trainer(nn.CrossEntropyLoss),
            TypeError,
            "loss and callbacks must be objects: write CrossEntropyLoss(...)",
        ),
        (
            lambda: Trainer(nn.Linear(1, 1), LOSS, optim.SGD([tinytorch.zeros(1)])),
            ValueError,
            "the optimizer has none of the model's parameters: make it of them",
        ),
        (
            lambda: linear_trainer(progress="loud"),
            ValueError,
            "progress must be 'auto', 'bar', 'plain' or 'quiet', got 'loud'",
        ),
        (
            lambda: linear_trainer().fit((batch for batch in make_loader(0)), epochs=2),
            ValueError,
            "a generator gives its batches once, and each epoch iterates over the loader",
        ),
        (
            lambda: linear_trainer().fit(
                make_loader(0), validation=(batch for batch in make_loader(0)), epochs=2
            ),
            ValueError,
            "a generator gives its batches once, and each epoch iterates over the loader",
        ),
        (lambda: linear_trainer().fit([], epochs=1), ValueError, "the loader gave no batches"),
        (lambda: linear_trainer().evaluate([]), ValueError, "the loader gave no batches"),
        (
            lambda: linear_trainer().fit([(1, 2, 3)], epochs=1),
            TypeError,
            "a batch must be a pair (inputs, targets), not 3 fields; override Trainer.forward",
        ),
        (
            lambda: linear_trainer(lambda out, y: out).fit(make_loader(0), epochs=1),
            ShapeError,
            "the loss must be one number, the mean over the batch, not of shape (4, 2)",
        ),
    ],
)
def test_errors(action: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        action()


class Losses:
    """The training loss of batch i, counted from 1, goes through what `changes` has for i."""

    def __init__(self, changes: dict[int, Any]) -> None:
        self.calls = 0
        self.changes = changes

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss = LOSS(outputs, targets)
        if not tinytorch.is_grad_enabled():
            return loss
        self.calls += 1
        return self.changes.get(self.calls, lambda loss: loss)(loss)


class Remember(Callback):
    """The whole state at the start of each epoch."""

    def __init__(self) -> None:
        self.states: list[Any] = []

    def on_epoch_start(self, trainer: Trainer) -> None:
        self.states.append(whole_state(trainer))


def nan(loss: Tensor) -> Tensor:
    return loss * math.nan


def infinite(loss: Tensor) -> Tensor:
    return loss + math.inf


def nan_gradient(loss: Tensor) -> Tensor:
    return loss + (loss * 0).sqrt()  # the slope of the root at 0 is infinite, and 0 times that NaN


@pytest.mark.parametrize(
    ("changes", "good_epoch", "message"),
    [
        ({1: nan}, 0, "the training loss is nan at epoch 1, step 1 (batch 1)"),
        ({3: infinite}, 0, "the training loss is inf at epoch 1, step 3 (batch 3)"),
        ({BATCHES + 3: nan}, 1, f"the training loss is nan at epoch 2, step {BATCHES + 3} (batch"),
        # an epoch that begins badly began with bad weights
        ({2 * BATCHES + 1: nan}, 1, f"the training loss is nan at epoch 3, step {2 * BATCHES + 1}"),
        (
            {2: nan_gradient},
            0,
            "the training loss is nan, first in the result of 0 (Linear), at epoch 1, step 3",
        ),
        # nothing but the weights tells it: there is no next batch
        ({3 * BATCHES: nan_gradient}, 2, "is no longer finite at epoch 3"),
    ],
)
def test_a_loss_that_is_not_finite(
    tmp_path: Path, changes: dict[int, Any], good_epoch: int, message: str
) -> None:
    remember, path = Remember(), tmp_path / "run"
    trainer = make_trainer([remember, Checkpoint(path)], clip_norm=None, optimizer="SGD")
    trainer.loss = Losses(changes)
    with pytest.raises(NonFiniteError, match=re.escape(message)) as error:
        trainer.fit(make_loader(0), validation=make_loader(shuffle=False), epochs=3)
    assert whole_state(trainer) == remember.states[good_epoch]
    assert f"again as they were after step {good_epoch * BATCHES}. Lower the" in str(error.value)
    assert "or pass clip_norm=1.0" in str(error.value)
    if path.exists():  # the file is of the end of an epoch, and was not overwritten since
        resumed = make_trainer(optimizer="SGD")
        resumed.load(path)
        assert np.isfinite(resumed.history["val_loss"]).all()


def test_training_can_go_on_after_a_loss_that_was_not_finite() -> None:
    trainer, loader = linear_trainer(Losses({BATCHES + 2: nan})), make_loader(0)
    start = copy_tree(trainer.model.state_dict())
    with pytest.raises(NonFiniteError):
        trainer.fit(loader, epochs=2)
    trainer.fit(loader, epochs=2)
    whole = linear_trainer()
    whole.model.load_state_dict(start)
    whole.fit(make_loader(0), epochs=2)
    assert whole_state(trainer) == whole_state(whole)  # the same batches were met again


def test_a_validation_loss_that_is_not_finite() -> None:
    trainer = linear_trainer()
    x, y = tinytorch.full((1, 3), math.nan), tinytorch.tensor([0])
    with pytest.raises(NonFiniteError, match="the validation loss is nan at epoch 1"):
        trainer.fit(make_loader(0), validation=[(x, y)], epochs=1)
    assert trainer.step == 0


def test_a_batch_that_is_not_finite_is_blamed() -> None:
    def batches() -> Iterator[Any]:
        for x, y in make_loader(0):
            yield x * math.inf, y

    with pytest.raises(NonFiniteError, match="is nan, as the batch itself has NaN or infinity in"):
        linear_trainer().fit(batches(), epochs=1)


def test_a_learning_rate_that_is_too_large() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x).flatten()

    model = Square()
    start = model.linear.weight.tolist()
    trainer = Trainer(model, nn.MSELoss(), optim.SGD(model.parameters(), lr=1e9), progress="quiet")
    batches = [(x, y.float()) for x, y in make_loader(0)]
    with pytest.raises(NonFiniteError, match=re.escape("Lower the learning rate (it is 1e+09)")):
        trainer.fit(batches, epochs=5)
    assert model.linear.weight.tolist() == start
