"""Mixtures of experts, whose libraries take another way where PyTorch compiles."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import GRADIENT, LOSS, Slot
from tinytorch.fx.capture.step import capture_step


class Experts(nn.Module):
    """As transformers has them: a product of groups, whose fake kernel takes bfloat16 alone, but a
    loop over the experts where it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(2, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return torch.cat([x[:4] @ self.weight[0], x[4:] @ self.weight[1]])
        ends = torch.tensor([4, len(x)], dtype=torch.int32)
        return torch._grouped_mm(x, self.weight, offs=ends)


def squares(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    return model(*batch).square().mean()


def test_a_mixture_of_experts_is_captured_as_a_compiler_sees_it():
    model, batch = Experts(), (torch.randn(8, 8),)
    joint = capture_joint(model, batch, squares)
    found = dict(zip(joint.outputs, joint.module(*joint.flat_inputs(model, batch)), strict=True))
    loss = squares(model, batch)
    loss.backward()
    value = next(v for slot, v in found.items() if slot.role == LOSS)
    torch.testing.assert_close(value.detach(), loss.detach())
    torch.testing.assert_close(found[Slot(GRADIENT, "weight")], model.weight.grad)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_its_training_step_is_captured_too(optimizer: str):
    model, batch = Experts(), (torch.randn(8, 8),)
    step = capture_step(model, batch, optimizer, loss=squares, lr=0.1)
    loss, _ = step.run(step.state_of(model), batch)
    torch.testing.assert_close(loss, squares(model, batch).detach())
