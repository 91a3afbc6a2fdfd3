"""Values that Python asks for, guarded, and the graphs of all the ways that a model takes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx.capture.branches import Branches
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.guards import GuardError, guard_errors
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import STATE, CaptureError
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.models import squares_loss


class Asking(nn.Module):
    """Asks in most of the ways in which Python can ask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.layer(x)
        if not mask.all():
            y = y.tanh()
        y = y * len([m for m in mask.tolist() if m]) + int(mask.sum()) + (True in mask)
        if torch.equal(mask, mask.clone()) and mask.sum().item() > 1:
            y = y[: mask.sum()]
        z = y.new_zeros(len(mask), 3)
        z[mask] = self.layer(x[mask]) * 2
        z = z + torch.arange(mask.sum()).sum() + self.layer.weight[mask.sum() - 1]
        rows, columns = torch.where(torch.ones(2, 2).tril() > 0)
        return z.sum() + y.sum() + z.masked_select(z > 1e9).sum() + mask.nonzero().sum() + (
            rows * columns
        ).sum()  # fmt: skip


def given(*mask: bool) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {"x": torch.randn(len(mask), 3), "mask": torch.tensor(mask)}


BATCH, OTHER = given(True, False, True, True), given(True, False, True, False)


def test_a_guarded_forward_is_eagers_and_stops_at_other_values():
    model = Asking()
    with pytest.raises(CaptureError, match=r"if not mask\.all"):
        capture_forward(model, BATCH)
    captured = capture_forward(model, BATCH, guarded=True)
    again = BATCH | {"x": BATCH["x"] + 1}
    assert torch.equal(captured(**again), model(**again))
    with pytest.raises(GuardError, match=r"which was .* in the capture") as caught, guard_errors():
        captured(**OTHER)
    assert "test_guards.py" in str(caught.value) and torch.is_grad_enabled()
    assert "forward" not in vars(model)


def test_a_guarded_joint_graph_has_eagers_gradients():
    model = Asking()
    joint = capture_joint(model, BATCH, squares_loss, guarded=True)
    loss, *gradients = joint.module(*joint.flat_inputs(model, BATCH))
    expected = squares_loss(model, BATCH)
    assert torch.equal(loss, expected)
    for mine, right in zip(
        gradients, torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        assert torch.equal(mine, right)
    with pytest.raises(RuntimeError, match="the graph is guarded"):
        joint.module(*joint.flat_inputs(model, OTHER))


class Dropping(nn.Module):
    """Leaves out layers at random, as speech encoders do in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            if torch.rand([]) >= 0.5:
                x = self.dropout(layer(x)).tanh()
        return self.layers[-1](x)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_steps_of_a_model_that_leaves_out_layers_are_eagers_on_four_graphs(kind: str):
    """AdamW counts the steps of each parameter: a layer that was left out is behind."""
    torch.manual_seed(0)
    model, batches = Dropping(), [(torch.randn(5, 4),) for _ in range(12)]
    branches: Branches = Branches()

    def capture():
        return capture_step(model, batches[0], kind, lr=0.1, loss=squares_loss, guarded=True)

    branches.graphs.append(capture())
    state = branches.graphs[0].state_of(model)
    torch.manual_seed(3)
    for batch in batches:
        _, state = branches.run(lambda step: step.run(state, batch), capture)  # noqa: B023
    assert len(branches.graphs) == 4
    torch.manual_seed(3)
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind]
    other = copy.deepcopy(model)
    optimizer, kept = (make(m.parameters(), lr=0.1, fused=True) for m in (model, other))
    branches.graphs[-1].write_back(state, other, kept)
    for batch in batches:
        optimizer.zero_grad()
        squares_loss(model, batch).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(state["parameter"][name], parameter), name
        here = optimizer.state[parameter], kept.state[other.get_parameter(name)]
        assert all(
            torch.equal(value, here[1][k]) for k, value in here[0].items() if value is not None
        )
    again = branches.graphs[-1].state_of(other, kept)[STATE]
    assert all(torch.equal(value, state[STATE][name]) for name, value in again.items())


def test_a_run_for_which_no_graph_fits_says_so_and_leaves_the_generator():
    torch.manual_seed(0)
    model, batch = Dropping(), (torch.randn(5, 4),)

    def ask(seed: int, branches: Branches):
        torch.manual_seed(seed)
        return branches.run(
            lambda graph: graph(*batch), lambda: capture_forward(model, batch, guarded=True)
        )

    one: Branches = Branches(limit=1)
    for seed in range(8):
        torch.manual_seed(seed)
        right = model(*batch)
        try:
            assert torch.equal(ask(seed, one), right)
        except GuardError as error:
            assert "none of 1 graphs fits" in str(error) and "torch.rand([])" in str(error)
            break
    else:
        pytest.fail("eight seeds took the same way")
    assert torch.equal(ask(seed, Branches()), right)
