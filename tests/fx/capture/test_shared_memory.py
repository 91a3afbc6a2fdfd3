from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tinytorch.fx import GraphOptimizer
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.shared_memory import check_unshared
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.step import capture_step


class Tied(nn.Module):
    """Uses the memory of its weight a second time, in the way that `tie` says."""

    def __init__(self, tie: Callable[[Tied], None]) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        tie(self)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.first(x), self.second())


def as_list(model: Tied) -> None:
    held = [model.first.weight]
    model.second = lambda: held[0]


def as_buffer(model: Tied) -> None:
    model.register_buffer("old", model.first.weight.detach())
    model.second = lambda: model.old


def as_parameter(model: Tied) -> None:
    model.other = nn.Parameter(model.first.weight.data)
    model.second = lambda: model.other


def squares(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    return model(*batch).square().mean()


@pytest.mark.parametrize("tie", [as_list, as_buffer, as_parameter])
def test_a_step_refuses_memory_that_would_keep_old_values(tie: Callable[[Tied], None]):
    with pytest.raises(CaptureError, match=r"shares memory .*its new values would not be seen"):
        capture_step(Tied(tie), (torch.ones(2, 4),), "sgd", loss=squares)


def test_gradients_refuse_a_parameter_that_no_module_has():
    """The gradient of its second use was lost."""
    with pytest.raises(CaptureError, match="_param_constant0 shares memory"):
        capture_joint(Tied(as_list), (torch.ones(2, 4),), squares)


class Rerun(nn.Sequential):
    reentrant = False

    def forward(self, x: Tensor) -> Tensor:
        x = self[0](x)
        return checkpoint(super().forward, x, use_reentrant=self.reentrant)  # the line


REFUSED = (capture_joint, lambda *given: capture_step(*given[:2], loss=given[2]))


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("refused", REFUSED)
def test_layers_that_run_again_in_the_backward_say_what_to_turn_off(refused: Any, rate: float):
    """With dropout a gradient differed, and nothing said why."""
    model = Rerun(nn.Linear(4, 4), nn.Dropout(rate), nn.Tanh())
    with pytest.raises(CaptureError, match=r"turn off torch\.utils\.checkpoint") as error:
        refused(model, (torch.ones(9, 4),), squares)
    if rate:
        assert "runs layers again in the backward" in error.value.reason.text
        assert error.value.reason.line.text.endswith("# the line")


def test_checkpoints_without_gradients_for_some_say_what_to_write():
    model, batch = Rerun(nn.Linear(4, 4), nn.Dropout()), (torch.ones(2, 4),)
    model.reentrant = True
    for refused in REFUSED:
        with pytest.raises(
            CaptureError, match=r"use_reentrant=True gives no .*\n.*: turn off torch"
        ):
            refused(model, batch, squares)
    optimizer = GraphOptimizer(model, batch, device="cpu", keep_slower=True)
    with pytest.raises(CaptureError, match=r"GraphOptimizer takes use_reentrant=False"):
        optimizer.optimize()
    model.reentrant = False
    optimizer.optimize()


def test_parts_of_one_memory_without_common_elements():
    whole = torch.ones(4, 6)
    parts = {"left": whole[:, :3], "right": whole[:, 3:]}
    check_unshared(parts, parts)
    with pytest.raises(CaptureError, match="middle shares memory with left, right"):
        check_unshared({"middle": whole[:, 2:4].view(torch.int32)}, parts)


def test_hooks_of_gradients_are_refused():
    model = nn.Linear(4, 4)
    handle = model.weight.register_hook(lambda g: g * 0)
    with pytest.raises(CaptureError, match="hooks of weight's gradient"):
        capture_step(model, (torch.ones(2, 4),), "sgd", loss=squares)
    handle.remove()
    model.bias.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(CaptureError, match="hooks of bias's gradient"):
        capture_step(model, (torch.ones(2, 4),), "sgd", loss=squares)


def test_sparse_gradients_are_refused() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(8, 4, sparse=True)

        def forward(self, indices: Tensor) -> Tensor:
            return self.table(indices).square().mean()

    batch = (torch.tensor([1, 2]),)
    for refused in (capture_joint, capture_step):
        with pytest.raises(CaptureError, match=r"gradient of table.weight is sparse.*sparse=False"):
            refused(Words(), batch)
