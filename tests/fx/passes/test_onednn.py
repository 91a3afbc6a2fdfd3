from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.passes.layer_passes import FROZEN, FUNCTIONS, ResidualMlp, randn
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.passes.onednn import OneDnn
from tinytorch.fx.passes.packed import PackedConvolution, PackedLinear
from tinytorch.graph.passes import PassManager

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch is built without oneDNN"
)


def run(model: nn.Module, *inputs: Tensor, semantics: Any = FROZEN) -> torch.fx.Graph:
    """The graph of a model with all that can be packed."""
    with torch.no_grad():
        graph = capture_forward(model.eval(), inputs).graph
    graph, report = PassManager([OneDnn(semantics, only_if_faster=False), "dce"], semantics).run(
        graph
    )
    assert not report.failures, report
    with torch.no_grad():
        found, expected = graph.owning_module(*inputs), model(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.stride() == expected.stride()
    return graph


def calls(graph: torch.fx.Graph) -> Counter[str]:
    return Counter(
        n.target.__name__
        if isinstance(n.target, PackedLinear | PackedConvolution)
        else str(n.target).replace(".default", "").replace(".Tensor", "")
        for n in graph.nodes
        if n.op == "call_function"
    )


@pytest.mark.parametrize(("function", "name"), FUNCTIONS)
@pytest.mark.parametrize("layer", ["linear", "convolution"])
def test_applies_functions_on_the_way(layer: str, function: Any, name: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 16) if layer == "linear" else nn.Conv2d(3, 8, 3, stride=2)

        def forward(self, x: Tensor) -> Tensor:
            return function(self.layer(x))

    x = randn(2, 5, 8) if layer == "linear" else randn(2, 3, 9, 8)
    found = calls(run(Model(), x))
    assert found.pop("aten.clone", 0) == (layer == "convolution")  # the result's layout
    assert found == {f"packed_{layer}_{name}": 1}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_adds_the_residual_on_the_way(bias: bool, inplace: bool, relu: bool) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(4, 4, 3, padding=1, bias=bias)
            self.second = nn.Conv2d(4, 4, 1, bias=bias)

        def forward(self, x: Tensor) -> Tensor:
            y = self.second(self.first(x).relu())
            y = y.add_(x) if inplace else x + y
            return y.relu() if relu else y

    graph = run(Block(), randn(2, 4, 6, 6))
    found = calls(graph)
    found.pop("aten.clone")
    last = "relu" if relu else "none"
    assert found == Counter(["packed_convolution_relu", f"packed_convolution_{last}"])


@pytest.mark.parametrize("keeps", ["", "read later", "viewed", "returned"])
def test_writes_over_what_is_added_only_if_that_dies(keeps: str) -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(4, 4, 1)
            self.first = nn.Conv2d(4, 4, 3, padding=1)
            self.second = nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x).relu()
            seen = x[:1] if keeps == "viewed" else x
            y = (self.second(self.first(x).relu()) + x).relu()
            if keeps in ("read later", "viewed"):
                y = y * seen
            return torch.stack([y, x]) if keeps == "returned" else y.exp()

    found = calls(run(Blocks(), randn(2, 4, 6, 6)))
    assert found["packed_convolution_relu_"] == (keeps == "")
    assert sum(n for name, n in found.items() if name.startswith("packed")) == 3


def test_a_reader_that_moves_behind_keeps_what_is_added() -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.side = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
            self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x).relu()
            side = self.side(x)
            y = (self.second(self.first(x).relu()) + x).relu()
            return (side.relu() * y).exp()  # the convolution moves to its relu

    assert calls(run(Blocks(), randn(2, 4, 6, 6))) == {
        "packed_convolution_relu": 4, "aten.mul": 1, "aten.exp": 1, "aten.clone": 1
    }  # fmt: skip


def test_does_not_write_over_its_own_input() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.layer = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x).relu()
            return (self.layer(x) + x).exp()

    assert calls(run(Block(), randn(1, 4, 6, 6)))["packed_convolution_none"] == 1


def test_adds_to_linear() -> None:
    assert calls(run(ResidualMlp(), randn(3, 8))) == Counter(
        ["packed_linear_gelu", "packed_linear_none"]
    )


def test_addmm_with_a_transposed_weight() -> None:
    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(randn(8, 6)), nn.Parameter(randn(6, seed=1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(self.bias, x, self.weight).relu()

    assert calls(run(Conv1D(), randn(5, 8, seed=2))) == {"packed_linear_relu": 1}


@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, nn.functional.gelu])
def test_only_relu_is_applied_to_a_sum(function: Any) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return function(self.convolution(x) + x)

    graph = run(Block(), randn(2, 4, 6, 6))
    assert calls(graph)["packed_convolution_none"] == 1


def test_two_users_keep_the_value() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            return y.relu() + y

    assert calls(run(Model(), randn(4, 8))) == {
        "packed_linear_none": 1, "aten.relu": 1, "aten.add": 1
    }  # fmt: skip


def test_does_not_read_later_what_is_written_in_between() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = x + 0.5
            y = self.layer(x)
            x.mul_(2)
            return y.relu() + x

    assert calls(run(Model(), randn(4, 8)))["packed_linear_none"] == 1


def test_broadcast_addition_stays() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.layer(x) + y

    assert calls(run(Model(), randn(4, 8), randn(1, 8)))["aten.add"] == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_stay(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(dtype).eval()
    with torch.no_grad():
        graph = capture_forward(model, (randn(2, 4).to(dtype),)).graph
    assert OneDnn(FROZEN).analyze(graph) == []


def test_weights_that_may_change_stay() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    graph = capture_forward(model, (randn(2, 4),)).graph
    assert OneDnn(ForwardSemantics(frozen=False)).analyze(graph) == []


def test_views_of_a_result_in_another_layout() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).view(2, 144)

    assert calls(run(Model(), randn(2, 3, 6, 6)))["aten.reshape"] == 1


def test_open_batch() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    with torch.no_grad():
        graph = capture_forward(model, (randn(3, 8),), dynamic_dims=(0,)).graph
        packed = OneDnn(FROZEN, only_if_faster=False)
        graph, report = PassManager([packed, "dce"], FROZEN).run(graph)
        assert calls(graph)["packed_linear_gelu"] == 1, report
        x = randn(7, 8, seed=3)
        torch.testing.assert_close(graph.owning_module(x), model(x))
