"""The comparison takes every model that runs, and says so where one cannot be made."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tinytorch.fx.models import call
from tinytorch.fx.optimize.model_comparison import in_mode
from tinytorch.fx.optimize.optimizer import GraphOptimizer as Optimizer
from tinytorch.fx.optimize.verify import accuracy
from tinytorch.graph.passes import OptimizationPass

GraphOptimizer = functools.partial(Optimizer, keep_slower=True)  # tiny models are not made faster


class Model(nn.Module):
    """A layer, buffers, and a function of them and the inputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.register_buffer("row", torch.arange(4.0).expand(3, 4))
        self.register_buffer("count", torch.zeros(1))
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def scatter(m: Model, x: Tensor) -> Tensor:
    found = torch.zeros(5, 4).index_put((torch.tensor([0, 1, 1]),), m.layer(x), accumulate=True)
    return found.scatter_add(0, torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4))


def chunk(m: Model, x: Tensor) -> Tensor:
    left, right = x.chunk(2, 1)
    left.add_(right)
    return m.layer(x)


def out(m: Model, x: Tensor) -> Tensor:
    total = torch.empty(4)
    torch.sum(x, 0, out=total)
    return m.layer(x) + total


def counts(m: Model, x: Tensor) -> Tensor:
    m.count.add_(1)
    return m.layer(x) * m.count + m.row * 2


X = torch.linspace(-1, 1, 12).reshape(3, 4)
MODELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "float32 constants": (lambda m, x: torch.eye(3) @ m.layer(x), (X,)),
    "scatter": (scatter, (X,)),
    "bfloat16": (lambda m, x: (m.layer(x).bfloat16() @ m.layer.weight.bfloat16()).float(), (X,)),
    "infinities": (lambda m, x: m.layer(x).masked_fill(x > 0, -torch.inf), (X,)),
    "None, bool and int": (lambda m, x, n, b, i: m.layer(x) * i if b and n is None else x,
                           (X, None, True, 3)),
    "bool and int tensors": (lambda m, x, b, i: torch.where(b, m.layer(x), x)[i],
                             (X, X > 0, torch.tensor([0, 2]))),
    "chunk, then in place": (chunk, (X,)),
    "out=": (out, (X,)),
    "written and expanded buffers": (counts, (X,)),
}  # fmt: skip


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_legitimate_models(name: str, frozen: bool):
    function, inputs = MODELS[name]
    model = Model(function).train(not frozen)
    if name.startswith("chunk"):  # eager has no gradient for it either
        model.layer.requires_grad_(False)
    optimizer = GraphOptimizer(model, _own(inputs), device="cpu", frozen=frozen)
    optimized = optimizer.optimize()
    report = optimizer.report()
    assert not report.undone
    assert not [e for r in report.failures if "not faster" not in (e := str(r.error))]
    model.count.zero_()
    expected = call(model, _own(inputs)).detach()
    model.count.zero_()
    with torch.no_grad():
        assert torch.allclose(optimized(*_own(inputs)), expected, 1e-5, 1e-6)


def _own(inputs: Any) -> Any:
    return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, inputs)


def test_a_check_that_cannot_be_made_says_so():
    model = Model(lambda m, x: torch.eye(3) @ m.layer(x)).eval()
    optimizer = GraphOptimizer(model, (X,), device="cpu")
    optimizer.optimize()
    report = optimizer.report()
    (note,) = report.notes
    assert note.startswith("not compared with float64: the model does not run so (RuntimeError")
    assert report.accuracy is None and note in str(report) and note in report.to_dict()["notes"]


def test_a_model_that_float64_alone_makes_nan_is_compared_in_float32():
    """The scores of a row that is masked as a whole, in a model that takes softmax in float32."""

    def masked(m: Model, x: Tensor) -> Tensor:
        scores = m.layer(x).masked_fill(torch.ones(4).bool(), torch.finfo(x.dtype).min)
        return torch.softmax(scores, -1, dtype=torch.float32).to(x.dtype) @ m.layer.weight

    optimizer = GraphOptimizer(Model(masked).eval(), (X,), device="cpu")
    optimizer.optimize()
    (note,) = optimizer.report().notes
    assert note.startswith("not compared with float64:") and "float64 result is NaN" in note


def test_the_error_of_infinities():
    model = Model(lambda m, x: m.layer(x).masked_fill(x > 0, -torch.inf)).eval()
    result = model(X)
    found = accuracy(model, (X,), [result], [result])
    assert found.original == found.optimized < 1e-6 and found.is_good
    wrong = accuracy(model, (X,), [result], [result.nan_to_num(neginf=-1.0)])
    assert not wrong.is_good


def test_an_output_that_is_hard_to_compute_excuses_no_other():
    def outputs(m: Model, x: Tensor) -> tuple[Tensor, Tensor]:
        y = m.layer(x)
        return (y + 1e4) - 1e4, y  # the first has lost most of its bits

    model = Model(outputs).eval()
    hard, easy = model(X)
    fine = accuracy(model, (X,), [hard, easy], [hard + 1e-4, easy * (1 + 1e-7)])
    assert fine.is_good and fine.original > 1e-5
    for ruined in (easy * (1 + 1e-5), easy.bfloat16().float()):
        found = accuracy(model, (X,), [hard, easy], [hard, ruined])
        assert not found.is_good and found.original < 1e-6 < found.optimized


class Coarser(OptimizationPass):
    """Rounds what the layer gives to 17 bits after the point: fine for a float32 result."""

    name = "coarser"
    exact = False

    def analyze(self, graph: torch.fx.Graph) -> torch.fx.Node:
        (node,) = graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)
        return node

    def transform(self, graph: torch.fx.Graph, node: torch.fx.Node) -> bool:
        with graph.inserting_after(node):
            larger = graph.call_function(torch.ops.aten.add.Tensor, (node, 64.0))
        with graph.inserting_after(larger):
            rounded = graph.call_function(torch.ops.aten.sub.Tensor, (larger, 64.0))
        for new in (larger, rounded):
            new.meta.update(val=node.meta["val"], phase="forward")
        (output,) = graph.find_nodes(op="output")
        output.replace_input_with(node, rounded)
        return True


def test_a_pass_that_ruins_one_of_two_outputs_is_taken_back():
    """By the error of the worst output, it would be good: that of the other is larger still."""
    model = Model(lambda m, x: ((y := m.layer(x)) + 1e4 - 1e4, y)).eval()
    optimizer = GraphOptimizer(model, (X,), device="cpu", passes=[Coarser()], keep_slower=True)
    optimized = optimizer.optimize()
    report = optimizer.report()
    assert [line.partition(":")[0] for line in report.undone] == ["coarser (eval)"]
    assert "error against float64" in report.undone[0]
    assert all(torch.equal(a, b) for a, b in zip(optimized(X), model(X), strict=True))


def test_a_view_that_the_strides_do_not_allow_is_a_reshape():
    """Two reshapes made one: the first has copied what the second could not view."""
    model = Model(lambda m, x: m.layer(x).t().reshape(12).reshape(2, 6) * 2).eval()
    optimizer = GraphOptimizer(model, (X,), device="cpu", passes=["algebra"])
    optimized = optimizer.optimize()
    assert not optimizer.report().failures and not optimizer.report().undone
    assert optimized(X).equal(model(X))


def test_a_part_that_is_kept_in_another_mode_stays_so():
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(4).eval())
    before = [module.training for module in model.modules()]
    with in_mode(model, "eval"):
        assert not any(module.training for module in model.modules())
    with in_mode(model, "train"):
        assert [module.training for module in model.modules()] == before
    assert [module.training for module in model.modules()] == before == [True, True, False]


class Repeated(nn.Module):
    """A layer under two names, and an integer buffer that each call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, moved: Tensor) -> Tensor:
        self.calls += 1
        moved += 1
        return self.second(self.first(x)) + self.calls + moved


def test_the_model_is_as_it_was_after_the_comparison_with_float64() -> None:
    model, inputs = Repeated().eval(), (X[:2], torch.arange(4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = GraphOptimizer(model, inputs, device="cpu")
    optimizer.optimize()
    assert optimizer.report().accuracy is not None
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == before[name].dtype and torch.equal(tensor, before[name]), name
    assert inputs[1].tolist() == [0, 1, 2, 3]
