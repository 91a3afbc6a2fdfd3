"""Inputs that are constants of a capture: Python may ask for their values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.models import squares_loss


class Patches(nn.Module):
    """Images of several sizes in one row of patches, as vision models of any resolution take."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.rows = nn.Parameter(torch.randn(9, 4))

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        places = [torch.arange(h * w) for h, w in grid.tolist()]
        lengths = torch.repeat_interleave(grid[:, 0] * grid[:, 1], torch.tensor([1, 1]))
        parts = torch.split(self.layer(x) + self.rows[torch.cat(places)], lengths.tolist())
        return torch.stack([part.softmax(0).sum(0) * len(part) for part in parts])


def batch(grid: list[list[int]]) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {"x": torch.randn(10, 3), "grid": torch.tensor(grid)}


SIZES, OTHER = [[2, 2], [3, 2]], [[3, 2], [2, 2]]


def test_a_forward_with_constants_is_eagers_and_refuses_other_values():
    model = Patches()
    forward = type(model).forward
    captured = capture_forward(model, batch(SIZES), constants=["grid"])
    given = batch(SIZES) | {"x": torch.randn(10, 3)}
    assert torch.equal(captured(**given), model(**given))
    with pytest.raises(RuntimeError, match="input 'grid' has other values than in the capture"):
        captured(**batch(OTHER))
    assert "forward" not in vars(model) and type(model).forward is forward
    assert model(**batch(OTHER)).shape == (2, 4)


def test_a_joint_graph_and_a_step_with_constants_refuse_other_values():
    model, given = Patches(), batch(SIZES)
    joint = capture_joint(model, given, squares_loss, constants=["grid"])
    loss = joint.module(*joint.flat_inputs(model, given))[0]
    assert torch.equal(loss, squares_loss(model, given))
    said = "batch 'grid' has other values than in the capture"
    with pytest.raises(CaptureError, match=said):
        joint.flat_inputs(model, batch(OTHER))
    step = capture_step(model, given, "sgd", lr=0.1, loss=squares_loss, constants=["grid"])
    state = step.state_of(model)
    assert torch.equal(step.run(state, given)[0], loss)
    with pytest.raises(CaptureError, match=said):
        step.run(state, batch(OTHER))


def test_what_is_no_constant_is_refused_and_says_what_would_help():
    model, given = Patches(), batch(SIZES)
    with pytest.raises(CaptureError, match=r"grid\.tolist[\s\S]*named in constants="):
        capture_joint(model, given, squares_loss)
    with pytest.raises(CaptureError, match="no input 'sizes' to be a constant; there are x, grid"):
        capture_forward(model, given, constants=["sizes"])
    given["x"].requires_grad_()
    with pytest.raises(CaptureError, match="input 'x' requires a gradient"):
        capture_joint(model, given, squares_loss, constants=["x"])


class Chosen(nn.Module):
    """How many rows it returns depends on values; what is done with them does not."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x[:, 0] > 0].t().exp()


def test_a_graph_with_sizes_that_values_decide_runs():
    captured = capture_forward(Chosen(), (torch.tensor([[1.0, 2], [-1, 3]]),))
    other = torch.tensor([[1.0, 2], [4, 3]])
    assert torch.equal(captured(other), Chosen()(other))
