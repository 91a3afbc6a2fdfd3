"""A small training run with everything in it that has a state, for the tests of this folder.

As a program it continues a run in a process of its own: python runs.py FILE EPOCHS
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.data import DataLoader, TensorDataset
from tinytorch.training import Callback, EarlyStopping, ScheduleLR, Trainer, accuracy

BATCHES = 5


def make_loader(seed: int | None = None, *, shuffle: bool = True) -> DataLoader:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(4 * BATCHES, 3)).astype(np.float32)
    labels = (inputs.sum(1) > 0).astype(np.int64)
    data = TensorDataset(tinytorch.from_numpy(inputs), tinytorch.from_numpy(labels))
    return DataLoader(data, 4, shuffle, generator=seed)


def make_trainer(
    callbacks: Sequence[Callback] = (), *, hidden: int = 6, optimizer: str = "Adam", **options: Any
) -> Trainer:
    model = nn.Sequential(
        nn.Linear(3, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(hidden, 2),
    )
    stepper = getattr(optim, optimizer)(model.parameters(), lr=0.05)
    return Trainer(
        model,
        nn.CrossEntropyLoss(),
        stepper,
        metrics={"accuracy": accuracy},
        callbacks=[
            ScheduleLR(optim.CosineAnnealingLR(stepper, 40), "step"),
            ScheduleLR(optim.ReduceLROnPlateau(stepper, patience=1), monitor="val_loss"),
            EarlyStopping(patience=50, restore_best=True),
            *callbacks,
        ],
        **{"progress": "quiet", "clip_norm": 1.0, **options},
    )


def fit(trainer: Trainer, epochs: int) -> None:
    trainer.fit(make_loader(), validation=make_loader(shuffle=False), epochs=epochs)


def whole_state(trainer: Trainer) -> Any:
    """All of it but the times, bit for bit comparable."""
    return _comparable(trainer.state_dict())


def _comparable(tree: Any) -> Any:
    if isinstance(tree, tinytorch.Tensor):
        return (tree.meta, tree.numpy().tobytes())
    if isinstance(tree, dict):
        return {key: _comparable(value) for key, value in tree.items() if key != "seconds"}
    return [_comparable(value) for value in tree] if isinstance(tree, (list, tuple)) else tree


if __name__ == "__main__":
    path, epochs = sys.argv[1:]
    with tinytorch.using_backend("numpy"):
        resumed = make_trainer()
        resumed.load(path)
        fit(resumed, int(epochs))
        resumed.save(path)
