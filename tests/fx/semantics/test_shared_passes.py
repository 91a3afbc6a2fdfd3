"""The passes that both worlds share, on PyTorch's graphs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.fx import Node

from tests.fx.semantics.subjects import MOSTLY_SLOW, NAMES, SEMANTICS
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.models import load_model
from tinytorch.fx.semantics.semantics import FusedFunction, TorchSemantics
from tinytorch.graph.passes import PassManager

aten = torch.ops.aten


def count(graph: Any) -> Counter[str]:
    return Counter(str(n.target) for n in graph.nodes if n.op == "call_function")


@pytest.mark.slow
@pytest.mark.parametrize("name", MOSTLY_SLOW)
def test_passes_on_steps_change_no_bit(name: str):
    e = load_model(name, small=True, sequence=8, image=32)
    step = capture_step(e.model, e.batch, "adam")
    passes = ["algebra", "cse", "dce", "fold", "layout", "dce"]
    graph, report = PassManager(passes, SEMANTICS, trials=2).run(step.module.graph)
    assert not report.failures
    before, after = count(step.module.graph), count(graph)
    assert after.total() < before.total()
    assert before["aten.detach.default"] > 10 and after["aten.detach.default"] == 0
    for clone in graph.find_nodes(op="call_function", target=aten.clone.default):
        source, copy = clone.args[0].meta["val"], clone.meta["val"]
        assert source.stride() != copy.stride()  # it is another layout that is wanted
    assert all(n.users for n in graph.nodes if n.op == "call_function" and SEMANTICS.is_pure(n))
    random = sum(map(SEMANTICS.is_random, step.module.graph.nodes))
    assert sum(map(SEMANTICS.is_random, graph.nodes)) == random
    _, report = PassManager(passes, SEMANTICS, trials=0).run(graph)
    assert not any(result.changed for result in report.results), str(report)
    assert count(step.module.graph) == before  # passes work on copies


def removed(graph: Any, *passes: str) -> Counter[str]:
    changed, report = PassManager(passes, SEMANTICS, trials=0).run(graph)
    assert not report.failures
    return count(graph) - count(changed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step", "forward"),
    [
        ("hf:gpt2", (154, 41), (4, 8, 36)),
        pytest.param("hf:bert-base", (207, 61), (4, 4, 18), marks=pytest.mark.exhaustive),
    ],
)
def test_what_passes_remove_from_twelve_layers(name: str, step: Any, forward: Any):
    """As many nodes as in full size: dead ones, common subexpressions, constants."""
    e = load_model(name, small=True, layers=12)
    graph = capture_step(e.model, e.batch, "adam").module.graph
    assert tuple(removed(graph, p).total() for p in ("dce", "cse")) == step
    left = count(graph) - removed(graph, "algebra")
    assert not any("detach" in name or "alias" in name for name in left)
    graph = capture_forward(e.model.eval(), e.inputs).graph
    assert tuple(removed(graph, p).total() for p in ("dce", "cse", "fold")) == forward


@pytest.mark.exhaustive
def test_what_passes_remove_from_resnet152():
    e = load_model("hf:resnet152")
    graph = capture_step(e.model, e.batch, "adam").module.graph
    assert removed(graph, "dce").total() == 780
    # the empty reserves of batch norm are all that is alike, and they are dead
    assert removed(graph, "cse") == {"aten.empty.memory_format": 154}
    found = removed(graph, "algebra")
    assert found["aten.clone.default"] == 465 == count(graph)["aten.clone.default"]
    assert found["aten.detach.default"] == count(graph)["aten.detach.default"]
    assert (found["aten.view.default"], found["aten.t.default"]) == (3, 2)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_passes_on_forward_graphs(name: str, training: bool):
    e = load_model(name, small=True, sequence=8, image=32)
    graph = capture_forward(e.model.train(training), e.inputs).graph
    for node in graph.find_nodes(op="placeholder"):
        node.meta["example"] = e.inputs[node.meta["name"]]
    buffers = {n: b.clone() for n, b in e.model.named_buffers()}
    passes = ["algebra", "cse", "fold", "dce"]
    changed, report = PassManager(passes, SEMANTICS, trials=2).run(graph)
    assert not report.failures, str(report)
    if name != "hf:resnet152":
        assert count(changed).total() < count(graph).total()
    assert all(b.equal(buffers[n]) for n, b in e.model.named_buffers())


@pytest.mark.slow
def test_fusion_too():
    e = load_model("hf:gpt2", small=True, sequence=8)
    step = capture_step(e.model, e.batch, "sgd")
    graph, report = PassManager(["fusion"], SEMANTICS, trials=1).run(step.module.graph)
    assert not report.failures, str(report)
    fused = [n for n in graph.nodes if isinstance(n.target, FusedFunction)]
    assert fused and all(SEMANTICS.is_pure(n) and "val" in n.meta for n in fused)


def cse(function: Any, *examples: Tensor) -> tuple[Any, Any]:
    """The function as a graph, and the same after CSE."""
    module = torch.fx.experimental.proxy_tensor.make_fx(function)(*examples)
    graph, report = PassManager(["cse", "dce"], SEMANTICS, trials=2).run(module.graph)
    assert not report.failures, str(report)
    graph.owning_module.recompile()
    return module, graph.owning_module


def test_cse_tells_number_types_apart():
    before, after = cse(lambda x: (x * 2, x * 2.0, x * True, x * 2), torch.arange(3))
    assert [t.dtype for t in after(torch.arange(3))] == [t.dtype for t in before(torch.arange(3))]
    assert count(after.graph)["aten.mul.Tensor"] == 4  # the last is a result of its own


def test_cse_keeps_random_numbers_apart():
    before, after = cse(lambda x: torch.rand_like(x) + torch.rand_like(x), torch.ones(3))
    assert count(after.graph) == count(before.graph)


def test_cse_keeps_copies_apart_that_are_written():
    def function(x: Tensor) -> Tensor:
        a, b = x.clone(), x.clone()
        a.add_(1)
        return torch.stack([a, b])

    _, after = cse(function, torch.zeros(2))
    assert after(torch.zeros(2)).tolist() == [[1, 1], [0, 0]]


def test_cse_does_not_read_before_a_write():
    def function(x: Tensor) -> Tensor:
        y = x.clone()
        before = y.sum()
        y.t().mul_(2)
        return before + y.sum()

    _, after = cse(function, torch.ones(2, 2))
    assert after(torch.ones(2, 2)) == 12


def test_cse_does_not_let_results_share_memory():
    def function(x: Tensor) -> Any:
        return torch.neg(x).view(-1), torch.neg(x).view(-1)

    _, after = cse(function, torch.ones(2, 2))
    first, second = after(torch.ones(2, 2))
    assert first.data_ptr() != second.data_ptr()


def test_cse_does_not_merge_across_a_switch_of_gradients():
    class Switched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                a = torch.tanh(x)
            return a * torch.tanh(x) + torch.tanh(x)

    switch = torch._C._set_grad_enabled
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(2)
    graph.call_function(switch, (False,))
    a = graph.call_function(torch.tanh, (x,))
    graph.call_function(switch, (True,))
    b, c = (graph.call_function(torch.tanh, (x,)) for _ in range(2))
    product = graph.call_function(torch.mul, (a, b))
    graph.output(graph.call_function(torch.add, (product, c)))
    module = torch.fx.GraphModule({}, graph)
    changed, report = PassManager(["cse"], SEMANTICS, trials=2).run(module.graph)
    assert not report.failures, str(report)
    assert count(changed)[str(torch.tanh)] == 2  # of three


def test_fold_leaves_alone_what_is_trained_or_written():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("count", torch.zeros(2))
            self.register_buffer("fixed", torch.arange(2.0))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x * (self.weight + 1) + (self.count + 1) + (self.fixed + 1) + torch.ones(2).cos()

    model = Model()
    graph = capture_forward(model, (torch.ones(2),)).graph
    additions = count(graph)["aten.add.Tensor"]
    folded, report = PassManager(["fold"], SEMANTICS).run(graph)
    assert not report.failures and count(folded)["aten.cos.default"] == 0
    assert count(folded)["aten.add.Tensor"] == additions
    frozen, report = PassManager(["fold"], TorchSemantics(frozen=True)).run(graph)
    assert not report.failures, str(report)
    assert count(frozen)["aten.add.Tensor"] == additions - 2  # the weight and the fixed buffer
    assert model.count.tolist() == [0, 0]


def test_a_clone_is_needed_where_a_result_would_share_memory():
    def removed(function: Any) -> bool:
        module = torch.fx.experimental.proxy_tensor.make_fx(function)(torch.ones(2, 2))
        graph, report = PassManager(["algebra"], SEMANTICS).run(module.graph)
        assert not report.failures
        return count(graph)["aten.clone.default"] == 0

    assert removed(lambda x: torch.relu(x.clone()))
    assert not removed(lambda x: x.clone())
    assert not removed(lambda x: x.clone().view(-1))
    assert not removed(lambda x: x.clone().add_(1))
    assert not removed(lambda x: torch.relu(x.t().clone(memory_format=torch.contiguous_format)))


def test_detach_stays_where_gradients_may_be_taken():
    module = torch.fx.experimental.proxy_tensor.make_fx(lambda x: x * torch.relu(x).detach())(
        torch.ones(2)
    )
    graph, report = PassManager(["algebra"], SEMANTICS).run(module.graph)
    assert count(graph)["aten.detach.default"] == 1 and not report.failures


def test_a_broken_pass_is_rolled_back():
    from tinytorch.graph.passes import CommonSubexpressionElimination

    class Gullible(TorchSemantics):
        def is_random(self, node: Node) -> bool:
            return False

        def is_pure(self, node: Node) -> bool:
            return True

    module = torch.fx.experimental.proxy_tensor.make_fx(
        lambda x: torch.rand_like(x) + torch.rand_like(x)
    )(torch.ones(3))
    broken = CommonSubexpressionElimination(Gullible())
    graph, report = PassManager([broken], SEMANTICS).run(module.graph)
    assert len(report.failures) == 1 and "not the same" in str(report)
    assert count(graph) == count(module.graph)


@pytest.mark.slow
def test_open_sizes_stay_open():
    e = load_model("hf:gpt2", small=True, sequence=8)
    step = capture_step(e.model, e.batch, "sgd", dynamic_dims=(0,))
    graph, report = PassManager(["algebra", "cse", "dce"], SEMANTICS, trials=1).run(
        step.module.graph
    )
    assert not report.failures, str(report)
    graph.owning_module.recompile()
    other = load_model("hf:gpt2", small=True, sequence=8, batch=5)
    flat = step.flat_inputs(step.state_of(e.model), other.batch)
    torch.manual_seed(0)
    expected = step.module(*flat)
    torch.manual_seed(0)
    assert all(map(torch.equal, graph.owning_module(*flat), expected))
