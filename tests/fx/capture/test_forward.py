"""The forward of a model as a graph."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx import GraphOptimizer
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.models import ModelError


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


class Teacher(nn.Module):
    """Has a second layer that follows the first as an average, as momentum encoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.average = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for average, own in zip(self.average.parameters(), self.own.parameters(), strict=True):
                average.mul_(0.9).add_(own, alpha=0.1)
        return (self.own(x) - self.average(x)).square().sum()


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("dims", [(), (0,)])
def test_a_frozen_parameter_that_is_written_is_as_before(
    decompose: bool, dims: tuple[int, ...]
) -> None:
    """Each comparison with eager moved the average, and then the two were not the same."""
    model, x = Teacher(), torch.randn(4, 3)
    eager, before = copy.deepcopy(model), copy.deepcopy(model.state_dict())
    graph = capture_forward(model, (x,), decompose=decompose, dynamic_dims=dims)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    for _ in range(3):
        torch.testing.assert_close(graph(x), eager(x))
        torch.testing.assert_close(model.state_dict(), eager.state_dict())


class Sums(nn.Module):
    """Any number of tensors, by position or by name."""

    def forward(
        self, first: Tensor, *tensors: Tensor, scale: float = 1.0, **named: Tensor
    ) -> Tensor:
        return first * scale + sum(x.sum(1) for x in (*tensors, *named.values()))


def test_sizes_of_any_number_of_tensors_stay_open() -> None:
    example = (torch.randn(3), torch.randn(3, 4), torch.randn(3, 4))
    captured = capture_forward(Sums(), example, dynamic_dims=(0,))
    optimized = GraphOptimizer(Sums().eval(), example, dynamic_dims=(0,), keep_slower=True)
    module = optimized.optimize()
    for size in (1, 3, 5):
        given = (torch.randn(size), torch.randn(size, 4), torch.randn(size, 4))
        torch.testing.assert_close(captured(*given), Sums()(*given))
        torch.testing.assert_close(module(*given), Sums()(*given))


def test_sizes_of_tensors_of_any_name_do_not() -> None:
    batch = {"first": torch.randn(3), "a": torch.randn(3, 4), "b": torch.randn(3, 4)}
    assert capture_forward(Sums(), batch)(**batch).equal(Sums()(**batch))
    with pytest.raises(
        CaptureError, match=r"forward takes a, b by \*\*named, .* make each a parameter"
    ):
        capture_forward(Sums(), batch, dynamic_dims=(0,))


def test_what_is_no_module_and_other_dtypes_are_named() -> None:
    with pytest.raises(ModelError, match="put it into the forward of a module"):
        capture_forward(torch.relu, (torch.ones(2),))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"model.to\(torch.float64\)"):
        capture_forward(nn.Linear(3, 3), (torch.ones(2, 3).double(),))


def test_an_object_that_is_no_nest_of_tensors_is_named_with_what_to_return() -> None:
    class Boxed(nn.Linear):
        def forward(self, x: Any) -> Any:
            return {"box": SimpleNamespace(y=super().forward(x))}

    with pytest.raises(CaptureError, match="register_pytree_node"):
        capture_forward(Boxed(3, 3), (torch.ones(2, 3),))
