"""Models of many kinds through everything that takes a model, beside eager PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.zoo import Kind, every_kind, loss
from tinytorch.fx.capture.comparison import first_difference
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import Slot
from tinytorch.fx.capture.step import TrainingStep, capture_step

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
#: Libraries take other code where they are traced (an explicit mask, a loop for a kernel), so sums
#: come in another order. PyTorch's gates of a GRU are parts of one tensor where eager, their own
#: when traced, and on AVX2 its code for rows of 8 rounds otherwise than its code for strides.
#: All others are equal to the last bit.
ROUNDED = ("llama", "mixtral", "mamba", "gru")
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, fused=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, fused=True),
}


def check_equal(kind: Kind, found: dict[Slot, Tensor], expected: dict[Slot, Tensor]) -> None:
    assert found.keys() == expected.keys()
    if kind.name in ROUNDED:
        assert first_difference(found, expected) is None
        return
    assert not [str(slot) for slot, value in expected.items() if not found[slot].equal(value)]


def flat(state: Any) -> dict[Slot, Tensor]:
    return {Slot(role, n): t.detach() for role, named in state.items() for n, t in named.items()}


def check_training(
    kind: Kind, model: nn.Module, step: TrainingStep, make: Any, steps: int = 2
) -> None:
    """Train a copy eagerly, and the step, on other batches with the same random numbers."""
    eager = copy.deepcopy(model)
    optimizer, state = make(eager), step.state_of(model)
    for seed in range(steps):
        batch = kind.batch(seed)
        torch.manual_seed(seed)
        optimizer.zero_grad()
        expected = loss(eager, batch)
        expected.backward()
        optimizer.step()
        torch.manual_seed(seed)
        found, state = step.run(state, batch)
        wanted = {Slot("loss", ""): expected, **flat(step.state_of(eager, optimizer))}
        check_equal(kind, {Slot("loss", ""): found, **flat(state)}, wanted)


@pytest.mark.slow_beyond(1)
@pytest.mark.exhaustive_beyond(6)
@pytest.mark.parametrize("kind", every_kind())
def test_training_steps(kind: Kind):
    name = "sgd" if len(kind.name) % 2 else "adamw"
    model = kind.model()
    step = capture_step(model, kind.batch(), OPTIMIZERS[name](model), loss=loss)
    check_training(kind, model, step, OPTIMIZERS[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", every_kind())
def test_training_steps_with_the_other_optimizer(kind: Kind):
    name = "adamw" if len(kind.name) % 2 else "sgd"
    model = kind.model()
    step = capture_step(model, kind.batch(), OPTIMIZERS[name](model), loss=loss)
    check_training(kind, model, step, OPTIMIZERS[name])


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(6)
@pytest.mark.parametrize("kind", every_kind())
def test_joint(kind: Kind):
    """Values and strides of the gradients are those of `backward`."""
    model = kind.model()
    joint = capture_joint(model, kind.batch(), loss)
    batch = kind.batch(1)
    torch.manual_seed(0)
    results = joint.module(*joint.flat_inputs(model, batch))
    found = {s: t for s, t in zip(joint.outputs, results, strict=True) if s.role == "gradient"}
    torch.manual_seed(0)
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss(model, batch), parameters.values(), allow_unused=True)
    pairs = zip(parameters, gradients, strict=True)
    expected = {Slot("gradient", n): g for n, g in pairs if g is not None}
    check_equal(kind, found, expected)
    assert all(found[s].stride() == g.stride() for s, g in expected.items() if 1 not in g.shape)
