"""Small models whose training steps have what makes recomputation hard."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tinytorch.fx.capture.joint import JointGraph, capture_joint
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.passes import get_pass_by_name
from tinytorch.graph.recompute.problem import Problem

SEMANTICS = TorchSemantics()


def mlp(depth: int = 6, width: int = 32, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(width, 3))


class ConvNet(nn.Module):
    """Batch norm and residual connections."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + norm(conv(x)).relu()
        return self.head(x.mean((2, 3)))


def squares(model: nn.Module, batch: Any) -> Tensor:
    """A loss for any model of one tensor."""
    return model(*batch).square().mean()


def clean(module: torch.fx.GraphModule) -> None:
    for name in ("algebra", "cse", "dce"):
        get_pass_by_name(name)(SEMANTICS).run(module.graph)
    module.recompile()


def joint_of(model: nn.Module, batch: Any, loss: Any = squares) -> JointGraph:
    """The cleaned joint graph."""
    joint = capture_joint(model, batch, loss)
    clean(joint.module)
    return joint


def problem_of(module: torch.fx.GraphModule) -> Problem:
    return Problem(module.graph, SEMANTICS)
