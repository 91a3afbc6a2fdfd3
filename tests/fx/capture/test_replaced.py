"""Models that exchange their modules in the forward, and tensors of vmap that come out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx.capture.comparison import first_difference
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import CaptureError, Slot
from tinytorch.fx.capture.step import capture_step


def squares(model: nn.Module, batch: Any) -> Tensor:
    return model(*batch).square().mean()


CAPTURES: dict[str, Callable[[nn.Module, Any], Any]] = {
    "forward": capture_forward,
    "joint": lambda model, batch: capture_joint(model, batch, squares),
    "step": lambda model, batch: capture_step(model, batch, "sgd", loss=squares),
}


class Model(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.act = nn.Linear(4, 4), nn.ReLU()
        self.kept: list[Tensor] = []
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def wraps(m: Model, x: Tensor) -> Tensor:
    y = m.layer(x)
    m.layer = nn.Sequential(m.layer)  # the line
    return y


def exchanges(m: Model, x: Tensor) -> Tensor:
    m.act = nn.Tanh()  # which has no parameters
    return m.act(m.layer(x))


def adds(m: Model, x: Tensor) -> Tensor:
    m.extra = nn.Linear(4, 4)
    return m.extra(m.layer(x))


def maps(m: Model, x: Tensor) -> Tensor:
    return torch.vmap(lambda row: m.layer(row).tanh() * row.sum())(x)


def mask(m: Model, x: Tensor) -> Tensor:
    rows, columns = torch.arange(len(x)), torch.arange(4)
    inner = torch.vmap(lambda b, i: i <= b, in_dims=(None, 0))
    return m.layer(x).masked_fill(torch.vmap(inner, in_dims=(0, None))(rows, columns), 0.0)


def escapes(m: Model, x: Tensor) -> Tensor:
    def row(r: Tensor) -> Tensor:
        m.kept.append(r * 2)
        return m.layer(r)

    y = torch.vmap(row)(x)
    return y + m.kept[-1]  # the line


def differentiates(m: Model, x: Tensor) -> Tensor:
    y = torch.vmap(lambda r: r * 2)(x)
    return y + torch.func.grad(lambda z: m.layer(z).sum())(x)  # the line


def gradients(model: nn.Module, x: Tensor) -> dict[Slot, Tensor]:
    names = dict(model.named_parameters())
    found = torch.autograd.grad(squares(model, (x,)), names.values(), allow_unused=True)
    pairs = zip(names, found, strict=True)
    return {Slot("gradient", n): g for n, g in pairs if g is not None}


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("function", [exchanges, maps, mask])
def test_what_leaves_the_parameters_in_place_is_captured(function: Any) -> None:
    model, x = Model(function), torch.randn(3, 4)
    for capture in CAPTURES.values():
        capture(model, (x,))
    joint = capture_joint(model, (x,), squares)
    results = joint.module(*joint.flat_inputs(model, (x,)))
    found = {s: t for s, t in zip(joint.outputs, results, strict=True) if s.role == "gradient"}
    assert first_difference(found, gradients(model, x)) is None
    assert capture_forward(model, (x,))(x).allclose(model(x))


@pytest.mark.parametrize("kind", CAPTURES)
def test_a_module_that_is_made_in_the_forward(kind: str) -> None:
    """Its parameters are drawn anew in each call, as eagerly, and are not trained."""
    CAPTURES[kind](Model(adds), (torch.randn(3, 4),))


@pytest.mark.parametrize("kind", ["joint", "step"])
def test_a_module_that_is_replaced_is_refused_with_the_line(kind: str) -> None:
    model = Model(wraps)
    layer, weight = model.layer, model.layer.weight
    with pytest.raises(CaptureError, match=r"'layer.bias' is no longer in the model") as error:
        CAPTURES[kind](model, (torch.randn(3, 4),))
    assert error.value.reason.line.text.endswith("nn.Sequential(m.layer)  # the line")
    assert error.value.reason.line.file == __file__
    assert model.layer is layer and layer.weight is weight  # as before
    assert type(weight.detach()) is Tensor and weight.sum().item() != 0  # and real


@pytest.mark.filterwarnings("ignore:The tensor attribute self.kept")
@pytest.mark.parametrize("kind", CAPTURES)
def test_a_tensor_that_leaves_vmap_is_refused_with_the_line(kind: str) -> None:
    with pytest.raises(CaptureError, match=r"torch.vmap or torch.func") as error:
        CAPTURES[kind](Model(escapes), (torch.randn(3, 4),))
    assert error.value.reason.line.text.endswith("m.kept[-1]  # the line")


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_parameters_that_a_gradient_inside_takes_in() -> None:
    """export makes constants of them; the other captures take it."""
    model, batch = Model(differentiates), (torch.randn(3, 4),)
    with pytest.raises(CaptureError, match=r"capture_joint and capture_step") as error:
        capture_forward(model, batch)
    assert error.value.reason.line.file == __file__  # export knows the call of the forward
    for kind in ("joint", "step"):
        CAPTURES[kind](model, batch)
