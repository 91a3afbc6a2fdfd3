"""Metrics beside scikit-learn's."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tinytorch
from tinytorch import DTypeError, ShapeError, tensor
from tinytorch.training import accuracy, confusion_matrix, mean_absolute_error, top_k_accuracy
from tinytorch.training.metrics import Averages


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(40, 5)), rng.integers(0, 5, 40)


def test_against_scikit_learn(rng: np.random.Generator) -> None:
    from sklearn import metrics as sk  # seconds of imports: not while collecting

    scores, classes = batch(rng)
    outputs, targets, labels = tensor(scores), tensor(classes), np.arange(5)
    guess = scores.argmax(1)
    assert accuracy(outputs, targets) == pytest.approx(sk.accuracy_score(classes, guess))
    for k in (1, 2, 4):
        expected = sk.top_k_accuracy_score(classes, scores, k=k, labels=labels)
        assert top_k_accuracy(k)(outputs, targets) == pytest.approx(expected)
    expected = sk.confusion_matrix(classes, guess, labels=labels)
    assert confusion_matrix(outputs, targets).tolist() == expected.tolist()


def test_mean_absolute_error(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 7, 3))
    assert mean_absolute_error(tensor(a), tensor(b)) == pytest.approx(np.abs(a - b).mean())
    with pytest.raises(ShapeError, match=re.escape("outputs of shape (2, 1) and targets of shap")):
        mean_absolute_error(tinytorch.zeros(2, 1), tinytorch.zeros(2))


@pytest.mark.parametrize("metric", [accuracy, top_k_accuracy(1), confusion_matrix])
def test_shapes_and_dtypes_that_do_not_fit(metric: object) -> None:
    assert callable(metric)
    for outputs, targets in (((3, 2), (2,)), ((3,), (3,)), ((0, 2), (0,)), ((3, 2), (3, 1))):
        message = f"outputs must be (N, C) and targets (N,) with N at least 1, got {outputs} and"
        with pytest.raises(ShapeError, match=re.escape(message)):
            metric(tinytorch.zeros(outputs), tinytorch.zeros(targets, dtype="int64"))
    with pytest.raises(ShapeError, match=re.escape("outputs (3, 1) are one number for each sampl")):
        metric(tinytorch.zeros(3, 1), tinytorch.zeros(3, dtype="int64"))
    with pytest.raises(DTypeError, match="targets must be class numbers, not float32"):
        metric(tinytorch.zeros(3, 2), tinytorch.zeros(3))


def test_a_class_that_is_not_there() -> None:
    with pytest.raises(IndexError):
        confusion_matrix(tinytorch.zeros(1, 3), tensor([-4]))


def test_averages_weight_batches_by_size() -> None:
    means = Averages()
    with pytest.raises(ValueError, match="there is nothing to average: the loader gave no batches"):
        means.means()
    means.add({"a": 1.0, "b": 0.0}, 3)
    means.add({"a": 5.0, "b": 1.0}, 1)
    assert means.means() == {"a": 2.0, "b": 0.25}
    other = Averages()
    other.load_state_dict(means.state_dict())
    other.add({"a": 2.0, "b": 0.25}, 4)
    assert other.means() == {"a": 2.0, "b": 0.25}
