"""No-ops, dead statistics, GELU, channels-last."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.passes import PassManager

aten = torch.ops.aten
SEMANTICS = TorchSemantics()


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def after(
    graph: torch.fx.Graph, *passes: str, semantics: Any = SEMANTICS
) -> tuple[torch.fx.Graph, list[str]]:
    """The graph after passes, none of which failed, and the names of what it calls."""
    graph, report = PassManager(passes, semantics).run(graph)
    assert not report.failures, report
    return graph, [str(n.target) for n in graph.nodes if n.op == "call_function"]


def captured(function: Callable[..., Any], *inputs: Tensor) -> torch.fx.Graph:
    return capture_forward(Function(function).eval(), inputs).graph


# -- no-ops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.dropout(x + 1, 0.5, training=False),
        lambda x: functional.dropout(x + 1, 0.0, training=True),
        lambda x: (x + 1).to(torch.float32),
        lambda x: (x + 1).contiguous(),
        lambda x: (x + 1).to("cpu"),
        lambda x: (x + 1)[:],
        lambda x: (x + 1)[0:7],
    ],
)
def test_no_ops_go(function: Callable[[Tensor], Tensor]) -> None:
    _, calls = after(captured(function, randn(3, 4)), "no-ops")
    assert calls == ["aten.add.Tensor"]


def test_algebra_does_not_read_a_value_after_it_was_written() -> None:
    def negated_twice(x: Tensor) -> Tensor:
        y = x + 1
        before = -y
        y.add_(1)
        return -before * y

    _, calls = after(captured(negated_twice, randn(3, 4)), "algebra")
    assert calls.count("aten.neg.default") == 2


@pytest.mark.parametrize(
    ("function", "stays"),
    [
        (lambda x: (x + 1).to(torch.float64), "aten.to"),
        (lambda x: (x + 1).t().contiguous(), "aten.contiguous.default"),
        (lambda x: (x + 1).to(torch.float32, copy=True), "aten.to"),
        (lambda x: (x + 1)[1:], "aten.slice.Tensor"),
        (lambda x: functional.dropout(x + 1, 0.5, training=True), "aten.dropout.default"),
    ],
)
def test_what_does_something_stays(function: Callable[[Tensor], Tensor], stays: str) -> None:
    _, calls = after(captured(function, randn(3, 4)), "no-ops")
    assert any(call.startswith(stays) for call in calls)


def test_an_input_that_is_returned_is_the_input_as_before() -> None:
    graph = captured(lambda x: functional.dropout(x, 0.5, training=False), randn(3))
    x = randn(3, seed=1)
    before = graph.owning_module(x) is x
    new, _ = after(graph, "no-ops")
    assert (new.owning_module(x) is x) == before


# -- dead statistics -------------------------------------------------------------------------------


def traced(function: Callable[..., Any], *inputs: Tensor) -> torch.fx.Graph:
    graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    for node, x in zip(graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta["example"] = x
    return graph


def training_norm(x: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return aten._native_batch_norm_legit_functional(x, None, None, m, v, True, 0.1, 1e-5)


STATISTICS: list[tuple[str, Callable[..., Any], tuple[Tensor, ...], str]] = [
    ("layer norm", lambda x: aten.native_layer_norm(x, [4], None, None, 1e-5)[0],
     (randn(2, 3, 4, 4),), "aten.layer_norm.default"),
    ("pool", lambda x: aten.max_pool2d_with_indices(x, [2, 2])[0],
     (randn(2, 3, 4, 4),), "aten.max_pool2d.default"),
    ("batch norm", lambda x, m, v: aten._native_batch_norm_legit_no_training(
        x, None, None, m, v, 0.1, 1e-5)[0],
     (randn(2, 3, 4, 4), randn(3), randn(3).abs()), "aten.batch_norm.default"),
    ("batch norm in training", lambda x, m, v: training_norm(x, m, v)[:3],
     (randn(2, 3, 4, 4), randn(3), randn(3).abs()), "aten._native_batch_norm_legit.no_stats"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "inputs", "cheaper"), STATISTICS)
def test_dead_statistics(
    name: str, function: Callable[..., Any], inputs: tuple[Tensor, ...], cheaper: str
) -> None:
    graph = traced(function, *inputs)
    # statistics that come in cannot be differentiated
    semantics = ForwardSemantics(frozen="batch norm" in name)
    _, calls = after(graph, "dce", "dead-statistics", "dce", semantics=semantics)
    assert cheaper in calls


def test_statistics_that_are_used_stay() -> None:
    graph = traced(lambda x: aten.max_pool2d_with_indices(x, [2, 2]), randn(1, 1, 4, 4))
    _, calls = after(graph, "dce", "dead-statistics")
    assert "aten.max_pool2d_with_indices.default" in calls
    graph = traced(lambda x, m, v: training_norm(x, m, v)[3], randn(2, 3), randn(3), randn(3).abs())
    _, calls = after(graph, "dce", "dead-statistics", semantics=ForwardSemantics(frozen=True))
    assert "aten._native_batch_norm_legit_functional.default" in calls


# -- GELU ------------------------------------------------------------------------------------------

ROOT = math.sqrt(2 / math.pi)
GELUS = {
    "transformers": (
        lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0)))),
        "tanh",
    ),
    "factor behind": (lambda x: x * (1.0 + torch.tanh((x + x**3 * 0.044715) * ROOT)) * 0.5, "tanh"),
    "erf": (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "none"),
    "erf, multiplied": (lambda x: x * (0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))), "none"),
}


@pytest.mark.parametrize("name", GELUS)
def test_gelu(name: str) -> None:
    function, approximate = GELUS[name]
    new, calls = after(captured(function, randn(5, 7)), "gelu", "dce")
    assert calls == ["aten.gelu.default"]
    (node,) = new.find_nodes(op="call_function", target=aten.gelu.default)
    assert node.kwargs["approximate"] == approximate


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: 0.5 * x * (1.0 + torch.erf(y / math.sqrt(2.0))),
        lambda x, y: 0.5 * x * (1.0 + torch.erf(x / 1.5)),
        lambda x, y: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.05 * torch.pow(x, 3.0)))),
    ],
)
def test_almost_gelu(function: Callable[..., Tensor]) -> None:
    _, calls = after(captured(function, randn(3), randn(3, seed=1)), "gelu")
    assert "aten.gelu.default" not in calls


# -- channels-last ---------------------------------------------------------------------------------


def test_channels_last() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.Flatten(1)
    ).eval()  # fmt: skip
    x = randn(2, 3, 16, 16)
    frozen = ForwardSemantics(frozen=True)
    with torch.no_grad():
        graph = capture_forward(model, (x,)).graph
        new, _ = after(graph, "channels-last", "dce", semantics=frozen)
        convolutions = new.find_nodes(op="call_function", target=aten.conv2d.default)
        for node in convolutions:
            assert node.meta["val"].is_contiguous(memory_format=torch.channels_last)
        result = new.owning_module(x)
    assert result.stride() == model(x).stride()
    again, report = PassManager(["channels-last"], frozen).run(new)
    assert again is new and not report.failures


def test_channels_last_with_an_open_batch_and_a_result_in_another_order() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 5, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.convolution(x).permute(2, 0, 3, 1) + 0

    model = Model().eval()
    with torch.no_grad():
        graph = capture_forward(model, (randn(2, 3, 4, 7),), dynamic_dims=(0,)).graph
        graph, report = PassManager(["channels-last"], ForwardSemantics(frozen=True)).run(graph)
        assert not report.failures and report.results[0].changed, report
        for size in (2, 5):
            x = randn(size, 3, 4, 7)
            found, expected = graph.owning_module(x), model(x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert found.stride() == expected.stride()


def test_channels_last_needs_weights_that_stay() -> None:
    graph = capture_forward(nn.Conv2d(3, 8, 3).eval(), (randn(2, 3, 8, 8),)).graph
    new, _ = after(graph, "channels-last")
    assert new is graph


# -- constant folding ------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [False, True])
def test_folding_knows_buffers_that_are_written(writes: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            if writes:
                self.count.add_(1)
            return x * (self.count * 2).exp()

    graph = capture_forward(Model().eval(), (randn(3),)).graph
    _, calls = after(graph, "fold", "dce", semantics=ForwardSemantics(frozen=True))
    assert ("aten.exp.default" in calls) == writes
