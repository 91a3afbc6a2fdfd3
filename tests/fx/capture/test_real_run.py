"""A captured graph is run once on real values: what the trace got wrong is mended or refused."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx.capture.comparison import first_difference
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.functional import tracing
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.layouts import layout_order, relaid_like, same_layout
from tinytorch.fx.capture.slots import CaptureError, Slot, UnrepeatableError
from tinytorch.fx.capture.step import capture_step

aten = torch.ops.aten


class Layer(nn.Module):
    """A layer, and a function of its result and the input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 4))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.weight, x)


def squares(model: nn.Module, batch: Any) -> Tensor:
    return model(*batch).square().mean()


def trained_eagerly(model: Layer, x: Tensor) -> Tensor:
    """The weight after a step of SGD."""
    weight = model.weight.detach().clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=True)
    model.function(weight, x).square().mean().backward()
    optimizer.step()
    return weight.detach()


def trained(model: Layer, x: Tensor, example: Tensor | None = None) -> Tensor:
    step = capture_step(
        model, (x if example is None else example,), "sgd", lr=0.1, momentum=0.9, loss=squares
    )
    _, state = step.run(step.state_of(model), (x,))
    return state["parameter"]["weight"]


LAYOUTS = {
    "a copied transpose": lambda w, x: x @ w.t().contiguous(),
    "softplus of a transpose": lambda w, x: functional.softplus((x @ w.t()).t()),
    "selu of a transpose": lambda w, x: functional.selu((x @ w.t()).t()).t() @ w,
    "hardswish of a transpose": lambda w, x: functional.hardswish((x @ w.t()).t()),
    "position embeddings that are interpolated": lambda w, x: functional.interpolate(
        w.reshape(1, 1, 5, 4).permute(0, 3, 1, 2), size=(6, 2), mode="bicubic"
    ) * x.sum(),
    "as_strided": lambda w, x: x @ torch.as_strided(w.t().contiguous(), (4, 5), (5, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_lie_as_their_parameters(name: str):
    x, model = torch.randn(3, 4), Layer(LAYOUTS[name])
    assert trained(model, x).equal(trained_eagerly(model, x))


class Dropping(nn.Module):
    """Dropout of an image whose channels are next to each other in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).contiguous(memory_format=torch.channels_last)
        return functional.dropout(y, 0.3, self.training) * functional.dropout2d(y, 0.5).cos()


def test_dropout_draws_in_the_order_of_memory():
    torch.manual_seed(0)
    model, x = Dropping(), torch.randn(2, 3, 4, 5)
    forward, joint = capture_forward(model, (x,)), capture_joint(model, (x,), squares)

    def seeded(run: Any) -> Any:
        torch.manual_seed(5)
        return run()

    assert seeded(lambda: forward(x)).equal(seeded(lambda: model(x)))
    loss, *gradients = seeded(lambda: joint.module(*joint.flat_inputs(model, (x,))))
    expected = seeded(lambda: squares(model, (x,)))
    assert loss.equal(expected)
    for found, own in zip(gradients, torch.autograd.grad(expected, [*model.parameters()]),
                          strict=True):  # fmt: skip
        assert found.equal(own)


def test_a_batch_that_lies_otherwise_than_the_example():
    model, x = Layer(lambda w, x: x @ w.t().contiguous()), torch.randn(4, 3).t()
    assert trained(model, x, torch.randn(3, 4)).equal(trained_eagerly(model, x))


def test_what_is_right_is_not_copied():
    step = capture_step(Layer(lambda w, x: x @ w.t()), (torch.randn(3, 4),), loss=squares)
    found = step.module.graph.find_nodes(op="call_function", target=aten.clone.default)
    assert not found


def test_the_graph_says_how_values_lie():
    """Passes may rely on the strides in `meta`."""
    model, x = Layer(LAYOUTS["position embeddings that are interpolated"]), torch.randn(3, 4)
    joint = capture_joint(model, (x,), squares)
    found: list[tuple[str, bool]] = []

    class Check(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            value = super().run_node(n)
            if n.op == "call_function" and isinstance(value, Tensor):
                found.append((n.name, same_layout(value, n.meta["val"])))
            return value

    Check(joint.module).run(*joint.flat_inputs(model, (x,)))
    assert len(found) > 5 and all(same for _, same in found), found


def test_a_model_that_does_not_repeat_itself_is_refused():
    model = Layer(lambda w, x: x @ w.t() * random.random())
    for capture in (capture_joint, capture_forward):
        with pytest.raises(UnrepeatableError, match=r"each time(.|\n)*fix: take out of it"):
            capture(model, (torch.ones(3, 4),))


class Drawing(nn.Module):
    """Draws from a new generator for each call, or from one that is kept, deep inside."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.inner = nn.Module()
        self.inner.generator = torch.Generator().manual_seed(3) if kept else None

    def forward(self, x: Tensor) -> Tensor:
        generator = self.inner.generator or torch.Generator().manual_seed(3)
        return self.linear(x)[:, torch.randperm(6, generator=generator)]


@pytest.mark.parametrize("kept", [False, True])
def test_a_generator_of_the_models_own_is_refused(kept):
    """The first run of the graph was that of the model, and each later one another."""
    x = (torch.ones(3, 4),)
    expected = r"torch\.Generator of its own.* at .*self\.linear\(x\)(.|\n)*fix: draw before"
    for capture in (capture_joint, capture_forward):
        with pytest.raises(CaptureError, match=expected):
            capture(Drawing(kept), x)


def test_a_graph_that_is_another_function_is_refused():
    """As of code that asks whether it is traced."""
    factor = {False: 1.0, True: 1.01}
    model = Layer(lambda w, x: x @ w.t() * factor[torch.compiler.is_compiling()])
    with pytest.raises(CaptureError, match=r"traced or compiled: output '0' differs by"):
        capture_joint(model, (torch.ones(3, 4),))


def test_code_may_ask_for_values_of_its_own_constants():
    def forward(w: Tensor, x: Tensor) -> Tensor:
        rates = torch.linspace(0, 0.5, 3).tolist()
        sizes = torch.tensor([2, 3])
        sizes[0] = 4
        y = x @ w.t()[:, : sizes.max()] * rates[1]
        return y if (torch.arange(4) > 2).any() else -y

    model, x = Layer(forward), torch.randn(3, 4)
    assert trained(model, x).equal(trained_eagerly(model, x))


@pytest.mark.parametrize("write", ["zeros[0] = x.sum()", "zeros[:1].add_(x.sum())"])
def test_values_that_depend_on_inputs_are_not_known(write: str):
    def forward(w: Tensor, x: Tensor) -> Tensor:
        zeros = torch.zeros(3)
        exec(write, {"zeros": zeros, "x": x})
        return x @ w.t() * float(zeros.sum())

    with pytest.raises(CaptureError, match="value of a tensor, which is not known"):
        capture_joint(Layer(forward), (torch.ones(3, 4),))


def test_a_constant_of_the_model_is_not_written_while_tracing():
    model = Layer(lambda w, x: x @ w.t() * float(model.scale.mul_(1.0)[0]))
    model.scale = torch.full((2,), 2.0)
    capture_joint(model, (torch.ones(3, 4),))
    assert model.scale.tolist() == [2.0, 2.0]


def test_what_the_tracer_prints_is_kept(capfd: pytest.CaptureFixture[str]):
    def forward(w: Tensor, x: Tensor) -> Tensor:
        print("of the model", file=sys.stderr)
        offsets = torch.tensor([2, 3], dtype=torch.int32)
        return functional.grouped_mm(x, torch.stack([w.t(), w.t()]), offs=offsets)

    with pytest.raises(CaptureError, match="BF16") as raised:
        capture_joint(Layer(forward), (torch.ones(3, 4),))
    assert "failed while attempting" in raised.value.output
    printed = capfd.readouterr().err
    assert "failed while attempting" not in printed and "of the model" in printed


def test_an_error_of_the_model_goes_through_unchanged():
    with pytest.raises(CaptureError, match="own words"), tracing():
        raise CaptureError("own words")


def test_layouts():
    channels_last = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert layout_order(channels_last) == [0, 2, 3, 1]
    x = torch.randn(2, 3, 4, 5)
    there = relaid_like(x, channels_last)
    assert there.equal(x) and there.stride() == channels_last.stride()
    assert relaid_like(there, channels_last) is there
    assert relaid_like(x.transpose(0, 1), torch.ones(1, 1, 1, 1).expand(3, 2, 4, 5)).is_contiguous()
    assert same_layout(torch.ones(1, 3), torch.ones(3, 1).t())  # one row has no stride


def test_what_is_rounding():
    loss, weight = Slot("loss", ""), Slot("parameter", "w")
    moment = Slot("optimizer_state", "exp_avg.w")
    a = {loss: torch.tensor(1.0), weight: torch.ones(2), moment: torch.tensor([1.0, 1e-9])}
    noise = {**a, weight: torch.tensor([1.0, 1.01])}  # Adam has made much of a gradient of nothing
    assert first_difference(noise, a) is None
    assert first_difference({**a, weight: torch.tensor([1.01, 1.0])}, a) is not None
    assert first_difference({**a, loss: torch.tensor(1.001)}, a) == "loss differs by up to 0.001"
    small = {**a, loss: torch.tensor(1e-5)}
    assert first_difference({**a, loss: torch.tensor(1.1e-5)}, small) is not None
    infinite = {**a, loss: torch.tensor(-torch.inf)}
    assert first_difference(infinite, infinite) is None


class Flagged(nn.Module):
    """Computes something else while it is traced, as a model whose mask is left out eagerly."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y = y.clone() if is_traced() else y  # which changes nothing
        return y * 2 if is_traced() else y


def is_traced() -> bool:
    """As libraries ask."""
    return torch.compiler.is_compiling()


def test_a_model_that_computes_something_else_while_it_is_traced_is_refused_and_told_so():
    torch.manual_seed(0)
    model, batch = Flagged(), (torch.randn(2, 3),)
    for capture in (capture_forward, capture_joint):
        with pytest.raises(
            CaptureError, match=r"something else while it is traced(.|\n)*asks"
        ) as error:
            capture(model, batch)
        assert "return y * 2 if is_traced() else y" in str(error.value)


def test_a_model_that_fails_itself_is_not_taken_for_a_limit_of_the_capture() -> None:
    """Fake tensors of other dtypes may be multiplied, real ones not."""
    with pytest.raises(
        CaptureError, match=r"model itself fails on the example.*\n.*\n.*same dtype"
    ):
        capture_step(nn.Linear(4, 4).double(), (torch.ones(2, 4),), loss=lambda m, b: m(*b).sum())
