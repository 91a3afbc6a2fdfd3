"""`torch.testing.assert_close`, against PyTorch's."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.testing

import tinytorch
from tinytorch.compat import testing

NAN = float("nan")


@pytest.mark.parametrize(
    "pair",
    [
        lambda t: (3, 3),
        lambda t: (3, 4),
        lambda t: (3, 3.0),
        lambda t: (1.0, 1.0 + 1e-8),
        lambda t: (1.0, 1.0 + 1e-6),
        lambda t: (None, None),
        lambda t: (t.ones(2), t.ones(2) + 1e-6),
        lambda t: (t.ones(2), t.ones(2) + 1e-4),
        lambda t: (t.ones(2), t.ones(2, 1)),
        lambda t: (t.ones(2), t.ones(2, dtype=t.float64)),
        lambda t: (t.tensor([NAN]), t.tensor([NAN])),
        lambda t: ([t.ones(2), t.zeros(3)], [t.ones(2), t.zeros(3)]),
        lambda t: ([t.ones(2), t.zeros(3)], (t.ones(2), t.ones(3))),
        lambda t: ([1, 2], [1]),
        lambda t: ({"a": t.ones(2), "b": [1.0]}, {"b": [1.0], "a": t.ones(2)}),
        lambda t: ({"a": t.ones(2)}, {"a": t.zeros(2)}),
        lambda t: ({"a": t.ones(2)}, {"b": t.ones(2)}),
        lambda t: (t.ones(2).to(t.bfloat16), t.tensor([1.0, 1.0078125]).to(t.bfloat16)),
    ],
)
@pytest.mark.parametrize(
    "options", [{}, {"equal_nan": True}, {"check_dtype": False}, {"rtol": 0, "atol": 0}]
)
def test_what_is_close_is_close_in_pytorch(pair: Any, options: dict[str, Any]) -> None:
    def passes(library: Any, module: Any) -> bool:
        try:
            module.assert_close(*pair(library), **options)
        except AssertionError:
            return False
        return True

    assert passes(tinytorch, testing) == passes(torch, torch.testing)


def test_the_tolerance_is_that_of_the_less_exact_dtype() -> None:
    exact = tinytorch.ones(2, dtype="float64")
    testing.assert_close(exact, tinytorch.ones(2) + 1e-6, check_dtype=False, check_stride=True)


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda: testing.assert_close(1, 1, rtoll=1), TypeError, "unexpected keyword 'rtoll'"),
        (lambda: testing.assert_close(1, 1, rtol=1), ValueError, "both rtol and atol, or none"),
        (lambda: testing.assert_close([1, [2]], [1, [3]]), AssertionError, " at [1][0]"),
        (lambda: testing.assert_close(1, 2, msg="mine"), AssertionError, "mine"),
        (lambda: testing.assert_close(1, 2, msg=lambda m: m[:5] + "!"), AssertionError, "!"),
    ],
)
def test_errors(action: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        action()
