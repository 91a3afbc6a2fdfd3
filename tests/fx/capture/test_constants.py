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


class Padded(nn.Module):
    """It keeps a padding as a tensor, and Python asks for it; so does EnCodec."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.register_buffer("padding", torch.tensor(2))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        left = self.padding // 2
        return nn.functional.pad(self.layer(x), (left, 1 if left > 5 else self.padding - left))


def test_a_buffer_whose_value_python_asks_for_is_a_constant_of_the_graph():
    model, given = Padded(), {"x": torch.randn(2, 3)}
    joint = capture_joint(model, given, squares_loss)
    step = capture_step(model, given, "sgd", lr=0.1, loss=squares_loss)
    forward = capture_forward(model.eval(), given)
    state = step.state_of(model)
    loss, state = step.run(state, given)
    assert torch.equal(loss, squares_loss(model, given))
    assert torch.equal(joint.module(*joint.flat_inputs(model, given))[0], loss)
    assert torch.equal(forward(**given), model(**given))
    model.steps += 5  # of which no shape is made
    joint.flat_inputs(model, given)
    forward(**given)
    model.padding += 1  # the buffer itself is written: a graph must not compare it with itself
    said = "buffer 'padding' has other values than in the capture"
    with pytest.raises(CaptureError, match=said):
        joint.flat_inputs(model, given)
    with pytest.raises(CaptureError, match=said):
        step.run(step.state_of(model), given)
    with pytest.raises(RuntimeError, match=said):
        forward(**given)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.layer(x) * (2 if self.steps > 1 else 3)


def test_a_buffer_that_is_asked_for_and_written_is_refused_with_its_line():
    model, given = Counting(), {"x": torch.randn(2, 3)}
    with pytest.raises(CaptureError, match=r"value of buffer 'steps'[\s\S]*if self\.steps > 1"):
        capture_joint(model, given, squares_loss)
    with pytest.raises(CaptureError, match=r"asks for the value[\s\S]*if self\.steps > 1"):
        capture_forward(model, given)
    assert model.steps == 0


def test_a_constant_input_that_is_written_later_is_found():
    model, given = Patches(), batch(SIZES)
    joint = capture_joint(model, given, squares_loss, constants=["grid"])
    given["grid"].copy_(torch.tensor(OTHER))
    with pytest.raises(CaptureError, match="batch 'grid' has other values"):
        joint.flat_inputs(model, given)
