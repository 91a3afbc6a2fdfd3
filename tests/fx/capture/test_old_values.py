"""Models in training that read a buffer, keep its value for the backward, and overwrite it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx import GraphOptimizer, capture_forward

aten = torch.ops.aten


class Model(nn.Module):
    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("center", torch.randn(4))
        self.register_buffer("codes", torch.randn(5, 4))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def assigns(m: Model, x: Tensor) -> Tensor:
    h = m.layer(x)
    y = (h - m.center) * m.center * m.center.exp()
    m.center = 0.9 * m.center + 0.1 * h.detach().mean(0)
    return y * m.center


def assigns_twice(m: Model, x: Tensor) -> Tensor:
    for _ in range(2):
        h = m.layer(x) * m.center
        m.center = m.center * 0.5
    return h


def quantizes(m: Model, x: Tensor) -> Tensor:
    """A codebook that follows what it stands for, as in a VQ-VAE."""
    h = m.norm(m.layer(x))
    distance = h.square().sum(1, keepdim=True) - 2 * h @ m.codes.t() + m.codes.square().sum(1)
    nearest = functional.one_hot(distance.argmin(1), len(m.codes)).to(h.dtype)
    with torch.no_grad():
        m.codes = 0.9 * m.codes + 0.1 * nearest.t() @ h
    return h + (nearest @ m.codes - h).detach() - distance.softmax(1).mean()


def normalizes(m: Model, x: Tensor) -> Tensor:
    return m.norm(m.layer(x))


def follows(m: Model, x: Tensor) -> Tensor:
    """Nothing that is differentiated needs the old value: a difference keeps nothing."""
    h = m.layer(x)
    y = h - m.center
    m.center = 0.9 * m.center + 0.1 * h.detach().mean(0)
    return y


def copies(module: torch.fx.GraphModule) -> int:
    return len(module.graph.find_nodes(op="call_function", target=aten.clone.default))


def check_training(model: Model, run: Any, eager: Model) -> None:
    """Both are trained alike, to the last bit."""
    pairs = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, eager)]
    for seed in range(3):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
        for call, (_, optimizer) in zip((run, eager), pairs, strict=True):
            optimizer.zero_grad()
            call(x).square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("function", [assigns, assigns_twice, quantizes, normalizes, follows])
@pytest.mark.parametrize("decompose", [False, True])
def test_a_captured_model_is_trained_as_eagerly(function: Any, decompose: bool) -> None:
    model = Model(function)
    eager, before = copy.deepcopy(model), copy.deepcopy(model.state_dict())
    graph = capture_forward(model, (torch.randn(6, 4),), decompose=decompose)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    check_training(model, graph, eager)


@pytest.mark.parametrize("function", [assigns, quantizes])
def test_an_optimized_model_is_trained_as_eagerly(function: Any) -> None:
    model = Model(function)
    eager = copy.deepcopy(model)
    module = GraphOptimizer(model, torch.randn(6, 4), device="cpu", keep_slower=True).optimize()
    check_training(model, module, eager)


@pytest.mark.parametrize("function", [assigns, quantizes])
def test_open_sizes(function: Any) -> None:
    model = Model(function)
    eager = copy.deepcopy(model)
    graph = capture_forward(model, (torch.randn(3, 4),), dynamic_dims=(0,))
    check_training(model, graph, eager)


def test_the_gradient_of_an_input_that_requires_none_in_the_example() -> None:
    def scales(m: Model, x: Tensor) -> Tensor:
        y = x * m.center
        m.center = m.center + 1
        return y

    model, x = Model(scales), torch.randn(6, 4, requires_grad=True)
    expected, graph = model.center.expand(6, 4).clone(), capture_forward(model, (x.detach(),))
    assert torch.autograd.grad(graph(x).sum(), x)[0].equal(expected)


@pytest.mark.parametrize("function, count", [(normalizes, 0), (follows, 0), (assigns, 1)])
def test_only_what_a_gradient_needs_is_copied(function: Any, count: int) -> None:
    model, x = Model(function), torch.randn(6, 4)
    assert copies(capture_forward(model, (x,))) == count  # one for all that read it
    with torch.no_grad():
        assert copies(capture_forward(model, (x,))) == 0
    frozen: Any = GraphOptimizer(model, x, device="cpu", frozen=True, keep_slower=True).optimize()
    assert copies(frozen.graph_module) == 0


def test_a_buffer_that_is_read_in_a_region_of_its_own() -> None:
    def mixes(m: Model, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = m.layer(x) * m.center
        with torch.no_grad():
            m.center = m.center * 0.9 + y.mean(0).float()
        return y.float()

    model = Model(mixes)
    eager = copy.deepcopy(model)
    check_training(model, capture_forward(model, (torch.randn(6, 4),)), eager)
