"""A run that is left and continued is the same run, bit for bit; a bad state changes nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tinytorch
from tests.training import runs
from tests.training.runs import BATCHES, fit, make_loader, make_trainer, whole_state
from tinytorch import DataError, nn, optim
from tinytorch.data import DataLoader
from tinytorch.random import default_generator
from tinytorch.training import Callback, Checkpoint, Trainer
from tinytorch.training.history import Record


@pytest.fixture(autouse=True)
def _files_go_to_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(epochs: int, **options: Any) -> Trainer:
    tinytorch.manual_seed(7)
    trainer = make_trainer(**options)
    fit(trainer, epochs)
    return trainer


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_three_epochs_and_three_more_are_six(tmp_path: Path, optimizer: str) -> None:
    whole = trained(6, optimizer=optimizer)
    expected, next_random = whole_state(whole), default_generator.draw_seed()
    trained(3, optimizer=optimizer).save(tmp_path / "run")
    tinytorch.manual_seed(1)
    resumed = make_trainer(optimizer=optimizer)
    resumed.load(tmp_path / "run")
    fit(resumed, 6)
    assert whole_state(resumed) == expected
    assert default_generator.draw_seed() == next_random


def test_three_epochs_and_three_more_in_another_process(tmp_path: Path) -> None:
    expected = whole_state(trained(6))
    trained(3).save(tmp_path / "run")
    root = str(Path(tinytorch.__file__).parent.parent)
    command = [sys.executable, runs.__file__, str(tmp_path / "run"), "6"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": root}, check=True)
    resumed = make_trainer()
    resumed.load(tmp_path / "run")
    assert whole_state(resumed) == expected
    assert resumed.history["epoch"] == [1, 2, 3, 4, 5, 6]


def test_the_state_tells_runs_apart() -> None:
    """The comparison of this file can fail: other random numbers, another state."""
    one = whole_state(trained(2))
    tinytorch.manual_seed(8)
    other = make_trainer()
    fit(other, 2)
    assert one != whole_state(other)
    assert {k for k in one if one[k] != whole_state(other)[k]} >= {"model", "optimizer", "history"}


class PressCtrlC(Callback):
    """As a user would, while step `step` is being taken."""

    def __init__(self, step: int, times: int = 1) -> None:
        self.step = step
        self.times = times

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        if trainer.step == self.step:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("step", [1, 2 * BATCHES - 2, 2 * BATCHES, 2 * BATCHES + 1])
def test_ctrl_c_saves_and_exits_and_the_run_goes_on(
    tmp_path: Path, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = whole_state(trained(4))
    path, before = tmp_path / "run", signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        trained(4, callbacks=[Checkpoint(path), PressCtrlC(step)], progress="plain")
    assert ended.value.code == 130
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"interrupted after step {step}; saved to {path}. To go on, call "
        f"trainer.load({str(path)!r}) before fit"
    )
    assert signal.getsignal(signal.SIGINT) is before
    resumed = make_trainer()
    resumed.load(path)
    assert resumed.step == step
    fit(resumed, 4)
    assert whole_state(resumed) == expected


def test_ctrl_c_after_the_last_batches_of_an_epoch_that_are_fewer(tmp_path: Path) -> None:
    expected = whole_state(trained(4, accumulate=2))
    path, updates = tmp_path / "run", 3  # of 2, 2 and 1 batches
    with pytest.raises(SystemExit):
        trained(4, accumulate=2, callbacks=[Checkpoint(path), PressCtrlC(updates)])
    resumed = make_trainer(accumulate=2)
    resumed.load(path)
    assert resumed.batch == BATCHES
    fit(resumed, 4)
    assert whole_state(resumed) == expected


class FailsOnce:
    """A forward hook of a model that fails at the call of this number, in training."""

    def __init__(self, forwards: int) -> None:
        self.left = forwards

    def __call__(self, module: Any, args: Any) -> None:
        if module.training:
            self.left -= 1
            if self.left == 0:
                raise OSError("a batch that was taken and not trained on")


@pytest.mark.parametrize(
    ("accumulate", "forwards"),
    [(1, 1), (1, 4), (1, BATCHES), (1, 2 * BATCHES + 1), (2, 3), (2, BATCHES), (2, BATCHES + 1)],
)
@pytest.mark.parametrize("in_a_new_process", [False, True])
def test_a_run_that_failed_goes_on_with_the_batch_that_it_failed_at(
    tmp_path: Path, accumulate: int, forwards: int, in_a_new_process: bool
) -> None:
    expected = whole_state(trained(4, accumulate=accumulate))
    tinytorch.manual_seed(7)
    trainer = make_trainer(accumulate=accumulate)
    trainer.model.register_forward_pre_hook(FailsOnce(forwards))
    loaders = {"loader": make_loader(), "validation": make_loader(shuffle=False)}
    with pytest.raises(OSError, match="a batch that was"):
        trainer.fit(**loaders, epochs=4)
    if in_a_new_process:
        trainer.save(tmp_path / "run")
        trainer, loaders["loader"] = make_trainer(accumulate=accumulate), make_loader()
        trainer.load(tmp_path / "run")
    trainer.fit(**loaders, epochs=4)
    assert whole_state(trainer) == expected


def test_a_batch_that_failed_counts_once_in_the_means() -> None:
    def trainer() -> Trainer:
        tinytorch.manual_seed(7)
        model = nn.Linear(3, 2)
        loss, optimizer = nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1)
        return Trainer(model, loss, optimizer, accumulate=2, progress="quiet")

    whole, failed, loader = trainer(), trainer(), make_loader(0)
    whole.fit(make_loader(0), epochs=1)
    failed.model.register_forward_pre_hook(FailsOnce(4))
    with pytest.raises(OSError, match="a batch that was"):
        failed.fit(loader, epochs=1)
    failed.fit(loader, epochs=1)
    assert whole_state(failed) == whole_state(whole)


def test_after_a_failure_other_batches_may_be_given_where_none_was_trained_on() -> None:
    trainer = make_trainer()
    with pytest.raises(TypeError, match="a batch must be a pair"):
        trainer.fit(DataLoader(range(3)), epochs=1)
    fit(trainer, 1)
    assert trainer.step == BATCHES


@pytest.mark.parametrize(
    "callbacks",
    [[PressCtrlC(2)], [Checkpoint("unused", monitor="val_loss"), PressCtrlC(2)]],
    ids=["no checkpoint", "only the best"],
)
def test_ctrl_c_without_a_place_to_save_to_is_as_ever(callbacks: list[Callback]) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained(4, callbacks=callbacks)


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained(4, callbacks=[Checkpoint(tmp_path / "run"), PressCtrlC(2, times=2)])
    assert not (tmp_path / "run").exists()


def test_a_loader_that_cannot_say_where_it_stands() -> None:
    batches = list(make_loader(0))
    trainer = make_trainer()
    trainer.fit(batches, validation=batches, epochs=1)
    whole = trainer.state_dict()
    trainer.load_state_dict(whole)
    trainer.fit(batches, validation=batches, epochs=2)  # between epochs it need not
    trainer.load_state_dict({**whole, "progress": {**whole["progress"], "batch": 2}})
    message = "epoch 2 was left after batch 2, and list cannot go on from there; use a DataLoader"
    with pytest.raises(DataError, match=re.escape(message)):
        trainer.fit(batches, validation=batches, epochs=2)


def test_a_loader_of_other_batches() -> None:
    trainer = trained(1)
    trainer.load_state_dict(trainer.state_dict())
    other = make_loader(0)
    other.batch_size = 10
    with pytest.raises(DataError, match="batch_size is 10 here and 4 in the state"):
        trainer.fit(other, epochs=2)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("make", "spoil", "message"),
    [
        (make_trainer, damaged, "run is truncated, or no safetensors file"),
        (
            lambda: make_trainer(hidden=7),
            None,
            r"wrong shape: 0.weight is \(6, 3\), must be \(7",
        ),
        (lambda: make_trainer(optimizer="SGD"), None, "this state does not fit this SGD, which st"),
        (
            lambda: make_trainer([Checkpoint("unused", monitor="loss")]),
            None,
            r"callbacks \['ScheduleLR', 'ScheduleLR', 'EarlyStopping'\], this one has \['Sched",
        ),
    ],
    ids=["truncated", "model", "optimizer", "callbacks"],
)
def test_a_file_that_does_not_fit_changes_nothing(
    tmp_path: Path, make: Any, spoil: Any, message: str
) -> None:
    path = tmp_path / "run"
    trained(2).save(path)
    if spoil is not None:
        spoil(path)
    trainer = make()
    fit(trainer, 1)
    before = whole_state(trainer)
    with pytest.raises(ValueError, match=message):
        trainer.load(path)
    assert whole_state(trainer) == before


class Counts(Callback):
    """Has no state before the first epoch ends."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        self.seen["epochs"] = trainer.epoch

    def state_dict(self) -> dict[str, int]:
        return self.seen

    def load_state_dict(self, state: Any) -> None:
        self.seen = dict(state)


def test_a_callback_may_come_to_have_a_state_in_training(tmp_path: Path) -> None:
    path = tmp_path / "run"
    trained(2, callbacks=[Checkpoint(path), Counts()])
    counts = Counts()
    trainer = make_trainer([Checkpoint(path), counts])
    trainer.load(path)
    assert counts.seen == {"epochs": 2}
    with pytest.raises(DataError, match=r"'Counts'\], this one has \['ScheduleLR', 'ScheduleLR'"):
        make_trainer([Checkpoint(path)]).load(path)


def test_every_wrong_part_of_a_state_is_undone() -> None:
    other = trained(2).state_dict()
    for part, wrong in {
        "model": {**other["model"], "0.bias": tinytorch.zeros(6, dtype="float64")},
        "optimizer": {**other["optimizer"], "state": {9: {"step": 1}}},
        "callbacks": [other["callbacks"][1], *other["callbacks"][1:]],
        "generator": {},
        "progress": {},
        "history": [3],
    }.items():
        trainer = make_trainer()
        fit(trainer, 1)
        before = whole_state(trainer)
        with pytest.raises((ValueError, KeyError, TypeError)):
            trainer.load_state_dict({**other, part: wrong})
        assert whole_state(trainer) == before, part


def test_a_state_of_something_else() -> None:
    with pytest.raises(DataError, match="no state of a Trainer: it lacks callbacks, generator, hi"):
        make_trainer().load_state_dict({"model": {}, "optimizer": {}})
    with pytest.raises(DataError, match=r"other dtypes: 0.bias is float64, must be float32"):
        trainer = make_trainer()
        state = trainer.state_dict()
        state["model"] = {**state["model"], "0.bias": tinytorch.zeros(6, dtype="float64")}
        trainer.load_state_dict(state)
