from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.models import load_model
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.passes.conv_bn import ConvBatchNorm, folded
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.passes import PassManager

aten = torch.ops.aten
FROZEN = ForwardSemantics(frozen=True)


def shaken(model: nn.Module, seed: int = 0) -> nn.Module:
    """Batch norms with statistics and weights that are not those of the beginning."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.running_mean.normal_(0, 0.3, generator=generator)
                module.running_var.uniform_(0.5, 1.5, generator=generator)
                if module.affine:
                    module.weight.uniform_(0.5, 1.5, generator=generator)
                    module.bias.normal_(0, 0.3, generator=generator)
    return model


def run(model: nn.Module, x: Tensor, semantics: Any = FROZEN, decompose: bool = False) -> Any:
    with torch.no_grad():
        graph = capture_forward(model, (x,), decompose=decompose).graph
    graph, report = PassManager(["conv-bn", "dce"], semantics).run(graph)
    assert not report.failures, report
    return graph


def batch_norms(graph: torch.fx.Graph) -> int:
    return sum("batch_norm" in str(n.target) for n in graph.nodes if n.op == "call_function")


CASES = {
    "1d": (nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), (2, 3, 8)),
    "2d with groups": (nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.BatchNorm2d(6), (2, 4, 9, 8)),
    "2d without bias": (nn.Conv2d(4, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), (1, 4, 5, 5)),
    "2d padding by name": (nn.Conv2d(4, 6, 3, padding="same"), nn.BatchNorm2d(6), (1, 4, 5, 5)),
    "3d": (nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3), (1, 2, 4, 4, 4)),
    "not affine": (nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, affine=False), (1, 2, 4, 4)),
}


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_folds(name: str, decompose: bool) -> None:
    convolution, norm, shape = CASES[name]
    model = shaken(nn.Sequential(convolution, norm, nn.ReLU()).eval())
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    graph = run(model, x, decompose=decompose)
    assert batch_norms(graph) == 0
    with torch.no_grad():
        found = graph.owning_module(x)
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-6)
        assert not torch.equal(found, torch.relu(convolution(x)))  # the norm did something


@pytest.mark.slow
def test_155_pairs_in_resnet_152() -> None:
    example = load_model("hf:resnet152", batch=1, image=32)
    model = example.model.eval()
    with torch.no_grad():
        graph = capture_forward(model, example.inputs).graph
    assert len(ConvBatchNorm(FROZEN).analyze(graph)) == 155


@pytest.mark.parametrize("what", ["training", "weights may change", "other user", "transposed"])
def test_leaves_alone(what: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kind = nn.ConvTranspose2d if what == "transposed" else nn.Conv2d
            self.convolution, self.norm = kind(2, 3, 3), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.convolution(x)
            return self.norm(y) + (y if what == "other user" else 0)

    model = shaken(Model().train(what == "training"))
    semantics = TorchSemantics(frozen=False) if what == "weights may change" else FROZEN
    x = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    assert batch_norms(run(model, x, semantics)) == 1


@pytest.mark.parametrize("channels", [8, 5])
def test_a_convolution_without_a_batch_stays(channels: int) -> None:
    """What comes out, (channels, 8), is for the norm a batch with 8 channels."""
    model = nn.Sequential(nn.Conv1d(3, channels, 3, padding=1), nn.BatchNorm1d(8))
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    graph = run(shaken(model).eval(), x)
    assert batch_norms(graph) == 1


def test_statistics_that_the_graph_writes_are_no_constants() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            self.norm.running_mean.add_(1)
            return self.norm(self.convolution(x))

    x = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    assert batch_norms(run(shaken(Model().eval()), x)) == 1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.booleans(), st.booleans(), st.integers(1, 3))
def test_folded_is_the_formula(seed: int, has_bias: bool, is_affine: bool, groups: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x, w = (
        torch.randn(s, generator=g).double() for s in ((2, groups, 4, 4), (3 * groups, 1, 2, 2))
    )
    b, gamma, beta, mean, var = (torch.rand(3 * groups, generator=g).double() for _ in range(5))
    bias = b if has_bias else None
    if not is_affine:
        gamma = beta = None
    y = torch.conv2d(x, w, bias, groups=groups)
    expected = torch.batch_norm(y, gamma, beta, mean, var, False, 0.1, 1e-5, False)
    new_w, new_b = folded(w, bias, gamma, beta, mean, var, 1e-5)
    torch.testing.assert_close(torch.conv2d(x, new_w, new_b, groups=groups), expected)
