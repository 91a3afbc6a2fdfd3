"""The forward of a model as a graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx import GraphOptimizer
from tinytorch.fx.capture.forward import capture_forward


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = self.layer(a) * 2 + b * a.sum()
        return result


@pytest.mark.parametrize("decompose", [False, True])
def test_a_tensor_given_twice_stands_for_two_inputs(decompose: bool) -> None:
    model, a, b = TwoInputs(), torch.randn(2, 2), torch.randn(2, 2)
    for example in ((a, a), (a, model.layer.weight), (model.layer.weight, a)):
        graph = capture_forward(model, example, decompose=decompose)
        torch.testing.assert_close(graph(a, b), model(a, b))
    graph = capture_forward(model, {"a": a, "b": a}, decompose=decompose)
    torch.testing.assert_close(graph(a=a, b=b), model(a, b))


def test_self_attention_given_as_an_example_is_no_other_attention() -> None:
    model = nn.MultiheadAttention(4, 2, batch_first=True)
    x, y = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    graph = capture_forward(model, (x, x, x))
    torch.testing.assert_close(graph(x, y, y)[0], model(x, y, y)[0])


def test_a_model_of_one_tensor_given_twice_is_optimized() -> None:
    model, a, b = TwoInputs().eval(), torch.randn(2, 2), torch.randn(2, 2)
    torch.testing.assert_close(
        GraphOptimizer(model, (a, a), keep_slower=True).optimize()(a, b), model(a, b)
    )
