"""Every loss of one input and a target against PyTorch's of the same name, and CTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import nn

LOSSES: list[tuple[str, dict[str, Any], str]] = [
    ("MSELoss", {}, "numbers"),
    ("L1Loss", {"reduction": "sum"}, "numbers"),
    ("HuberLoss", {"delta": 0.3}, "numbers"),
    ("SmoothL1Loss", {"beta": 0.3}, "numbers"),
    ("BCEWithLogitsLoss", {"pos_weight": np.array([1.0, 2, 3, 4])}, "probabilities"),
    ("BCELoss", {"weight": np.array([1.0, 2, 3, 4])}, "probabilities"),
    ("KLDivLoss", {"reduction": "batchmean", "log_target": True}, "numbers"),
    ("CrossEntropyLoss", {}, "classes"),
    (
        "CrossEntropyLoss",
        {"weight": np.array([1.0, 2, 3, 4]), "ignore_index": 2, "label_smoothing": 0.1},
        "classes",
    ),
    ("CrossEntropyLoss", {"reduction": "none"}, "probabilities"),
    ("NLLLoss", {"weight": np.array([1.0, 2, 3, 4]), "reduction": "sum"}, "classes"),
    ("SoftMarginLoss", {}, "signs"),
    ("HingeEmbeddingLoss", {"margin": 0.7}, "signs"),
    ("MultiLabelSoftMarginLoss", {"weight": np.array([1.0, 2, 3, 4])}, "probabilities"),
    ("MultiMarginLoss", {"p": 2, "margin": 0.5, "weight": np.array([1.0, 2, 3, 4])}, "classes"),
    ("MultiMarginLoss", {"reduction": "none"}, "classes"),
    ("PoissonNLLLoss", {"full": True}, "counts"),
    ("PoissonNLLLoss", {"log_input": False, "reduction": "sum"}, "counts"),
]


@pytest.mark.parametrize(("name", "options", "kind"), LOSSES)
def test_losses_equal_pytorch(agree, rng, name, options, kind):
    target = {
        "numbers": rng.standard_normal((5, 4)),
        "probabilities": rng.random((5, 4)),
        "classes": np.array([0, 3, 2, 1, 1]),
        "signs": np.sign(rng.standard_normal((5, 4))),
        "counts": rng.integers(0, 6, (5, 4)).astype(float),
    }[kind]

    def made(module: Any, as_tensor: Callable[..., Any]) -> Any:
        return getattr(module, name)(
            **{k: as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        )

    positive = name == "BCELoss" or options.get("log_input") is False
    x = rng.random((5, 4)) if positive else rng.standard_normal((5, 4))
    ours, theirs = made(nn, tinytorch.tensor), made(torch.nn, torch.tensor)
    if kind in ("signs", "counts"):  # PyTorch has no gradient for these targets, or a wrong one
        fixed, their_fixed = tinytorch.tensor(target), torch.tensor(target)
        agree(lambda x: ours(x, fixed), lambda x: theirs(x, their_fixed), x)
    else:
        agree(ours, theirs, x, target)


def test_class_weights_are_buffers_and_follow_the_dtype():
    loss = nn.CrossEntropyLoss(tinytorch.tensor([1.0, 2.0]))
    assert list(loss.state_dict()) == ["weight"]
    assert loss.double().weight.dtype is tinytorch.float64
    assert list(nn.CrossEntropyLoss().state_dict()) == []


@pytest.mark.parametrize(
    "option, value", [("reduction", "sum"), ("ignore_index", 1), ("label_smoothing", 0.5)]
)
def test_cross_entropy_follows_options_that_are_set_later(option: str, value: Any) -> None:
    x, y = tinytorch.tensor([[0.0, 1.0], [3.0, 0.0]]), tinytorch.tensor([1, 1])
    loss = nn.CrossEntropyLoss()
    before = loss(x, y).item()
    setattr(loss, option, value)
    expected = nn.functional.cross_entropy(x, y, **{option: value}).item()
    np.testing.assert_equal(loss(x, y).item(), expected)
    assert expected != before


def test_losses_check_the_reduction_at_once():
    with pytest.raises(ValueError, match="reduction must be one of none, mean, sum, not 'avg'"):
        nn.MSELoss("avg")
    assert repr(nn.MSELoss("sum")) == "MSELoss(reduction='sum')"


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc_equals_pytorch(agree, rng, reduction, flat):
    spans, sizes = [12, 9, 7], [4, 0, 3]
    targets = rng.integers(1, 5, (3, 4))
    targets[0, 1] = targets[0, 0]  # the same label twice needs a blank between
    if flat:
        targets = np.concatenate([row[:n] for row, n in zip(targets, sizes, strict=True)])

    def loss(module, tensor, log_softmax):
        criterion = module.CTCLoss(reduction=reduction)
        return lambda x: criterion(log_softmax(x, 2), tensor(targets), tensor(spans), tensor(sizes))

    agree(
        loss(nn, tinytorch.tensor, F.log_softmax),
        loss(torch.nn, torch.tensor, TF.log_softmax),
        rng.standard_normal((12, 3, 5)),
    )


def test_ctc_of_a_target_that_is_too_long(rng):
    x = rng.standard_normal((2, 1, 3))
    for zero_infinity, expected in ((False, np.inf), (True, 0.0)):
        loss = nn.CTCLoss(zero_infinity=zero_infinity)
        logits = tinytorch.tensor(x, requires_grad=True)
        out = loss(F.log_softmax(logits, 2), tinytorch.tensor([[1, 2, 1]]), [2], [3])
        assert out.item() == expected
        if zero_infinity:
            out.backward()
            assert not logits.grad.numpy().any()


def test_multi_margin_loss_has_no_gradient_where_it_is_zero() -> None:
    x = tinytorch.tensor([[-2.0, -3.0, 1.0]], requires_grad=True)  # the second is at the margin
    F.multi_margin_loss(x, tinytorch.tensor([0]), reduction="sum").backward()
    np.testing.assert_allclose(x.grad.numpy(), [[-1 / 3, 0.0, 1 / 3]], rtol=1e-6)


def test_multi_margin_loss_refuses_other_powers() -> None:
    with pytest.raises(ValueError, match="p is 3, and may be 1 or 2"):
        F.multi_margin_loss(tinytorch.ones(1, 2), tinytorch.tensor([0]), p=3)
