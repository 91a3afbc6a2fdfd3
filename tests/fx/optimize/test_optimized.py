"""The module that `GraphOptimizer` returns: how it is called, and what a call costs."""

from __future__ import annotations

import copy
import pickle
import sys
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.optimize.subjects import GraphOptimizer, Net, randn
from tinytorch.collector import collector_paused
from tinytorch.fx.optimize.optimized import OptimizedModuleError


def test_the_module_is_called_like_captured() -> None:
    model = Net().eval()
    module = GraphOptimizer(model, {"x": randn(2, 3, 8, 8)}, device="cpu", passes=[]).optimize()
    assert module(x=randn(2, 3, 8, 8)).keys() == {"logits", "features"}
    for args, kwargs, message in [
        ((randn(2, 3, 8, 8),), {}, r"captured as a call with \(x=...\)"),
        ((), {"y": randn(2, 3, 8, 8)}, "called with .* keywords y"),
        ((), {"x": randn(3, 3, 8, 8)}, r"float32\[3, 3, 8, 8\].*float32\[2, 3, 8, 8\]"),
        ((), {"x": randn(2, 3, 8, 8).double()}, "float64"),
        ((), {"x": randn(2, 3, 8, 8).requires_grad_()}, "does not compute"),
        ((), {"x": 1.0}, "float, not a tensor"),
    ]:
        with pytest.raises(OptimizedModuleError, match=message):
            module(*args, **kwargs)
    with pytest.raises(OptimizedModuleError, match="frozen for inference"):
        module.train()
    assert not module.eval().training


def test_the_input_check_calls_hardly_any_python() -> None:
    """It is in front of every call: a function for each input, and a few for all."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor) -> Tensor:
            return self.layer(ids) * mask + kinds

    batch = {name: randn(2, 4) for name in ("ids", "mask", "kinds")}
    module: Any = GraphOptimizer(Masked().eval(), batch, device="cpu", trials=1).optimize()
    expected = module._flat_call().expected
    calls: list[str] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    with collector_paused():  # whoever follows collections (hypothesis does) is called by them
        sys.setprofile(count)
        try:
            module._checked(expected, (), batch)
        finally:
            sys.setprofile(None)
    comprehensions = {"<dictcomp>"}  # a function of its own before Python 3.12
    assert sorted(set(calls) - comprehensions) == ["_checked", "_is_nested"]
    assert calls.count("_is_nested") == len(batch) and len(calls) <= 2 + len(batch)


def test_a_graph_that_is_edited_and_compiled_anew_is_the_one_that_runs() -> None:
    module: Any = GraphOptimizer(nn.Linear(4, 4).eval(), randn(2, 4), device="cpu").optimize()
    before = module(randn(2, 4))
    graph = module.graph_module.graph
    output = graph.output_node()
    with graph.inserting_before(output):
        output.args = ([graph.call_function(torch.neg, (output.args[0][0],))],)
    module.graph_module.recompile()
    assert module(randn(2, 4)).equal(-before)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_with_what_to_copy(copied: Any) -> None:
    optimized = GraphOptimizer(nn.Linear(4, 4).eval(), randn(2, 4), device="cpu").optimize()
    with pytest.raises(OptimizedModuleError, match=r"copy or save the model it was made of"):
        copied(optimized)
