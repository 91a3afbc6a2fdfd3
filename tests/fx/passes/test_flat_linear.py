from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.passes.flat_linear import FlatLinears
from tinytorch.graph.passes import PassManager

FROZEN = ForwardSemantics(frozen=True)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Conv1D(nn.Module):
    """The linear layer of GPT-2.

    Args:
        flatten: makes the input flat.
    """

    def __init__(self, flatten: str = "view", bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(6, 8))
        self.bias = nn.Parameter(randn(8, seed=1)) if bias else None
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        if self.flatten == "heads":  # (batch, heads, words, 3), as attention leaves it
            flat = x.transpose(1, 2).reshape(-1, 6)
            size = (x.shape[0], x.shape[2], 8)
        else:
            flat, size = x.view(-1, 6), (*x.shape[:-1], 8)
        y = flat @ self.weight if self.bias is None else torch.addmm(self.bias, flat, self.weight)
        return y.view(size)


def calls(model: nn.Module, x: Tensor) -> Counter[str]:
    with torch.no_grad():
        graph = capture_forward(model.eval(), (x,)).graph
    graph, report = PassManager([FlatLinears(FROZEN), "dce"], FROZEN).run(graph)
    assert not report.failures, report
    with torch.no_grad():
        torch.testing.assert_close(graph.owning_module(x), model(x))
    return Counter(str(n.target) for n in graph.nodes if n.op == "call_function")


def test_takes_the_views_away() -> None:
    assert calls(Conv1D(), randn(2, 5, 6)) == {"aten.linear.default": 1}


def test_an_input_that_was_never_in_form_is_brought_into_it() -> None:
    found = calls(Conv1D("heads"), randn(2, 2, 5, 3))
    assert found["aten.linear.default"] == 1 and "aten.addmm.default" not in found


def test_other_views_of_the_result() -> None:
    class Flat(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).view(-1, 4)

    class Wide(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(self.bias, x, self.weight).view(-1, 4)

    assert calls(Flat(), randn(2, 5, 6))["aten.linear.default"] == 1
    assert calls(Wide(), randn(5, 6)) == {"aten.addmm.default": 1, "aten.view.default": 1}


def test_a_product_that_is_used_twice_stays() -> None:
    class Twice(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.addmm(self.bias, x.view(-1, 6), self.weight)
            return y.view(2, 5, 8) + y.sum()

    assert calls(Twice(), randn(2, 5, 6))["aten.addmm.default"] == 1


@pytest.mark.parametrize("factors", [{"alpha": 2}, {"beta": 2}])
def test_scaled_products_stay(factors: dict[str, int]) -> None:
    class Scaled(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(self.bias, x.view(-1, 6), self.weight, **factors).view(2, 5, 8)

    assert calls(Scaled(), randn(2, 5, 6))["aten.addmm.default"] == 1


def test_weights_that_may_change_stay() -> None:
    graph = capture_forward(Conv1D().eval(), (randn(2, 5, 6),)).graph
    assert FlatLinears(ForwardSemantics(frozen=False)).analyze(graph) == []
    assert len(FlatLinears(FROZEN).analyze(graph)) == 1


def test_without_a_bias() -> None:
    class Product(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return torch.mm(x.view(-1, 6), self.weight).view(2, 5, 8)

    assert calls(Product(bias=False), randn(2, 5, 6)) == {"aten.linear.default": 1}
