"""The passes that lower the memory of the backward, whatever is recomputed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tinytorch.fx
from tinytorch.fx.capture.joint import JointGraph, capture_joint
from tinytorch.fx.passes.backward_order import BackwardOrder
from tinytorch.fx.passes.gradients_in_place import GradientsInPlace
from tinytorch.fx.semantics.in_place import FUNCTIONAL
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.memory import timeline
from tinytorch.graph.passes import PassManager

aten = torch.ops.aten
SEMANTICS = TorchSemantics()


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Wide(nn.Module):
    """Narrow, wide, narrow, as in a transformer.

    Args:
        function: between the layers.
    """

    def __init__(self, function: Any = functional.gelu) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.function = nn.Linear(8, 64), nn.Linear(64, 8), function

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.function(self.up(x)))
        return (y * y).sum()


def joint(model: nn.Module) -> JointGraph:
    return capture_joint(model, (randn(32, 8),))


def improved(graph: torch.fx.Graph, *names: str) -> torch.fx.Graph:
    """After passes, each of which must keep every bit and change something."""
    result, report = PassManager(names, SEMANTICS).run(graph)
    assert [r.error for r in report.results] == [None] * len(names)
    assert all(r.changed for r in report.results)
    return result


def peak(graph: torch.fx.Graph) -> int:
    return max(timeline(graph, SEMANTICS).live)


def test_each_lowers_the_peak_and_keeps_every_bit() -> None:
    graph = joint(Wide()).module.graph
    ordered = improved(graph, "backward-order")
    both = improved(graph, "backward-order", "gradients-in-place")
    assert peak(both) < peak(ordered) <= peak(graph)
    assert peak(graph) - peak(both) > 0.9 * 32 * 64 * 4  # a gradient of the wide layer
    assert BackwardOrder(SEMANTICS).analyze(ordered) == []


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (functional.gelu, "gelu_backward"),
        (torch.sigmoid, "sigmoid_backward"),
        (torch.tanh, "tanh_backward"),
        (torch.relu, "threshold_backward"),
    ],
)
def test_writes_over_the_gradient(function: Any, name: str) -> None:
    found = improved(joint(Wide(function)).module.graph, "gradients-in-place")
    (node,) = [n for n in found.nodes if n.target in FUNCTIONAL]
    assert str(node.target) == f"aten.{name}.grad_input"
    assert node.kwargs["grad_input"] is node.args[0]


def test_a_gradient_that_is_read_later_stays() -> None:
    class Twice(Wide):
        def forward(self, x: Tensor) -> Tensor:
            y = self.up(x)
            return self.down(y.relu() + y.tanh()).square().sum()

    graph = joint(Twice()).module.graph
    found = GradientsInPlace(SEMANTICS).analyze(graph)
    assert len(found) == 1  # the second of the two may write
    rest = [n for n in graph.nodes if n.target in FUNCTIONAL.values() and n not in found]
    assert len(rest) == 1 and rest[0] < found[0]
    improved(graph, "gradients-in-place")


def test_a_gradient_that_comes_from_outside_stays() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(randn(8))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.scale).tanh()

    graph = joint(Plain()).module.graph
    assert any(n.target is aten.tanh_backward.default for n in graph.nodes)
    assert GradientsInPlace(SEMANTICS).analyze(graph) == []


def test_graphs_that_write_keep_their_order() -> None:
    graph = improved(joint(Wide()).module.graph, "gradients-in-place")
    assert BackwardOrder(SEMANTICS).analyze(graph) == []


def test_forward_graphs_stay() -> None:
    graph = torch.fx.symbolic_trace(Wide()).graph
    assert BackwardOrder(SEMANTICS).analyze(graph) == []
    assert GradientsInPlace(SEMANTICS).analyze(graph) == []


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("budget", [1.0, 0.6])
def test_checkpoint_uses_both(budget: float) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)) for _ in range(4)
            )

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = x + block(x)
            return x.sum()

    model, x = Deep(), randn(256, 8)
    made = tinytorch.fx.checkpoint(model, (x,), budget=budget)
    compiled = made.compiled((x,))
    assert sum(n.target in FUNCTIONAL for n in compiled.joint.module.graph.nodes) == 4
    assert (compiled.plan.flops > 0) == (budget < 1)
    gradients = torch.autograd.grad(made(x), list(model.parameters()))
    expected = torch.autograd.grad(model(x), list(model.parameters()))
    assert all(map(torch.equal, gradients, expected))
