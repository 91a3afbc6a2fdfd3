"""Where a model stops gradients, in graphs of core ops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tinytorch
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.convert.exchange import tensor_from_torch
from tinytorch.fx.convert.from_torch import from_torch

aten = torch.ops.aten


class Stops(nn.Module):
    """A layer and a buffer, and what a case makes of them."""

    average: Tensor

    def __init__(self, case: Callable[[Stops, Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.register_buffer("average", torch.zeros(3))
        self.case = case

    def forward(self, x: Tensor) -> object:
        return self.case(self, x)


def detached(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x)
    return h * h.detach()


def without_gradients(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x)
    with torch.no_grad():
        scale = torch.tanh(h)
    return h * scale


def a_view_made_without(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x)
    with torch.no_grad():
        turned = h.view(3, 2)
    return h * turned.reshape(2, 3)


def gradients_within(model: Stops, x: Tensor) -> tuple[Tensor, Tensor]:
    h = model.layer(x)
    with torch.no_grad():
        scale = h * 2
        with torch.enable_grad():
            both = scale * h
        last = both + h
    return both, last * x


def a_running_average(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x)
    with torch.no_grad():
        model.average.mul_(0.9).add_(h.mean(0), alpha=0.1)
        model.average[0].mul_(0.5)
    return h * model.average


def a_recorded_average(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x)
    model.average.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
    return h + model.average


def a_copy_written(model: Stops, x: Tensor) -> tuple[Tensor, Tensor]:
    h = model.layer(x)
    kept = h.detach().clone()
    kept[0] *= 2
    return h * kept, kept


def straight_through(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x)
    return (h + (h.round() - h).detach()) * x


def chosen(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x)
    with torch.no_grad():
        best = h.argmax(-1, keepdim=True)
    return h.gather(1, best) * x


CASES = [
    detached, without_gradients, a_view_made_without, gradients_within, a_running_average,
    a_recorded_average, a_copy_written, straight_through, chosen,
]  # fmt: skip


def outputs_of(result: object) -> list[Tensor]:
    found = result if isinstance(result, tuple) else (result,)
    return [y for y in found if isinstance(y, Tensor)]


def gradients_of(model: Callable[[Tensor], object], x: Tensor, wanted: Stops) -> list[Tensor]:
    """Whether each output has a history, and the gradients of input and parameters."""
    given = x.clone().requires_grad_()
    outputs = outputs_of(model(given))
    loss = torch.stack([y.square().sum() for y in outputs if y.requires_grad]).sum()
    found = torch.autograd.grad(loss, [given, *wanted.parameters()], allow_unused=True)
    flags = torch.tensor([y.requires_grad for y in outputs])
    return [flags, *(torch.zeros(()) if g is None else g for g in found), wanted.average.clone()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_graphs_of_core_ops_stop_gradients_as_the_model_does(case: object) -> None:
    assert callable(case)
    x, model = torch.randn(2, 3), Stops(case)
    graph = capture_forward(model, (x,), decompose=True)
    expected = gradients_of(model, x, model)
    model.average.zero_()
    for found, wanted in zip(gradients_of(graph, x, model), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_converted_models_stop_gradients_as_the_model_does(case: object) -> None:
    assert callable(case)
    x, model = torch.randn(2, 3), Stops(case)
    ours = from_torch(model, (x,))
    flags, *expected = gradients_of(model, x, model)
    for run in (ours, tinytorch.compile(ours)):
        model.average.zero_()
        given = tensor_from_torch(x).requires_grad_()
        outputs = run(given)
        assert [y.requires_grad for y in outputs] == flags.tolist()
        parameters = [ours.p_layer_weight, ours.p_layer_bias]
        for each in parameters:
            each.grad = None
        losses = [(y * y).sum() for y in outputs if y.requires_grad]
        tinytorch.stack(losses).sum().backward()
        found = [t.grad for t in (given, *parameters)]
        for gradient, wanted in zip(found, expected, strict=False):
            assert gradient is not None
            np.testing.assert_allclose(gradient.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.average, expected[-1])


def test_the_mode_of_the_caller_does_not_matter() -> None:
    with torch.no_grad():
        graph = capture_forward(Stops(without_gradients), (torch.ones(2, 3),), decompose=True)
    assert len(graph.graph.find_nodes(op="call_function", target=aten.detach.default)) == 1


def test_what_no_gradient_can_come_to_has_no_detach() -> None:
    def of_a_buffer(model: Stops, x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = model.average * 2 + 1
        return model.layer(x) * scale.detach()

    graph = capture_forward(Stops(of_a_buffer), (torch.ones(2, 3),), decompose=True).graph
    targets = {node.target for node in graph.nodes}
    assert aten.detach.default not in targets
    assert torch.ops.tinytorch.stop_gradient.default not in targets


def written_without(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x).clone()
    with torch.no_grad():
        h[0] = 0.0
    return h * x


def written_by_a_view(model: Stops, x: Tensor) -> Tensor:
    h = model.layer(x).clone()
    h.detach().mul_(2)
    return h * x


def parameter_written(model: Stops, x: Tensor) -> Tensor:
    with torch.no_grad():
        model.layer.weight.clamp_(-0.5, 0.5)
    return model.layer(x)


@pytest.mark.parametrize("case", [written_without, written_by_a_view, parameter_written])
def test_writes_behind_the_back_of_gradients_are_refused(case: object) -> None:
    assert callable(case)
    with pytest.raises(CaptureError, match="written where none is recorded") as caught:
        capture_forward(Stops(case), (torch.ones(2, 3),), decompose=True)
    assert "test_stopped_gradients.py" in str(caught.value)


def test_regions_inside_autocast_are_refused() -> None:
    def inside(model: Stops, x: Tensor) -> Tensor:
        h = model.layer(x)
        with torch.autocast("cpu", enabled=False), torch.no_grad():
            scale = h * 2
        return h * scale

    with pytest.raises(CaptureError, match=r"inside torch\.autocast"):
        from_torch(Stops(inside), (torch.ones(2, 3),))


def test_autocast_inside_of_a_region_is_taken() -> None:
    def outside(model: Stops, x: Tensor) -> Tensor:
        h = model.layer(x)
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            scale = h * 2
        return h * scale

    model, x = Stops(outside), torch.randn(2, 3)
    graph = capture_forward(model, (x,), decompose=True)
    expected = gradients_of(model, x, model)
    for found, wanted in zip(gradients_of(graph, x, model), expected, strict=True):
        torch.testing.assert_close(found, wanted)
