"""Runs a pass that replaces nodes by kernels, and checks what the graph then computes."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn import functional

from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.optimize.verify import ForwardSemantics
from tinytorch.fx.passes.autotune import AutotunedPass
from tinytorch.fx.passes.strides import KERNELS
from tinytorch.graph.passes import PassManager

FROZEN = ForwardSemantics(frozen=True)

#: Functions that are applied on the way, with oneDNN's names for them.
FUNCTIONS = [
    (functional.relu, "relu"),
    (functional.gelu, "gelu"),
    (lambda x: functional.gelu(x, approximate="tanh"), "gelu"),
    (torch.sigmoid, "sigmoid"),
    (torch.tanh, "tanh"),
    (functional.silu, "swish"),
    (torch.relu_, "relu"),
]


class ResidualMlp(nn.Module):
    """Two linear layers beside what they add to."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(x)))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run_pass(a_pass: AutotunedPass, model: nn.Module, *inputs: Tensor) -> Counter[str]:
    """What the graph of a model calls after a pass; checks its result."""
    with torch.no_grad():
        graph = capture_forward(model.eval(), inputs).graph
    graph, report = PassManager([a_pass, "dce"], a_pass.semantics).run(graph)
    assert not report.failures, report
    with torch.no_grad():
        found, expected = graph.owning_module(*inputs), model(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.stride() == expected.stride()
    return Counter(
        n.target.__name__ if isinstance(n.target, KERNELS) else str(n.target)
        for n in graph.nodes
        if n.op == "call_function"
    )
