"""What is trained, step by step: the same lines build it from TinyTorch and from PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BATCH = 32
Arrays = tuple[np.ndarray[Any, Any], ...]


class Step(NamedTuple):
    """A training step.

    Attributes:
        title: in tables.
        model: from the library that is given, `tinytorch` or `torch`.
        batch: the arrays that it is trained on.
        loss: of library, model and batch.
        lr: of the optimizer, SGD with momentum 0.9.
    """

    title: str
    model: Callable[[Any], Any]
    batch: Callable[[], Arrays]
    loss: Callable[..., Any]
    lr: float = 0.05


def _mlp(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def _cnn(library: Any) -> Any:
    """As in the milestone of 1998; without biases that the normalization would subtract again."""
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
    )  # fmt: skip


def _digits(*, flatten: bool) -> Arrays:
    from tinytorch.data import datasets

    images, labels = datasets.digits("train", flatten=flatten).tensors
    return images.numpy()[:BATCH], labels.numpy()[:BATCH]


def _classification(library: Any, model: Any, x: Any, labels: Any) -> Any:
    return library.nn.functional.cross_entropy(model(x), labels)


STEPS = {
    "mlp": Step("the MLP of 1986", _mlp, lambda: _digits(flatten=True), _classification),
    "cnn": Step("the CNN of 1998", _cnn, lambda: _digits(flatten=False), _classification),
}
COMPARED = ("mlp", "cnn")  # by `tito backend compare`


def title(name: str, threads: int) -> str:
    """What is measured, in words."""
    clock = "one thread, CPU time" if threads == 1 else f"{threads} threads, wall time"
    return f"one step of {STEPS[name].title}, a batch of {BATCH}; {clock}"
