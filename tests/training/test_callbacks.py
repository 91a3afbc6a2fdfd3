"""Early stopping, checkpoints and schedules as callbacks."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

import tinytorch
from tests.training.runs import BATCHES, fit, make_loader, make_trainer, whole_state
from tinytorch import nn, optim
from tinytorch.training import Callback, Checkpoint, EarlyStopping, ScheduleLR, Trainer
from tinytorch.training.callbacks import Best


class Script(Callback):
    """Gives the records a quantity "score" with these values, and remembers the weights."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = scores
        self.weights: list[Any] = []

    def on_epoch_end(self, trainer: Trainer, record: dict[str, float]) -> None:
        record["score"] = self.scores[trainer.epoch - 1]
        self.weights.append(trainer.model.weight.tolist())


def run(scores: list[float], *callbacks: Callback, epochs: int | None = None) -> Trainer:
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    script = Script(scores)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), optimizer, callbacks=[script, *callbacks], progress="quiet"
    )
    trainer.fit(make_loader(0), epochs=epochs or len(scores))
    return trainer


def weights_of(trainer: Trainer) -> list[Any]:
    return next(c.weights for c in trainer.callbacks if isinstance(c, Script))


@pytest.mark.parametrize(
    ("options", "scores", "epochs"),
    [
        ({"patience": 1}, [3, 2, 2, 1], 3),
        ({"patience": 2}, [3, 2, 2, 1], 4),
        ({"patience": 2}, [1, 2, 0, 2, 2, 0], 5),
        ({"patience": 1, "mode": "max"}, [1, 2, 3, 2, 4], 4),
        ({"patience": 1, "min_delta": 0.5}, [3, 2, 1.75, 1], 3),
        ({"patience": 2}, [1, math.nan, math.nan, 0], 3),
    ],
)
def test_early_stopping(options: dict[str, Any], scores: list[float], epochs: int) -> None:
    assert run(scores, EarlyStopping("score", **options)).epoch == epochs


def test_early_stopping_gives_the_best_weights_back() -> None:
    scores = [3.0, 1.0, 2.0, 2.0, 0.0]
    stopped = run(scores, EarlyStopping("score", 2, restore_best=True))
    assert stopped.epoch == 4
    assert stopped.model.weight.tolist() == weights_of(stopped)[1]
    kept = run(scores, EarlyStopping("score", 2))
    assert kept.model.weight.tolist() == weights_of(kept)[3]
    whole = run(scores[:3], EarlyStopping("score", 2, restore_best=True))
    assert whole.model.weight.tolist() == weights_of(whole)[2]  # it was not stopped


def test_a_stopped_run_stays_stopped_when_it_is_loaded(tmp_path: Path) -> None:
    def trainer() -> Trainer:
        stopping = EarlyStopping("loss", 1, min_delta=10.0, restore_best=True)
        return make_trainer([stopping, Checkpoint(tmp_path / "run")])

    tinytorch.manual_seed(0)
    stopped = trainer()
    fit(stopped, 9)
    assert stopped.epoch == 2
    resumed = trainer()
    resumed.load(tmp_path / "run")
    fit(resumed, 9)
    assert whole_state(resumed) == whole_state(stopped)


def test_early_stopping_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer([EarlyStopping("loss", 1, min_delta=10.0)], progress="plain")
    fit(trainer, 9)
    assert re.fullmatch(
        r"stopped: loss has not been better than 0\.\d+ for 1 epochs",
        capsys.readouterr().out.splitlines()[-1],
    )
    fit(trainer, 20)
    assert trainer.epoch == 2
    assert re.fullmatch(
        r"stopped before: loss had not been better than 0\.\d+ for 1 epochs\. To go on, .*\n",
        capsys.readouterr().out,
    )


def saved_epochs(tmp_path: Path, scores: list[float], **options: Any) -> list[int]:
    """The epochs after which a file was written."""
    path, seen = tmp_path / "run", []

    class Look(Callback):
        def after_epoch(self, trainer: Trainer, record: dict[str, float]) -> None:
            if path.exists():
                seen.append(trainer.epoch)
                path.unlink()

    run(scores, Checkpoint(path, **options), Look())
    return seen


def test_when_a_checkpoint_is_written(tmp_path: Path) -> None:
    scores = [3.0, 1.0, 2.0, 0.5, 4.0]
    assert saved_epochs(tmp_path, scores) == [1, 2, 3, 4, 5]
    assert saved_epochs(tmp_path, scores, every=2) == [2, 4, 5]
    assert saved_epochs(tmp_path, scores, monitor="score") == [1, 2, 4]
    assert saved_epochs(tmp_path, scores, monitor="score", mode="max") == [1, 5]


def test_the_last_file_knows_the_best_value_of_the_other(tmp_path: Path) -> None:
    """Although it is written first."""

    def callbacks() -> list[Callback]:
        return [Checkpoint(tmp_path / "last"), Checkpoint(tmp_path / "best", monitor="score")]

    run([3.0, 1.0], *callbacks())
    best = (tmp_path / "best").read_bytes()
    model = nn.Linear(3, 2)
    script = Script([3.0, 1.0, 2.0])
    resumed = Trainer(
        model,
        nn.CrossEntropyLoss(),
        optim.SGD(model.parameters(), lr=0.5),
        callbacks=[script, *callbacks()],
        progress="quiet",
    )
    resumed.load(tmp_path / "last")
    resumed.fit(make_loader(0), epochs=3)
    assert (tmp_path / "best").read_bytes() == best


def test_schedules() -> None:
    model = nn.Linear(3, 2)
    by_step = [0.5 ** (epoch * BATCHES) for epoch in (1, 2, 3)]
    for every, expected in (("epoch", [1.0, 0.5, 0.25]), ("step", by_step)):
        optimizer = optim.SGD(model.parameters(), lr=1.0)
        schedule = ScheduleLR(optim.ExponentialLR(optimizer, 0.5), every)
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), optimizer, callbacks=[schedule], progress="quiet"
        )
        assert trainer.fit(make_loader(0), epochs=3)["lr"] == expected


def test_a_plateau_looks_at_the_monitored_quantity() -> None:
    optimizers = []

    class Build(Callback):
        def on_fit_start(self, trainer: Trainer) -> None:
            optimizers.append(trainer.optimizer)
            plateau = optim.ReduceLROnPlateau(trainer.optimizer, patience=0, factor=0.5)
            trainer.callbacks.append(ScheduleLR(plateau, monitor="score"))

    trainer = run([3.0, 2.0, 2.0, 1.0, 1.0], Build())
    assert trainer.history["lr"] == [0.5, 0.5, 0.5, 0.25, 0.25]
    assert optimizers[0].param_groups[0]["lr"] == 0.125


def test_hooks_come_in_order() -> None:
    calls: list[str] = []

    class Log(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattribute__(self, attribute: str) -> Any:
            if attribute.startswith(("on_", "after_")):
                calls.append(f"{object.__getattribute__(self, 'name')} {attribute}")
            return object.__getattribute__(self, attribute)

    run([0.0], Log("a"), Log("b"))
    assert calls == [
        f"{name} {moment}"
        for moment in (
            ["on_fit_start", "on_epoch_start"]
            + ["on_step_end"] * BATCHES
            + ["on_epoch_end", "after_epoch", "on_fit_end"]
        )
        for name in "ab"
    ]


def test_fit_end_comes_after_an_error_too() -> None:
    ended = []

    class Fail(Callback):
        def on_step_end(self, trainer: Trainer, loss: float) -> None:
            raise OSError("disk full")

        def on_fit_end(self, trainer: Trainer) -> None:
            ended.append(trainer.step)

    with pytest.raises(OSError, match="disk full"):
        run([0.0], Fail())
    assert ended == [1]


def schedule(cls: Any = optim.ReduceLROnPlateau) -> Any:
    optimizer = optim.SGD([tinytorch.zeros(1)])
    return cls(optimizer) if cls is optim.ReduceLROnPlateau else cls(optimizer, 0.5)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: EarlyStopping(patience=0), "patience must be at least 1, got 0"),
        (lambda: EarlyStopping(mode="up"), "mode must be 'min' or 'max', got 'up'"),
        (lambda: Checkpoint("a", every=0), "every must be at least 1, got 0"),
        (lambda: ScheduleLR(schedule(), "batch"), "every must be 'epoch' or, but for ReduceLRO"),
        (lambda: ScheduleLR(schedule(), "step"), "every must be 'epoch' or, but for ReduceLRO"),
        (lambda: ScheduleLR(schedule()), "ReduceLROnPlateau needs a monitor, say 'val_loss'"),
        (
            lambda: ScheduleLR(schedule(optim.ExponentialLR), monitor="loss"),
            "ExponentialLR takes no monitor",
        ),
        (
            lambda: run([0.0], ScheduleLR(schedule(optim.ExponentialLR))),
            "the ExponentialLR of ScheduleLR is of another optimizer than the trainer's",
        ),
        (
            lambda: run([0.0], EarlyStopping()),
            "there is no 'val_loss' to monitor; the epoch has epoch, step, loss, lr, seconds",
        ),
    ],
)
def test_errors(action: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        action()


def test_infinity_is_no_improvement() -> None:
    assert not Best("x", "min").improves({"x": math.inf})
    assert not Best("x", "max").improves({"x": -math.inf})
    assert Best("x", "max").improves({"x": math.inf})
