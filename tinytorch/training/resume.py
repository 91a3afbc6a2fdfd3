"""The whole state of a training run: out of a trainer, and into one that is to continue it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tinytorch.errors import DataError
from tinytorch.random import Generator, default_generator
from tinytorch.tensor import Tensor
from tinytorch.training.callbacks import Callback
from tinytorch.training.checkpoint import copy_tree

if TYPE_CHECKING:
    from tinytorch.training.trainer import Trainer


@runtime_checkable
class Resumable(Protocol):
    """A loader that can say how far it is, such as `DataLoader`."""

    def state_dict(self) -> Mapping[str, Any]:
        """The position in the run."""

    def load_state_dict(self, state: Any) -> None:
        """Continue from there."""


def capture(trainer: Trainer) -> dict[str, Any]:
    """The state that the steps to come depend on, as a tree; its tensors are the trainer's, not
    copies.

    Its keys: "model" and "optimizer", "callbacks", "generator" (the place in the random numbers),
    "loaders" (which batches are next), "progress" (where the run is), "history".
    """
    loaders, averages = _last_position(trainer) or _position(trainer)
    return {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "callbacks": [
            {"callback": type(callback).__name__, "state": callback.state_dict()}
            for callback in _stateful(trainer)
        ],
        "generator": trainer.pending.get("generator") or default_generator.get_state(),
        "loaders": loaders | trainer.pending.get("loaders", {}),
        "progress": {
            "epoch": trainer.epoch,
            "step": trainer.step,
            "batch": trainer.batch,
            "averages": averages,
            "used_up": trainer.used_up and trainer.batch > 0,
        },
        "history": trainer.history.records,
    }


def _position(trainer: Trainer) -> tuple[dict[str, Any], dict[str, object]]:
    """The states of the loaders, by name, and of the averages."""
    loaders = {
        name: dict(loader.state_dict())
        for name, loader in trainer.loaders.items()
        if isinstance(loader, Resumable)
    }
    return loaders, trainer.averages.state_dict()


def note_position(trainer: Trainer) -> None:
    """Note where the run is, at the start of an epoch and after each update.

    Batches that are taken later may be lost to an error or an interrupt before they are trained on:
    the run goes on from here.
    """
    trainer.position = {trainer.epoch: _position(trainer)}


def _last_position(trainer: Trainer) -> tuple[dict[str, Any], dict[str, object]] | None:
    """What was noted last of the epoch under way; None between epochs."""
    return trainer.position.get(trainer.epoch)


def restore(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Load a state into the trainer, or leave it as it is if the state does not fit.

    `state` must have all keys that `capture(trainer)` has. `take_over(trainer, state)` writes into
    the trainer's own tensors, and may raise when it has written a part: then take over what was
    before, and let the error pass on. `capture` gives those very tensors, so keep a copy
    (`copy_tree`).

    Afterwards `trainer.pending` is a dictionary with copies of the state's "generator" and
    "loaders", for the next `fit`: a loader that is made before it draws a seed.

    Raises:
        DataError: the state lacks keys; the message names them in alphabetical order, separated by
            ", ". Nothing has changed.
        DataError, ValueError: of `take_over`. Everything is as it was.
    """
    missing = sorted(name for name in capture(trainer) if name not in state)
    if missing:
        raise DataError(f"this is no state of a Trainer: it lacks {', '.join(missing)}")
    before = copy_tree(capture(trainer))
    try:
        take_over(trainer, state)
    except Exception:
        take_over(trainer, before)
        raise
    trainer.pending = {"generator": dict(state["generator"]), "loaders": dict(state["loaders"])}


def take_over(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Write all of a state into the trainer, but for its generator and loaders.

    Raises:
        DataError, ValueError: it does not fit; a part may be written.
    """
    _check_dtypes(trainer, state["model"])
    callbacks = _callbacks_of(trainer, [entry["callback"] for entry in state["callbacks"]])
    Generator().set_state(state["generator"])  # raises if it is none
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    for callback, entry in zip(callbacks, state["callbacks"], strict=True):
        callback.load_state_dict(entry["state"])
    progress = state["progress"]
    trainer.averages.load_state_dict(progress["averages"])
    trainer.epoch, trainer.step = progress["epoch"], progress["step"]
    trainer.batch, trainer.used_up = progress["batch"], progress.get("used_up", False)
    trainer.position = {}
    trainer.history.records[:] = [dict(record) for record in state["history"]]


def _check_dtypes(trainer: Trainer, saved: Mapping[str, Tensor]) -> None:
    """A Module would convert what it loads, and the run would not continue as it was."""
    own = trainer.model.state_dict()
    wrong = [
        f"{name} is {tensor.dtype.name}, must be {own[name].dtype.name}"
        for name, tensor in saved.items()
        if isinstance(own.get(name), Tensor) and tensor.dtype is not own[name].dtype
    ]
    if wrong:
        raise DataError(f"the state is of a model of other dtypes: {'; '.join(wrong)}")


def _stateful(trainer: Trainer) -> list[Callback]:
    return [callback for callback in trainer.callbacks if callback.state_dict()]


def _callbacks_of(trainer: Trainer, given: list[str]) -> list[Callback]:
    """The callbacks that the states of these classes are for, in that order.

    They are those that have a state now. Others may come to have one only in training, and had it
    when the state was taken.

    Raises:
        DataError: the trainer has other callbacks.
    """
    own = _stateful(trainer)
    if [type(callback).__name__ for callback in own] == given:
        return own
    able = (c for c in trainer.callbacks if type(c).state_dict is not Callback.state_dict)
    found = [next((c for c in able if type(c).__name__ == name), None) for name in given]
    chosen = [callback for callback in found if callback is not None]
    if len(chosen) < len(given) or not {*map(id, own)} <= {*map(id, chosen)}:
        names = [type(callback).__name__ for callback in own]
        raise DataError(
            f"the state is of a trainer with the callbacks {given}, this one has {names}"
        )
    return chosen


def attach(trainer: Trainer, loaders: Mapping[str, Any]) -> None:
    """Take the loaders of a `fit`, by name, and set them to a loaded state; or, where an error or
    an interrupt ended the `fit` before within an epoch, to where the last update left them.

    Raises:
        DataError: a loader cannot go on from there.
    """
    training = loaders["training"]
    states = trainer.pending.get("loaders", {})
    if (left := _last_position(trainer)) is not None:
        trainer.averages.load_state_dict(left[1])
        same = (name for name in left[0] if trainer.batch or loaders[name] is trainer.loaders[name])
        states = {name: left[0][name] for name in same}
    if trainer.batch and not ("training" in states and isinstance(training, Resumable)):
        raise DataError(
            f"epoch {trainer.epoch + 1} was left after batch {trainer.batch}, and "
            f"{type(training).__name__} cannot go on from there; use a DataLoader"
        )
    for name, loader in loaders.items():
        if name in states and isinstance(loader, Resumable):
            loader.load_state_dict(states[name])
    if trainer.pending:
        default_generator.set_state(trainer.pending["generator"])
    trainer.loaders, trainer.pending, trainer.position = dict(loaders), {}, {}
