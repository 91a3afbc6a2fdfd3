"""The module that `GraphOptimizer` returns: how it is called, and what a call costs."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.optimize.subjects import GraphOptimizer, Net, randn
from tinytorch.collector import collector_paused
from tinytorch.fx.optimize.captured_state import ModelParts
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


class Masked(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        return x * scale if mask is None else x * mask * scale


@pytest.mark.parametrize(
    "name, other", [("mask", torch.zeros(4)), ("scale", 2.0), ("scale", True), ("scale", 3)]
)
def test_an_argument_that_is_no_tensor_is_that_of_the_capture(name: str, other: Any) -> None:
    batch = {"x": torch.arange(4), "mask": None, "scale": 2}
    module = GraphOptimizer(Masked().eval(), batch, device="cpu").optimize()
    assert module(**batch).tolist() == [0, 2, 4, 6]
    with pytest.raises(OptimizedModuleError, match=f"{name} was .*, but is "):
        module(**{**batch, name: other})


class Reader(nn.Module):
    """Reads memory in order, which is another order where the input is transposed."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_strided(x.contiguous(), (3,), (1,)) + 0


class Writer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2).contiguous().add_(1).view(-1)


def transposed(x: Tensor) -> Tensor:
    """The same values in another memory layout."""
    return torch.empty(x.t().shape).t().copy_(x)


@pytest.mark.parametrize("dims", [(), (0,)])
@pytest.mark.parametrize("frozen", [False, True])
def test_an_input_in_another_layout(dims: tuple[int, ...], frozen: bool) -> None:
    model = Reader()
    module = GraphOptimizer(
        model, (randn(3, 4),), device="cpu", frozen=frozen, dynamic_dims=dims, keep_slower=True
    ).optimize()
    for size in (3, 5) if dims else (3,):
        x = transposed(randn(size, 4, seed=1)).requires_grad_(not frozen)
        torch.testing.assert_close(module(x), model(x), rtol=0, atol=0)
        if not frozen:
            found, expected = (torch.autograd.grad(f(x).sum(), x)[0] for f in (module, model))
            assert torch.equal(found, expected)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_an_input_in_another_layout_is_written(context: Any) -> None:
    module = GraphOptimizer(
        Writer().eval(), (randn(3, 4),), device="cpu", keep_slower=True
    ).optimize()
    x = transposed(randn(3, 4, seed=1))
    with context():
        assert torch.equal(module(x), (randn(3, 4, seed=1) * 2 + 1).flatten())
    # written as what the graph was optimized for: `contiguous` makes no copy of that
    assert torch.equal(x, randn(3, 4, seed=1) * 2 + 1)


class TwoConvolutions(nn.Module):
    """The first is folded, and the second stays."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3, groups=2)
        )
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.layers(x) + self.calls


def test_a_frozen_module_refuses_weights_that_have_changed() -> None:
    model, x = TwoConvolutions().eval(), randn(2, 3, 8, 8)
    module = GraphOptimizer(model, (x,), ["conv-bn"], device="cpu", keep_slower=True).optimize()
    with torch.no_grad():
        first = model(x)
        torch.testing.assert_close(module(x), first + 1)  # a buffer that it writes may change
        model.load_state_dict(TwoConvolutions().state_dict())
    with pytest.raises(OptimizedModuleError, match=r"have changed .* optimize the model again"):
        module(x)


def test_a_frozen_module_needs_its_model_no_more() -> None:
    model, x = TwoConvolutions().eval(), randn(2, 3, 8, 8)
    module = GraphOptimizer(model, (x,), ["conv-bn"], device="cpu", keep_slower=True).optimize()
    with torch.no_grad():
        expected = model(x) + 1
    del model
    torch.testing.assert_close(module(x), expected)


def normed(frozen: bool) -> tuple[nn.Sequential, Any]:
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2), nn.Sequential(),
        nn.Sequential(nn.ReLU()),
    )  # fmt: skip
    return model, GraphOptimizer(model, randn(3, 4), device="cpu", frozen=frozen).optimize()


CHANGES: list[Callable[[nn.Sequential], Any]] = [
    lambda model: model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True),
    lambda model: setattr(model, "3", nn.Linear(4, 2)),
    lambda model: setattr(model[0], "bias", None),
    lambda model: model.append(nn.ReLU()),
    lambda model: model[4].append(nn.ReLU()),  # what had no layers, as where a model grows
    lambda model: model[4].append(model[5].pop(0)),  # all are there, in the same order
    lambda model: model[0].__init__(4, 4),
    lambda model: nn.utils.parametrizations.weight_norm(model[0]),
    lambda model: model.double().float(),
]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_with_other_parts_is_refused(change: Any, frozen: bool) -> None:
    model, module = normed(frozen)
    module(randn(3, 4))
    change(model)
    with pytest.raises(OptimizedModuleError, match="use the old ones: optimize the model again"):
        module(randn(3, 4))


def test_the_check_of_the_parts_calls_no_python_for_each() -> None:
    """ResNet-152 has 830 layers, and each call of it checks all of them."""
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(100)))
    parts, calls = ModelParts(model), []
    with collector_paused():
        sys.setprofile(lambda frame, event, _: calls.append(event))
        try:
            parts.check()
        finally:
            sys.setprofile(None)
    assert calls.count("call") < 10


def test_a_part_that_is_gone_is_a_change_although_another_has_its_address() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    parts = ModelParts(model)
    del model[0].weight
    model[0].weight = nn.Parameter(torch.ones(1, 1))
    parts._addresses = parts._present_addresses()  # as if it were in the memory of the old one
    with pytest.raises(OptimizedModuleError, match="a Linear of the model has another 'weight'"):
        parts.check()


def test_a_part_in_another_mode_is_refused() -> None:
    model, module = normed(frozen=False)
    model[1].eval()
    with pytest.raises(OptimizedModuleError, match="'1' of the model is in evaluation mode, and w"):
        module(randn(3, 4))
    model.eval()
    with pytest.raises(OptimizedModuleError, match="the model is in evaluation mode, and was capt"):
        module(randn(3, 4))
    torch.testing.assert_close(module.eval()(randn(3, 4)), model(randn(3, 4)))
    assert module.train()(randn(3, 4)).requires_grad


def test_a_part_that_was_captured_in_another_mode_stays_so() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model[1].eval()
    module = GraphOptimizer(model, randn(3, 4), device="cpu").optimize()
    assert [part.training for part in model.modules()] == [True, True, False]
    torch.testing.assert_close(module(randn(3, 4)), model(randn(3, 4)))
    module.eval()
    module.train()  # all parts, as in eager PyTorch
    with pytest.raises(OptimizedModuleError, match="'1' of the model is in training mode, and was"):
        module(randn(3, 4))
