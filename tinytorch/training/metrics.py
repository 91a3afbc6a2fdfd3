"""Metrics: what is measured of a batch beside the loss, and running means of it.

A metric is a function of (outputs, targets) that returns the mean over the samples of the batch, as
a number; the trainer weights batches by their size, so the mean over an epoch is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.elementwise import eq
from tinytorch.functions.indexing import one_hot
from tinytorch.functions.ordering import topk
from tinytorch.tensor import Tensor

Metric = Callable[[Tensor, Tensor], float]


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The part of the samples whose largest output is that of the target class.

    Args:
        outputs: (N, C) scores, logits or probabilities.
        targets: (N,) class numbers.

    >>> from tinytorch import tensor
    >>> accuracy(tensor([[0.1, 0.9], [0.8, 0.2]]), tensor([1, 1]))
    0.5
    """
    _check_classes(outputs, targets)
    hits: float = (outputs.argmax(1) == targets).double().mean().item()
    return hits


def top_k_accuracy(k: int) -> Metric:
    """The metric: the part of the samples whose target class is among the k largest outputs.

    >>> from tinytorch import tensor
    >>> top_k_accuracy(2)(tensor([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]]), tensor([2, 1]))
    0.5
    """

    def metric(outputs: Tensor, targets: Tensor) -> float:
        _check_classes(outputs, targets)
        best = topk(outputs, k, 1).indices
        hits: float = eq(best, targets.unsqueeze(1)).any(1).double().mean().item()
        return hits

    metric.__name__ = f"top_{k}_accuracy"
    return metric


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> float:
    """mean |outputs - targets|; the shapes are equal."""
    if outputs.shape != targets.shape:
        raise ShapeError(
            f"mean_absolute_error: outputs of shape {outputs.shape} and targets of shape "
            f"{targets.shape} must be equal in shape"
        )
    mean: float = (outputs - targets).abs().mean().item()
    return mean


def confusion_matrix(outputs: Tensor, targets: Tensor) -> Tensor:
    """(C, C) counts: row i, column j is how many samples of class i were taken for class j.

    Args:
        outputs: (N, C) scores.
        targets: (N,) class numbers.
    """
    _check_classes(outputs, targets)
    classes = outputs.shape[1]
    return one_hot(targets, classes).T @ one_hot(outputs.argmax(1), classes)


def _check_classes(outputs: Tensor, targets: Tensor) -> None:
    if outputs.ndim != 2 or targets.shape != outputs.shape[:1] or not outputs.shape[0]:
        raise ShapeError(
            f"outputs must be (N, C) and targets (N,) with N at least 1, got {outputs.shape} and "
            f"{targets.shape}"
        )
    if outputs.shape[1] < 2:
        raise ShapeError(
            f"outputs {outputs.shape} are one number for each sample, whose largest is always the "
            f"first: for two classes give a score for each, or compare (outputs > 0) yourself"
        )
    if targets.dtype.is_floating_point:
        raise DTypeError(f"targets must be class numbers, not {targets.dtype.name}")


class Averages:
    """Weighted running means, by name.

    >>> means = Averages()
    >>> means.add({"loss": 1.0}, 3)
    >>> means.add({"loss": 2.0}, 1)
    >>> means.means()
    {'loss': 1.25}
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weight = 0.0

    def add(self, values: Mapping[str, float], weight: float) -> None:
        """Values of one batch of `weight` samples; the names are the same at each call.

        `self._sums` has for each name the sum of weight * value, `self._weight` the sum of weights.
        """
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + weight * value
        self._weight += weight

    def means(self) -> dict[str, float]:
        """The sum of weight * value over the sum of the weights, for each name.

        Raises:
            ValueError: nothing was added.
        """
        if not self._weight:
            raise ValueError("there is nothing to average: the loader gave no batches")
        return {name: total / self._weight for name, total in self._sums.items()}

    def state_dict(self) -> dict[str, object]:
        """Sums and weight."""
        return {"sums": dict(self._sums), "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue from where `state_dict` was taken."""
        sums, weight = state["sums"], state["weight"]
        assert isinstance(sums, dict) and isinstance(weight, (int, float))
        self._sums, self._weight = dict(sums), weight
