"""Arguments that have no meaning are refused in words, not by what happens to break."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import DTypeError, ShapeError
from tinytorch.functions.publish import FUNCTIONS
from tinytorch.replay.function import HOT


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: tinytorch.tensor([1]) & 1.0,
            DTypeError,
            "& is for bool and integer tensors",
        ),
        (lambda: tinytorch.ones(2) | True, DTypeError, r"\| is for bool and integer tensors, not"),
        (lambda: tinytorch.ones(3).tril(), ShapeError, r"at least two dimensions, not shape \(3,"),
        (lambda: tinytorch.eye(3).diagonal(0, 0, 0), ShapeError, "two different dimensions, not 0"),
        (lambda: tinytorch.ones(5).unfold(0, 2, 0), ShapeError, "step 0 must be at least 1"),
        (lambda: tinytorch.ones(2).norm(-1), ValueError, "norm: p must be a number from 0 up"),
        (
            lambda: tinytorch.arange(3).var(),
            DTypeError,
            "var takes floating-point tensors, not int",
        ),
        (lambda: tinytorch.arange(3).uniform_(), DTypeError, "use randint"),
        (lambda: tinytorch.rand(2, dtype="int64"), DTypeError, "float32 or float64, not int64"),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


X = tinytorch.ones(2, 3)
INDEX = tinytorch.tensor([[0, 1, 1]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: X.sum(dtype=True), DTypeError, "True is not a TinyTorch dtype"),
        (lambda: X.softmax(1, dtype=X), DTypeError, "is not a TinyTorch dtype"),
        (lambda: X.cumsum(0, dtype=True), DTypeError, "True is not a TinyTorch dtype"),
        (lambda: F.log_softmax(X, 1, dtype=True), DTypeError, "True is not a TinyTorch dtype"),
        (lambda: tinytorch.tril_indices(2, 2, dtype=True), DTypeError, "True is not"),
        (lambda: tinytorch.cat({0: X}.values()), TypeError, "a list or a tuple.* not dict_values"),
        (lambda: tinytorch.cat(X), TypeError, "a list or a tuple of tensors, not Tensor"),
        (lambda: X.flip(0, dims=1), TypeError, r"given twice: \(0,\) and 1"),
        (lambda: X.reshape(3, shape=6), TypeError, r"given twice: \(3,\) and 6"),
        (lambda: X.new_ones(2, size=3), TypeError, r"given twice: \(2,\) and 3"),
        (lambda: tinytorch.rand(2, size=3), TypeError, r"given twice: \(2,\) and 3"),
        (lambda: X.tril(0.5), TypeError, "float"),
        (lambda: X.rot90(0.5), TypeError, "float"),
        (lambda: X.round(decimals=0.5), TypeError, "float"),
        (lambda: X.scatter(0, INDEX, X, value=1.0), TypeError, "as src or as value"),
        (lambda: X.scatter(0, INDEX), TypeError, "as src or as value"),
        (lambda: X.diff(-1), ValueError, "n must not be negative, not -1"),
        (lambda: X.isclose(X, atol=-1.0), ValueError, "atol must not be negative, not -1.0"),
        (lambda: X.isclose(X, rtol=-1.0), ValueError, "rtol must not be negative, not -1.0"),
        (lambda: INDEX[0].bincount(minlength=-1), ValueError, "minlength must not be negative"),
        (lambda: X.repeat_interleave(2, output_size=5), ShapeError, "is 5, but there are 12"),
        (lambda: X.repeat_interleave(INDEX[0], 1, output_size=5), ShapeError, "5, but there are 2"),
        (lambda: tinytorch.searchsorted(X, X, side="rigth"), ValueError, "not 'rigth'"),
        (lambda: tinytorch.searchsorted(X, X, side="left", right=True), ValueError, "'left'"),
        (lambda: tinytorch.searchsorted(X[0, 0], X), ShapeError, "a number is no sequence"),
        (lambda: F.triplet_margin_loss(X, X, X, margin=0), ValueError, "positive, not 0"),
        (lambda: F.cross_entropy(X, INDEX[0, :2], ignore_index=0.5), TypeError, "float"),
        (lambda: F.nll_loss(X, INDEX[0, :2], ignore_index=-0.5), TypeError, "float"),
        (
            lambda: F.multi_margin_loss(X, INDEX[0, :2], weight=tinytorch.ones(4)),
            ShapeError,
            r"weight \(4,\) must be \(3,\), one number for each class",
        ),
        (lambda: F.embedding(INDEX, X, padding_idx=0.5), TypeError, "float"),
        (lambda: F.avg_pool2d(X[None], 1, divisor_override=0.5), TypeError, "float"),
    ],
)
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_an_option_without_meaning_is_refused(
    call: Callable[[], Any], error: type[Exception], message: str, backend: str
) -> None:
    with tinytorch.using_backend(backend):
        for _ in range(HOT + 2):  # also when a program would be made
            with pytest.raises(error, match=message):
                call()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_list_is_no_tensor_and_that_is_said(name: str) -> None:
    """It is not taken for a number, nor is it an attribute that is missing."""
    function = inspect.unwrap(FUNCTIONS[name])
    first, *others = inspect.signature(function).parameters.values()
    if first.kind is first.VAR_POSITIONAL or "Tensor" not in str(first.annotation):
        return
    needed = [p for p in others if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    rest = [X[0] if "Tensor" in str(p.annotation) else 1 for p in needed]
    try:
        found = FUNCTIONS[name]([1.0, 0.0, 2.0], *rest)
    except (TypeError, ValueError, IndexError, ShapeError) as error:
        assert "unhashable" not in str(error)
    else:
        raise AssertionError(f"{name} of a list is {found}")


@pytest.mark.parametrize("name", ["copysign", "fmod", "logical_xor", "xlogy", "float_power"])
@pytest.mark.parametrize("wrong", [[0.0], "a", None])
def test_nor_is_it_a_number_beside_a_tensor(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a tensor|is a tensor or a number|and numbers"):
        FUNCTIONS[name](X, wrong)
