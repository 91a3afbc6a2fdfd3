from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.passes.layer_passes import FROZEN, FUNCTIONS, ResidualMlp, randn, run_pass
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.passes import prepacked_linear
from tinytorch.fx.passes.packed import Epilogue, PrepackedLinear
from tinytorch.fx.passes.prepacked_linear import PrepackedLinears

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch is built without oneDNN"
)


def run(model: nn.Module, *inputs: Tensor, semantics: Any = FROZEN) -> Counter[str]:
    """What the graph of a model calls with all that can be changed; checks its result."""
    return run_pass(PrepackedLinears(semantics, only_if_faster=False), model, *inputs)


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize(("function", "name"), FUNCTIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_applies_functions_on_the_way(function: Any, name: str, bias: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(9, 21, bias=bias)

        def forward(self, x: Tensor) -> Tensor:
            return function(self.layer(x))

    assert run(Model(), 4 * randn(2, 5, 9)) == {f"prepacked_linear_{name}": 1}


def test_adds_the_residual_on_the_way() -> None:
    assert run(ResidualMlp(), randn(3, 2, 8)) == {
        "prepacked_linear_gelu": 1,
        "prepacked_linear_none": 1,
    }


@pytest.mark.parametrize("is_transposed", [True, False])
def test_inputs_of_any_layout(is_transposed: bool) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = x.transpose(0, 1) if is_transposed else x[:, ::2]
            return x + self.layer(x)

    found = run(Block(), randn(6, 4, 8))
    assert found["prepacked_linear_none"] == 1
    assert found["aten.add.Tensor"] == 1  # whose result is stored as x is


def test_what_else_reads_a_result_still_sees_it() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            z = self.layer(x)
            return z.relu() + z + self.layer(x + y)

    found = run(Model(), randn(4, 8), randn(1, 8))
    assert found["aten.relu.default"] == 1 and found["prepacked_linear_none"] == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_stay(dtype: torch.dtype) -> None:
    assert run(nn.Linear(4, 4).to(dtype), randn(3, 4).to(dtype)) == {"aten.linear.default": 1}


def test_convolutions_and_empty_weights_stay() -> None:
    assert run(nn.Conv2d(3, 4, 1), randn(1, 3, 5, 5)) == {"aten.conv2d.default": 1}
    empty = nn.Linear(4, 3)
    empty.weight = nn.Parameter(torch.empty(0, 4))
    empty.bias = nn.Parameter(torch.empty(0))
    assert run(empty, randn(2, 4)) == {"aten.linear.default": 1}


def test_weights_that_change_stay() -> None:
    assert run(nn.Linear(4, 4), randn(3, 4), semantics=ForwardSemantics(frozen=False)) == {
        "aten.linear.default": 1
    }


def test_nothing_changes_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked_linear, "find_spec", lambda name: None)
    assert run(nn.Linear(4, 4), randn(3, 4)) == {"aten.linear.default": 1}


def test_an_empty_batch_and_one_of_another_size() -> None:
    layer = PrepackedLinear(randn(4, 3), randn(4), Epilogue(unary="relu"))
    assert layer(randn(0, 5, 3)).shape == (0, 5, 4)
    assert layer(randn(3)).shape == (4,)


@pytest.mark.parametrize("answers", [[True, True], [True, False], [False]])
def test_it_must_beat_the_layer_and_onednn(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool]
) -> None:
    left = list(answers)
    monkeypatch.setattr("tinytorch.fx.passes.layers.is_faster", lambda new, old: left.pop(0))
    found = run_pass(PrepackedLinears(FROZEN), nn.Linear(8, 8), randn(4, 8))
    assert found["prepacked_linear_none"] == all(answers)
    assert not left


@pytest.mark.parametrize(("least", "timed"), [(1, 1), (2 * 8 * 8 * 4, 2), (1 << 20, 3)])
def test_layers_of_a_kind_are_timed_together(
    monkeypatch: pytest.MonkeyPatch, least: int, timed: int
) -> None:
    """As many as have weights that no cache holds, and all of them are changed."""
    called: list[Any] = []

    def is_faster(new: Any, old: Any) -> bool:
        old()
        called.clear()
        new()
        return True

    original = PrepackedLinear.__call__

    def call(self: PrepackedLinear, *xs: Tensor) -> Tensor:
        called.append(self)
        return original(self, *xs)

    monkeypatch.setattr(PrepackedLinear, "__call__", call)
    monkeypatch.setattr("tinytorch.fx.passes.layers.is_faster", is_faster)
    monkeypatch.setattr("tinytorch.fx.passes.layers.LEAST_BYTES", least)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])
    with torch.no_grad():
        graph = capture_forward(model.eval(), (randn(4, 8),)).graph
        a_pass = PrepackedLinears(FROZEN)
        assert a_pass.transform(graph, a_pass.analyze(graph))
    assert len(set(called)) == timed
    layers = [n.target for n in graph.nodes if isinstance(n.target, PrepackedLinear)]
    assert len(set(layers)) == 3  # each over its own weight


def test_it_takes_no_more_threads_than_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, seen = PrepackedLinear(randn(4, 3), None, Epilogue()), []
    monkeypatch.setattr(
        layer.weight, "multiply", lambda x, out, other, most_threads: seen.append(most_threads)
    )
    layer(randn(2, 3))
    assert seen == [torch.get_num_threads()]
