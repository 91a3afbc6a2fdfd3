"""A model and passes for the tests of `GraphOptimizer`."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx.optimize.optimizer import GraphOptimizer as Optimizer
from tinytorch.fx.optimize.verify import (
    ForwardSemantics,
)
from tinytorch.fx.passes.autotune import AutotunedPass
from tinytorch.graph.passes import OptimizationPass

aten = torch.ops.aten
GraphOptimizer = functools.partial(Optimizer, keep_slower=True)  # tiny models are not made faster


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """Convolution and batch norm, dropout, something computed twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.dropout, self.head = nn.Dropout(0.3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = functional.relu(self.norm(self.convolution(x)))
        y = self.dropout(y.mean((2, 3)))
        return {"logits": self.head(y) + (y.exp() - y.exp()).sum(), "features": y}


class Doubles(OptimizationPass):
    """A wrong pass: it multiplies the first result by a number near 1."""

    name = "doubles"
    exact = False

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__(ForwardSemantics())
        self.factor = factor

    def analyze(self, graph: torch.fx.Graph) -> Any:
        return graph.output_node()

    def transform(self, graph: torch.fx.Graph, found: Any) -> bool:
        node = found.all_input_nodes[0]
        with graph.inserting_before(found):
            new = graph.call_function(aten.mul.Tensor, (node, self.factor))
        new.meta["val"] = node.meta["val"]
        found.replace_input_with(node, new)
        return True


class Slower(AutotunedPass):
    """Computes the first result many times over."""

    name = "slower"

    def analyze(self, graph: torch.fx.Graph) -> Any:
        return graph.output_node()

    def transform(self, graph: torch.fx.Graph, found: Any) -> bool:
        node = last = found.all_input_nodes[0]
        with graph.inserting_before(found):
            for _ in range(200):
                last = graph.call_function(aten.neg.default, (last,))
                last.meta["val"] = node.meta["val"]
        found.replace_input_with(node, last)
        return True
