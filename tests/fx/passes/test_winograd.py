from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.passes.layer_passes import FROZEN, randn, run_pass
from tinytorch.fx.optimize.optimizer import GraphOptimizer as Optimizer
from tinytorch.fx.passes.packed import Epilogue, WinogradConvolution
from tinytorch.fx.passes.winograd import Winograd

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch is built without oneDNN"
)
GraphOptimizer = functools.partial(Optimizer, keep_slower=True)  # tiny models are not made faster


def run(model: nn.Module, *inputs: Tensor, m: int = 2) -> Counter[str]:
    """What the graph of a model calls with all that can be changed; checks its result."""
    return run_pass(Winograd(FROZEN, only_if_faster=False, m=m), model, *inputs)


@pytest.mark.parametrize("m", [2, 4])
def test_takes_convolutions_with_their_relu(m: int) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 4, 3, padding=1, bias=False)
    )
    assert run(model, randn(2, 3, 7, 9), m=m) == {
        "winograd_convolution_relu": 1, "winograd_convolution_none": 1, "aten.clone.default": 1
    }  # fmt: skip


def test_adds_the_residual_on_the_way() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return (x + self.layer(x)).relu()

    found = run(Block(), randn(1, 4, 6, 6))
    assert found["winograd_convolution_relu"] == 1 and "aten.add.Tensor" not in found


def test_leaves_functions_that_it_does_not_know() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.SiLU())
    found = run(model, randn(1, 3, 6, 6))
    assert found["winograd_convolution_none"] == 1 and found["aten.silu.default"] == 1


@pytest.mark.parametrize(
    "figures",
    [{"stride": 2}, {"padding": 0}, {"dilation": 2, "padding": 2}, {"groups": 2}, {"padding": 2}],
)
def test_other_convolutions_stay(figures: dict[str, Any]) -> None:
    model = nn.Conv2d(4, 4, 3, **{"padding": 1, **figures})
    assert set(run(model, randn(1, 4, 9, 9))) == {"aten.conv2d.default"}


@pytest.mark.parametrize("size", [1, 5])
def test_other_kernels_stay(size: int) -> None:
    model = nn.Conv2d(4, 4, size, padding=1)
    assert set(run(model, randn(1, 4, 9, 9))) == {"aten.conv2d.default"}


def test_an_empty_batch() -> None:
    layer = WinogradConvolution(randn(4, 3, 3, 3), None, 2, Epilogue(unary="relu"))
    assert layer(randn(0, 3, 5, 5)).shape == (0, 4, 5, 5)


def test_the_optimizer_holds_it_to_the_error_of_the_model() -> None:
    model = nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)
    ).eval()  # fmt: skip
    passes = [Winograd(FROZEN, only_if_faster=False), "onednn"]
    optimizer = GraphOptimizer(model, randn(1, 8, 20, 20), passes, device="cpu", trials=1)
    module = optimizer.optimize()
    targets = [n.target for n in module.graph_module.graph.nodes]
    assert sum(isinstance(t, WinogradConvolution) for t in targets) == 2
    accuracy = optimizer.report().accuracy
    assert accuracy is not None and 0 < accuracy.optimized < 2 * accuracy.original


def test_it_takes_no_more_threads_than_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, seen = WinogradConvolution(randn(4, 3, 3, 3), None, 2, Epilogue()), []
    monkeypatch.setattr(layer.filter, "convolve", lambda x, y, most: seen.append(most))
    layer(randn(2, 3, 5, 5))
    assert seen == [torch.get_num_threads()]
