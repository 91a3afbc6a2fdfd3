"""PyTorch models as TinyTorch Modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tinytorch
from tinytorch.errors import ShapeError
from tinytorch.fx import load_model
from tinytorch.fx.convert.aten_module import UnsupportedAtenError
from tinytorch.fx.convert.exchange import tensor_from_torch, tensor_to_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.graph import trace

NAMES = ["hf:resnet152", "hf:bert-base", "hf:gpt2"]


def outputs_of(model: nn.Module, inputs: dict[str, Any]) -> list[torch.Tensor]:
    with torch.no_grad():
        result = model(**inputs)
    return [v for v in result.values() if isinstance(v, torch.Tensor)]


def assert_same(ours: Any, theirs: list[torch.Tensor], rtol: float = 1e-4) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        scale = float(b.abs().max())
        np.testing.assert_allclose(a.detach().numpy(), b.numpy(), atol=rtol * scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_small_models_give_what_pytorch_gives(name: str) -> None:
    example = load_model(name, small=True, batch=2)
    model = example.model.eval()
    module = from_torch(model, example.inputs)
    inputs = [tensor_from_torch(v) for v in example.inputs.values()]
    expected = outputs_of(model, example.inputs)
    with tinytorch.using_backend("numpy"):
        with tinytorch.no_grad():
            assert_same(module(*inputs), expected)
            assert_same(tinytorch.compile(module)(*inputs), expected)
        graph = trace(module, *inputs).graph
        names = {node.target for node in graph.find_nodes(op="placeholder")}
        assert len(names) > len(inputs) + 10  # parameters are named inputs
        module(*inputs)[0].sum().backward()
    assert all(p.grad is not None for p in module.parameters() if p.requires_grad)


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(1)
@pytest.mark.parametrize("name", NAMES[::-1])
def test_the_real_architectures_run_on_our_compiler(name: str) -> None:
    example = load_model(name, batch=1, image=64, sequence=32)
    model = example.model.eval()
    module = from_torch(model, example.inputs)
    inputs = [tensor_from_torch(v) for v in example.inputs.values()]
    with tinytorch.using_backend("optimized"), tinytorch.no_grad():
        results = tinytorch.compile(module)(*inputs)
    assert_same(results, outputs_of(model, example.inputs))


class Calls(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.function(x)
        return found


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_an_image_without_a_batch_is_pooled(pool: Any, ceil_mode: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 7, requires_grad=True)
    model = Calls(lambda x: pool(x, 2, ceil_mode=ceil_mode))
    expected = model(x)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    with tinytorch.using_backend("numpy"):
        ours = tensor_from_torch(x.detach()).clone().requires_grad_()
        (found,) = from_torch(model, (x.detach(),))(ours)
        found.sum().backward()
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(ours.grad.numpy(), wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "function", [lambda x: x & 3, lambda x: x | (x + 1), lambda x: x ^ -6, lambda x: ~x]
)
def test_bits_of_integers(function: Any) -> None:
    x = torch.tensor([5, 3, -1])
    for given in (x, x.int()):
        with tinytorch.using_backend("numpy"):
            (found,) = from_torch(Calls(function), (given,))(tensor_from_torch(given))
        assert found.tolist() == function(given).tolist()


def test_memory_is_shared_with_pytorch() -> None:
    layer = nn.Linear(3, 2)
    module = from_torch(layer, (torch.ones(4, 3),))
    x = torch.randn(4, 3)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(5.0)
    (y,) = module(tensor_from_torch(x))
    assert y.tolist() == [[5.0, 5.0]] * 4
    assert torch.equal(tensor_to_torch(y.detach()), torch.full((4, 2), 5.0))


@pytest.mark.slow
def test_tied_parameters_stay_one() -> None:
    example = load_model("hf:gpt2", small=True, batch=1)
    module = from_torch(example.model.eval(), example.inputs)
    theirs = sum(p.numel() for p in example.model.parameters())
    assert sum(p.numel() for p in module.parameters()) == theirs


def test_operators_that_are_not_there_are_listed() -> None:
    class Strange(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.det(x) + x.sum()

    with pytest.raises(UnsupportedAtenError, match=r"1 of \d+ operators cannot be taken over") as e:
        from_torch(Strange(), (torch.eye(3),))
    assert "_linalg_det" in str(e.value)


def test_dtypes_that_are_not_there_are_named() -> None:
    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.bfloat16) * 2

    with pytest.raises(UnsupportedAtenError, match="bfloat16 is for storage only"):
        from_torch(Half(), (torch.ones(3),))


class Encoded(nn.Module):
    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        return F.one_hot(labels, 3)


def test_labels_that_are_out_of_range_are_refused() -> None:
    """PyTorch's `one_hot` in parts ends in an assertion that no op of ours is."""
    labels = torch.tensor([0, 2, 1])
    module = from_torch(Encoded(), (labels,))
    for run in (module, tinytorch.compile(module)):
        (found,) = run(tensor_from_torch(labels))
        np.testing.assert_array_equal(found.numpy(), Encoded()(labels).numpy())
        with pytest.raises(IndexError, match="3 is out of range"):
            run(tinytorch.tensor([0, 3, 1]))


class Mean(nn.Module):
    """A size and a number become constants of the graph."""

    def forward(self, batch, times=2):
        return batch["x"].sum(0) / len(batch["x"]) * times


def test_inputs_of_other_shapes_dtypes_and_numbers_are_refused():
    module = from_torch(Mean(), ({"x": torch.ones(2, 3)}, 3))
    x = tinytorch.ones(2, 3)
    for given in (({"x": x}, 3), (x, 3)):
        assert module(*given)[0].tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(ShapeError, match=r"float32\[4, 3\], but was captured as float32\[2, 3\]"):
        module(tinytorch.ones(4, 3), 3)
    with pytest.raises(ShapeError, match=r"float64.*from_torch"):
        module(x.double(), 3)
    with pytest.raises(ValueError, match="times is 4, but was captured as 3"):
        module(x, 4)
    with pytest.raises(TypeError, match="captured with 2 inputs, but called with 1"):
        module(x)


def test_a_module_of_keywords_is_called_by_keywords_or_in_a_row():
    module = from_torch(Mean(), {"batch": {"x": torch.ones(2, 3)}, "times": 3})
    x = tinytorch.ones(2, 3)
    assert module(times=3, batch={"x": x})[0].equal(module(x, 3)[0])
    compiled = tinytorch.compile(module, backend="numpy")
    assert compiled(batch={"x": x}, times=3)[0].equal(module(x, 3)[0])
    with pytest.raises(TypeError, match=r"the keywords batch, times, but called with .* batch"):
        module(batch={"x": x})
