"""Models that define gradients of their own, which a graph of the forward does not have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.catalogue import CATALOGUE
from tinytorch.fx import CaptureError, GraphOptimizer, capture_forward


class Reverse(torch.autograd.Function):
    """Turns the gradient around, as for domains that are not to be told apart."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class Swish(torch.autograd.Function):
    """Keeps its input alone; the gradient is that of the forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return gradient * s * (1 + x * (1 - s))


apply = {"reverse": Reverse.apply, "swish": Swish.apply}


class Model(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.drop, self.function = nn.Dropout(0.3), apply[kind]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.drop(self.norm(self.first(x)))))


@pytest.mark.parametrize("decompose", [False, True])
def test_another_gradient_than_that_of_the_forward_is_refused(decompose: bool) -> None:
    """The graph was trained with that of the forward, in silence."""
    model, x = Model("reverse"), (torch.randn(3, 4),)
    said = r"autograd.Function Reverse gives .* loses: gradient 'first.weight' differs .*\n.*detach"
    with pytest.raises(CaptureError, match=said):
        capture_forward(model, x, decompose=decompose)
    with torch.no_grad():
        assert capture_forward(model, x, decompose=decompose)(*x).shape == (3, 2)


def test_a_model_is_optimized_for_inference_only() -> None:
    model, x = Model("reverse"), torch.randn(3, 4)
    with pytest.raises(CaptureError, match="frozen=True"):
        GraphOptimizer(model, x, device="cpu", keep_slower=True).optimize()
    model.eval()
    module = GraphOptimizer(model, x, device="cpu", keep_slower=True).optimize()
    torch.testing.assert_close(module(x), model(x))


@pytest.mark.parametrize("decompose", [False, True])
def test_the_gradient_of_the_forward_is_taken(decompose: bool) -> None:
    model, x = Model("swish"), torch.randn(3, 4)
    before = [b.clone() for b in model.buffers()]
    graph = capture_forward(model, (x,), decompose=decompose)
    assert all(map(torch.equal, model.buffers(), before))
    found = []
    for call in (graph, model):
        torch.manual_seed(0)
        found.append(torch.autograd.grad(call(x).square().sum(), list(model.parameters())))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    "name, what",
    [
        ("custom_function", "autograd.Function _Exp"),
        ("gradient_hook_on_tensor", "a hook on a tensor"),
        ("backward_hook", "a hook on a module"),
    ],
)
def test_what_has_a_gradient_of_its_own_is_named(name: str, what: str) -> None:
    case = CATALOGUE[name]
    with pytest.raises(CaptureError, match=f"{what} gives a gradient of its own"):
        capture_forward(case.make(), case.inputs)


@pytest.mark.filterwarnings("error")
def test_a_compiled_model_is_captured_without_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """A mode that looks at all functions is traced by Dynamo, again and again."""
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager")
    x = torch.randn(3, 4)
    torch.testing.assert_close(capture_forward(model, (x,))(x), model(x))
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_data_is_named_with_what_to_write() -> None:
    case = CATALOGUE["data_attribute"]
    with pytest.raises(CaptureError, match=r"write x.detach\(\) instead of x.data"):
        capture_forward(case.make(), case.inputs)
