from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import given, settings, strategies as st

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.dispatch import Mode
from tinytorch.errors import DTypeError, ShapeError

REDUCTIONS = ["none", "mean", "sum"]


@st.composite
def batches(draw):
    """Shapes of logits: rows, images, or one sample without a batch."""
    classes = draw(st.integers(1, 5))
    rest = draw(st.lists(st.integers(1, 3), max_size=2))
    shape = draw(st.sampled_from([(classes,), (draw(st.integers(0, 4)), classes, *rest)]))
    return shape, 0 if len(shape) == 1 else 1


def _labels(rng, shape, dim, ignored=None):
    labels = rng.integers(0, shape[dim], shape[:dim] + shape[dim + 1 :])
    if ignored is not None:
        labels = np.where(rng.random(labels.shape) < 0.3, ignored, labels)
    return np.asarray(labels, np.int64)


@given(
    batch=batches(),
    reduction=st.sampled_from(REDUCTIONS),
    weighted=st.booleans(),
    ignored=st.sampled_from([None, -100, 0, 255]),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 999),
)
@settings(max_examples=200)
def test_cross_entropy_equals_pytorch(agree, batch, reduction, weighted, ignored, smoothing, seed):
    shape, dim = batch
    rng = np.random.default_rng(seed)
    options = {"reduction": reduction, "label_smoothing": smoothing}
    if ignored is not None:
        options["ignore_index"] = ignored
    weight = rng.random(shape[dim]) + 0.1 if weighted else None
    agree(
        lambda x, t: F.cross_entropy(
            x, t, None if weight is None else tinytorch.tensor(weight), **options
        ),
        lambda x, t: TF.cross_entropy(
            x, t, None if weight is None else torch.tensor(weight), **options
        ),
        rng.normal(0, 3, shape),
        _labels(rng, shape, dim, ignored),
    )


@given(
    batch=batches(),
    reduction=st.sampled_from(REDUCTIONS),
    weighted=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 999),
)
@settings(max_examples=100)
def test_class_probabilities_equal_pytorch(agree, batch, reduction, weighted, smoothing, seed):
    shape, dim = batch
    rng = np.random.default_rng(seed)
    weight = rng.random(shape[dim]) + 0.1 if weighted else None
    options = {"reduction": reduction, "label_smoothing": smoothing}
    agree(
        lambda x, t: F.cross_entropy(
            x, t, None if weight is None else tinytorch.tensor(weight), **options
        ),
        lambda x, t: TF.cross_entropy(
            x, t, None if weight is None else torch.tensor(weight), **options
        ),
        rng.normal(0, 3, shape),
        rng.random(shape),
    )


@given(
    batch=batches(),
    reduction=st.sampled_from(REDUCTIONS),
    weighted=st.booleans(),
    ignored=st.sampled_from([-100, 1]),
    seed=st.integers(0, 999),
)
@settings(max_examples=100)
def test_nll_loss_equals_pytorch(agree, batch, reduction, weighted, ignored, seed):
    shape, dim = batch
    rng = np.random.default_rng(seed)
    weight = rng.random(shape[dim]) if weighted else None
    options = {"reduction": reduction, "ignore_index": ignored}
    agree(
        lambda x, t: F.nll_loss(
            x, t, None if weight is None else tinytorch.tensor(weight), **options
        ),
        lambda x, t: TF.nll_loss(x, t, None if weight is None else torch.tensor(weight), **options),
        rng.standard_normal(shape),
        _labels(rng, shape, dim, ignored),
    )


class _Names(Mode):
    """Which ops ran, with fused ones whole."""

    decompose = False

    def __init__(self):
        self.names = []

    def run(self, op, inputs, params, plan):
        self.names.append(op.name)
        data = np.zeros(plan.meta.shape, plan.meta.dtype.dtype)
        return data if op.kind == "fused" else self.below(op, inputs, params, plan)


@pytest.mark.parametrize(
    ("target", "options", "fused"),
    [
        ([1, 0], {}, True),
        ([1, 3], {"ignore_index": 9}, True),
        ([1, -100], {}, False),
        ([1, 0], {"ignore_index": 0}, False),
        ([1, 0], {"reduction": "sum"}, False),
        ([1, 0], {"label_smoothing": 0.1}, False),
    ],
)
def test_the_plain_loss_is_one_op(target, options, fused):
    with _Names() as mode:
        F.cross_entropy(tinytorch.zeros(2, 4), tinytorch.tensor(target), **options)
    assert (mode.names[-1] == "cross_entropy") == fused


def test_int32_labels():
    x, labels = tinytorch.randn(4, 3), tinytorch.tensor([0, 2, 1, 1])
    assert F.cross_entropy(x, labels.int()).item() == F.cross_entropy(x, labels).item()


def test_all_ignored_is_nan_and_none_of_it_a_gradient(agree):
    labels = np.array([-100, -100])
    x = np.array([[1.0, 2.0], [3.0, -4.0]])
    agree(F.cross_entropy, TF.cross_entropy, x, labels)
    agree(
        lambda x, t: F.cross_entropy(x, t, reduction="sum"),
        lambda x, t: TF.cross_entropy(x, t, reduction="sum"),
        x,
        labels,
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    "row",
    [
        [0.0, 0.0, 0.0],
        [1e4, -1e4, 0.0],
        [-1e300, 1e300, 0.0],
        [1.0, -math.inf, 0.0],
        [math.inf, 0.0, 1.0],
        [math.nan, 0.0, 1.0],
    ],
)
def test_edge_values(agree, row, smoothing):
    agree(
        lambda x, t: F.cross_entropy(x, t, label_smoothing=smoothing),
        lambda x, t: TF.cross_entropy(x, t, label_smoothing=smoothing),
        np.array([row, [1.0, 2.0, 3.0]]),
        np.array([0, 2]),
    )


def test_an_ignored_row_may_be_anything():
    x = tinytorch.tensor([[math.inf, -math.inf], [1.0, 2.0]])
    loss = F.nll_loss(x, tinytorch.tensor([-100, 1]))
    assert loss.item() == -2


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "none", "ignore_index": 1},
        {"label_smoothing": 0.2, "weight": tinytorch.tensor([1.0, 2.0, 0.5], dtype="float64")},
    ],
)
def test_derivatives(check_twice, rng, options):
    labels = tinytorch.tensor([0, 2, 1, 1])
    check_twice(lambda x: F.cross_entropy(x, labels, **options), rng.standard_normal((4, 3)))
    options = {k: v for k, v in options.items() if k != "label_smoothing"}
    check_twice(lambda x: F.nll_loss(x, labels, **options) ** 2, rng.standard_normal((4, 3)))


def test_derivatives_for_probabilities(check_twice, rng):
    x, target = rng.standard_normal((4, 3, 2)), rng.random((4, 3, 2))
    check_twice(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), x, target)


X = tinytorch.zeros(2, 3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([0, 3])),
            IndexError,
            r"cross_entropy: class 3 is out of range: input \(2, 3\) has classes 0 to 2",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([-1, 0])),
            IndexError,
            r"class -1 is out of range: .* \(ignore_index is -100\)",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([0, 3]), label_smoothing=0.1),
            IndexError,
            "cross_entropy: class 3 is out of range",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([0.0, 1.0])),
            ShapeError,
            r"a float32 target holds probabilities and must have the shape \(2, 3\) of the input, "
            r"not \(2,\); class indices are int64",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([True, False])),
            DTypeError,
            r"class indices must be int64, not bool; use target.long\(\)",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([0, 1, 2])),
            ShapeError,
            r"for input \(2, 3\) class indices must have shape \(2,\), not \(3,\)",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([[1, 0, 0], [0, 1, 0]])),
            ShapeError,
            r"for input \(2, 3\) class indices must have shape \(2,\), not \(2, 3\)",
        ),
        (
            lambda: F.cross_entropy(X.long(), tinytorch.tensor([0, 1])),
            DTypeError,
            "cross_entropy: input must be floating-point, not int64",
        ),
        (
            lambda: F.cross_entropy(tinytorch.zeros(()), tinytorch.tensor(0)),
            ShapeError,
            r"input \(\) must be \(n, classes, \.\.\.\) or \(classes,\)",
        ),
        (
            lambda: F.cross_entropy(tinytorch.zeros(2, 0), tinytorch.tensor([0, 1])),
            ShapeError,
            r"input \(2, 0\) must be \(n, classes",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([0, 1]), tinytorch.ones(2)),
            ShapeError,
            r"weight \(2,\) must be \(3,\), one number for each class of input \(2, 3\)",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([0, 1]), label_smoothing=1.5),
            ValueError,
            "label_smoothing must be from 0 to 1: 1.5",
        ),
        (
            lambda: F.cross_entropy(X, tinytorch.tensor([0, 1]), reduction="average"),
            ValueError,
            "reduction must be one of none, mean, sum, not 'average'",
        ),
        (
            lambda: F.nll_loss(X, tinytorch.tensor([0.5, 1.0])),
            DTypeError,
            "nll_loss: class indices must be int64, not float32",
        ),
        (
            lambda: F.nll_loss(X, tinytorch.tensor([0, 4])),
            IndexError,
            "nll_loss: class 4 is out of range",
        ),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"reduction": "none"},
                                     {"ignore_index": 1}])  # fmt: skip
def test_a_certain_answer_costs_zero_and_not_minus_zero(options):
    logits = tinytorch.tensor([[100.0, 0.0], [200.0, 0.0]])
    for target in (tinytorch.tensor([0, 0]), tinytorch.tensor([[1.0, 0.0], [1.0, 0.0]])):
        loss = F.cross_entropy(logits, target, **options).numpy()
        assert not np.signbit(loss).any() and not loss.any()
