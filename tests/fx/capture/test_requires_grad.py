"""Parameters that are frozen, or trained again, after a step was captured."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx import CaptureError, capture_step, optimize_step

BATCH = (torch.ones(3, 4),)
FROZEN = r"parameter '0.weight' was trained in the capture, and is frozen now: capture the step ag"
TRAINED = r"parameter '0.weight' was frozen in the capture, and requires a gradient now: capture"


def squares(model: nn.Module, batch: Any) -> Tensor:
    return model(*batch).square().mean()


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def test_a_parameter_that_is_frozen_later_is_not_trained_on(model: nn.Sequential) -> None:
    step = capture_step(model, BATCH, "sgd", loss=squares, accumulate=True)
    state = step.state_of(model)
    _, state = step.run(state, BATCH)
    model[0].requires_grad_(False)
    for run in (step.run, step.accumulate, optimize_step(step)[0].run):
        with pytest.raises(CaptureError, match=FROZEN):
            run(state, BATCH)
    with pytest.raises(CaptureError, match=FROZEN):
        step.state_of(model)
    model[0].requires_grad_()
    step.run(state, BATCH)
    model[0].requires_grad_(False)
    step = capture_step(model, BATCH, "sgd", loss=squares)
    _, new = step.run(step.state_of(model), BATCH)
    assert new["parameter"]["0.weight"].equal(model[0].weight)


def test_a_parameter_that_is_trained_later_is_not_left_out(model: nn.Sequential) -> None:
    model[0].requires_grad_(False)
    for optimizer in ("sgd", torch.optim.SGD(model.parameters())):
        step = capture_step(model, BATCH, optimizer, loss=squares)
        state = step.state_of(model)
        model[0].requires_grad_()
        with pytest.raises(CaptureError, match=TRAINED):
            step.run(state, BATCH)
        model[0].requires_grad_(False)


def test_what_another_optimizer_trains_may_change(model: nn.Sequential) -> None:
    """As of a generator and a discriminator, each frozen while the other one learns."""
    model[0].requires_grad_(False)
    step = capture_step(model, BATCH, torch.optim.SGD(model[1].parameters()), loss=squares)
    model[0].requires_grad_()
    step.run(step.state_of(model), BATCH)
    model[0].requires_grad_(False)
    step = capture_step(
        model, BATCH, torch.optim.SGD(model[1].parameters()), loss=squares, max_norm=1.0
    )
    model[0].requires_grad_()  # whose gradient is a part of the norm
    with pytest.raises(CaptureError, match=TRAINED):
        step.run(step.state_of(model), BATCH)


def test_the_model_that_the_state_is_of_is_asked(model: nn.Sequential) -> None:
    step = capture_step(model, BATCH, "sgd", loss=squares)
    student = copy.deepcopy(model)
    state = step.state_of(student)
    model.requires_grad_(False)  # a teacher from now on
    step.run(state, BATCH)
    student[0].requires_grad_(False)
    with pytest.raises(CaptureError, match=FROZEN):
        step.run(state, BATCH)


def test_a_copy_of_a_step(model: nn.Sequential) -> None:
    step = capture_step(model, BATCH, "sgd", loss=squares)
    pickle.dumps(step)
    step = copy.deepcopy(step)
    state = step.state_of(model)
    step.run(state, BATCH)
    model[0].requires_grad_(False)
    with pytest.raises(CaptureError, match=FROZEN):
        step.run(state, BATCH)
