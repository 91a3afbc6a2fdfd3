"""What is compared, and what counts as the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.fx.optimize.subjects import randn
from tinytorch.fx.optimize.verify import (
    Accuracy,
    accuracy,
    compare,
    observe,
    other_sizes,
    other_values,
)
from tinytorch.graph.ir import GraphError


class Watched(nn.Module):
    """What a call does beside its result."""

    def __init__(self, what: str = "") -> None:
        super().__init__()
        self.what = what
        self.register_buffer("count", torch.zeros(2))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        y = x * self.weight
        match self.what:
            case "value":
                return y * 1.01
            case "form":
                return (y,)
            case "dtype":
                return y.double()
            case "shape":
                return y[None]
            case "strides":
                return y.t().contiguous().t()
            case "alias":
                x.data.mul_(self.weight.detach())
                return x.view(x.shape) * 1 if x.requires_grad else x
            case "mutation":
                x.data.add_(1)
            case "buffer":
                self.count.add_(1)
            case "random":
                torch.rand(1)
            case "gradient":
                return x * self.weight.detach() + 0 * self.weight
        return y


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("value", "output 0 differs by up to"),
        ("form", "the result has the form"),
        ("dtype", "output 0 is torch.float64"),
        ("shape", "output 0 is torch.float32.1, 2, 3."),
        ("strides", "output 0 has strides"),
        ("alias", "share memory now"),
        ("mutation", "input 0 after the call"),
        ("buffer", "buffer 0 after the call"),
        ("random", "random generator"),
        ("gradient", "gradient of parameter 0"),
    ],
)
def test_compare_finds(what: str, message: str) -> None:
    batch = (randn(2, 3),)
    expected = observe(Watched(), Watched(), batch, 0, gradients=what != "alias")
    model = Watched(what)
    found = observe(model, model, batch, 0, gradients=what != "alias")
    with pytest.raises(GraphError, match=message):
        compare(expected, found)
    assert torch.equal(model.count, torch.zeros(2))  # put back


def test_compare_accepts_the_same() -> None:
    batch = (randn(2, 3),)
    compare(*(observe(Watched(), Watched(), batch, 0, gradients=True) for _ in range(2)))


def test_a_small_gradient_is_compared_on_the_scale_of_all() -> None:
    """Where it is a difference of large terms, their rounding is as large as it is."""
    same = observe(Watched(), Watched(), (randn(2, 3),), 0, gradients=True)
    large = torch.tensor([500.0, -2.0])
    expected = replace(same, gradients=[large, torch.tensor([1e-3])])
    compare(expected, replace(same, gradients=[large, torch.tensor([2e-3])]))
    with pytest.raises(GraphError, match=r"gradient of parameter 1 differs by up to 0\.02"):
        compare(expected, replace(same, gradients=[large, torch.tensor([2.1e-2])]))


def test_accuracy() -> None:
    model, x = nn.Linear(64, 64).eval(), randn(8, 64)
    with torch.no_grad():
        original = model(x)
        rounded = functional.linear(x.bfloat16(), *(p.bfloat16() for p in model.parameters()))
    found = accuracy(model, (x,), original, rounded.float())
    assert 0 < found.original < 1e-6 and 1e-3 < found.optimized < 1e-1
    assert not found.is_good and Accuracy(found.original, 2 * found.original).is_good
    assert accuracy(model, {"input": x}, original, rounded.float()) == found
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert not Accuracy(1e-7, 1e-4).is_good
    assert Accuracy(1e-4, 3e-4).is_good


def test_other_values() -> None:
    batch = {"x": randn(3, 4), "ids": torch.arange(6).reshape(2, 3)}
    assert other_values(batch, 0) is batch
    first, second = other_values(batch, 1), other_values(batch, 2)
    assert not torch.equal(first["x"], batch["x"]) and not torch.equal(first["x"], second["x"])
    assert sorted(first["ids"].flatten().tolist()) == list(range(6))
    assert not torch.equal(first["ids"], batch["ids"])
    sizes = [(x["x"].shape, x["ids"].shape) for x in other_sizes(batch, (0,))]
    assert sizes == [((6, 4), (4, 3)), ((1, 4), (1, 3))]
