"""The cases of the benchmark of attention: both libraries compute the same."""

from __future__ import annotations

from typing import Any

import pytest

import tinytorch
from tinytorch.state import using_backend


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    import attention

    monkeypatch.setattr(attention, "LENGTHS", (8,))
    monkeypatch.setattr(attention, "TOKENS", 16)
    return attention


def test_cases(script: Any) -> None:
    with using_backend("optimized"):
        cases = [*script.cases(), *script.layer_cases()]  # which compares as it makes them
    assert [case.group.split(", ")[:2] for case in cases] == [
        [direction, variant]
        for variant in script.variants(1)
        for direction in ("forward", "forward and backward")
    ] + [["MultiheadAttention", "forward"]]
    for case in cases:
        assert case.contestants.keys() == {"ours", "torch"}
        assert case.flops > 0


def test_a_difference_is_found(script: Any) -> None:
    ours, theirs = tinytorch.ones(3), tinytorch.ones(3)
    script.check(ours, theirs)
    with pytest.raises(AssertionError):
        script.check(ours, theirs * 1.001)
    with pytest.raises(AssertionError):
        script.check([ours, ours], [theirs, theirs * 1.001])
    draws = iter([tinytorch.ones(3), tinytorch.zeros(3)])
    with pytest.raises(AssertionError):
        script.check_dropout(lambda: next(draws))
