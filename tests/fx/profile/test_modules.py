"""Nodes and the modules that they belong to."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.fx.small import SEMANTICS, squares
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.profile.modules import common, modules_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


def test_a_node_belongs_to_the_innermost_module_that_must_hold_it() -> None:
    model = nn.Sequential(Block(), nn.GELU(), Block())
    step = capture_step(model, (torch.ones(4, 8),), "sgd", loss=squares, lr=0.1)
    found = modules_of(step.module.graph, SEMANTICS)
    calls = [n for n in step.module.graph.nodes if n.op == "call_function"]
    assert all(n in found for n in calls)
    forward = [n for n in calls if n.meta["phase"] == "forward"]
    products = [found[n] for n in forward if "addmm" in str(n.target)]
    assert products == ["0.up", "0.down", "2.up", "2.down"]
    assert [found[n] for n in forward if "relu" in str(n.target)] == ["0", "2"]
    assert [found[n] for n in forward if "gelu" in str(n.target)] == [""]  # in no block
    updated = {found[n] for n in calls if n.meta["phase"] == "optimizer"}
    assert updated <= {"0.up", "0.down", "2.up", "2.down", "0", "2", ""}
    backward = [n for n in calls if n.meta["phase"] == "backward"]
    assert "2.down" in {found[n] for n in backward}


def test_common() -> None:
    assert common("a.b.c", "a.b.d") == "a.b"
    assert common("a.b", "a.b") == "a.b"
    assert common("a.bc", "a.b") == "a"
    assert common("", "a") == ""
