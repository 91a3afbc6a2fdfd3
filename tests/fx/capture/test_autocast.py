"""A step that is captured under autocast trains as the eager loop; others refuse autocast."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.step import capture_step


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.first(x)).softmax(-1)
        return self.last(hidden @ hidden.mT @ hidden).pow(2)


def loss(model: nn.Module, batch: Any) -> Tensor:
    return model(*batch).float().square().mean()


def numbers() -> Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def test_a_step_trains_as_the_loop_whose_forward_is_under_autocast() -> None:
    model = Layers()
    eager, batch = copy.deepcopy(model), (numbers(),)
    with torch.autocast("cpu", torch.bfloat16):
        step = capture_step(model, batch, "sgd", loss=loss, lr=0.1)
    state = step.state_of(model)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1, fused=True)
    for is_on in (False, True):  # its conversions are part of the graph
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            expected = loss(eager, batch)
        expected.backward()
        optimizer.step()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_on):
            found, state = step.run(state, batch)
        assert found.equal(expected)
        for name, parameter in eager.named_parameters():
            assert state["parameter"][name].equal(parameter)


def test_a_graph_without_conversions_refuses_autocast() -> None:
    model, batch = Layers(), (numbers(),)
    step, joint = capture_step(model, batch, "sgd", loss=loss, lr=0.1), capture_joint(model, batch)
    state = step.state_of(model)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(CaptureError, match=r"capture under torch\.autocast, or run outside"):
            step.run(state, batch)
        with pytest.raises(CaptureError, match=r"autocast to torch\.bfloat16 is on"):
            joint.flat_inputs(model, batch, [torch.ones(5, 3)])
