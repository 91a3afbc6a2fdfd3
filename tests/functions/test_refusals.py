"""Arguments that have no meaning are refused in words, not by what happens to break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tinytorch
from tinytorch import DTypeError, ShapeError


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
