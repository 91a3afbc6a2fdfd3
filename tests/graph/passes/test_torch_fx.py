"""The passes run unchanged on graphs of torch.fx, given a Semantics of that world."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from tinytorch.graph.passes import (
    AlgebraicSimplification,
    CommonSubexpressionElimination,
    ConstantFolding,
    DeadCodeElimination,
)
from tinytorch.graph.semantics import Cost, Semantics

torch = pytest.importorskip("torch")
fx = pytest.importorskip("torch.fx")

NAMES = {
    torch.add: "add", torch.mul: "mul", torch.neg: "neg", torch.sub: "sub", torch.relu: "relu",
    operator.add: "add", operator.mul: "mul",
}  # fmt: skip
FUNCTIONS = {"add": torch.add, "mul": torch.mul, "neg": torch.neg, "sub": torch.sub}


class TorchSemantics(Semantics):
    """As much as these tests need."""

    node_type = fx.Node

    def is_pure(self, node):
        return not self.mutates(node) and node.target is not print

    def is_random(self, node):
        return node.target in (torch.rand_like, torch.dropout)

    def mutates(self, node):
        return (node.args[0],) if str(node.target).endswith("add_") else ()

    def aliases(self, node):
        return (node.args[0],) if node.target is torch.t or self.mutates(node) else ()

    def is_commutative(self, node):
        return self.op_name(node) in ("add", "mul")

    def cost(self, node):
        return Cost(0, 0)

    def meta(self, node):
        return node.meta.get("val")

    def op_name(self, node):
        return NAMES.get(node.target)

    def kind(self, node):
        return "elementwise" if node.target in NAMES else "other"

    def evaluate(self, node, args, kwargs):
        return node.target(*args, **kwargs)

    def call(self, graph, name, args, kwargs):
        node = graph.call_function(FUNCTIONS[name], tuple(args), kwargs)
        values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
        node.meta["val"] = FUNCTIONS[name](*values, **kwargs)
        return node

    def constant(self, graph, value):
        owner = graph.owning_module
        name = f"folded_{len(list(owner.named_buffers()))}"
        owner.register_buffer(name, value)
        node = graph.get_attr(name)
        node.meta["val"] = value
        return node

    def constant_value(self, node):
        return getattr(node.graph.owning_module, node.target)

    def fused(self, graph):
        raise NotImplementedError("no fusion in these tests")

    def run(self, graph, inputs):
        raise NotImplementedError("no manager in these tests")

    gradients = sample = run


def traced(function: Any, *examples: Any) -> Any:
    module = fx.symbolic_trace(function)
    values: dict[Any, Any] = {}
    inputs = iter(examples)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            node.meta["val"] = values[node] = next(inputs)
        elif node.op == "call_function":
            args = fx.node.map_arg(node.args, values.__getitem__)
            node.meta["val"] = values[node] = node.target(*args)
    return module


def targets(module: Any) -> list[Any]:
    return [n.target for n in module.graph.nodes if n.op == "call_function"]


def check(module: Any, function: Any, *inputs: Any) -> None:
    module.graph.lint()
    module.recompile()
    assert torch.equal(module(*inputs), function(*inputs))


def test_dce():
    def f(x):
        torch.neg(torch.relu(x))
        return torch.mul(x, 2)

    x = torch.ones(3)
    module = traced(f, x)
    assert DeadCodeElimination(TorchSemantics()).run(module.graph)
    assert targets(module) == [torch.mul]
    check(module, f, x)


def test_dce_keeps_effects():
    def f(x):
        y = torch.neg(x)
        y.add_(1)
        return y

    module = fx.symbolic_trace(f)
    count = len(module.graph.nodes)
    DeadCodeElimination(TorchSemantics()).run(module.graph)
    assert len(module.graph.nodes) == count


def test_cse():
    def f(x, y):
        return torch.mul(torch.add(x, y), torch.relu(torch.add(y, x))) + torch.relu(x + y)

    x, y = torch.randn(3), torch.randn(3)
    module = traced(f, x, y)
    each = CommonSubexpressionElimination(TorchSemantics())
    assert each.run(module.graph)
    assert targets(module).count(torch.add) == 1
    check(module, f, x, y)


def test_cse_leaves_alone_what_torchs_own_pass_breaks():
    def constants(x):
        return torch.mul(x, 2), torch.mul(x, 2.0)

    def randomness(x):
        return torch.rand_like(x) + torch.rand_like(x)

    def mutation(x):
        a, b = torch.clone(x), torch.clone(x)
        before = torch.neg(a)
        a.add_(1)
        return before + torch.neg(a) + b

    for f in (constants, randomness, mutation):
        module = fx.symbolic_trace(f)
        before = str(module.graph)
        assert not CommonSubexpressionElimination(TorchSemantics()).run(module.graph)
        assert str(module.graph) == before


def test_algebra():
    def f(x, y):
        return torch.mul(torch.add(x, torch.neg(torch.neg(torch.neg(y)))), 1)

    x, y = torch.randn(3), torch.randn(3)
    module = traced(lambda x, y: torch.relu(f(x, y)), x, y)
    each, dce = AlgebraicSimplification(TorchSemantics()), DeadCodeElimination(TorchSemantics())
    while each.run(module.graph):
        dce.run(module.graph)
    assert targets(module) == [torch.sub, torch.relu]
    check(module, lambda x, y: torch.relu(f(x, y)), x, y)


def test_fold():
    root = torch.nn.Module()
    root.register_buffer("scale", torch.arange(3.0))
    graph = fx.Graph()
    x, scale = graph.placeholder("x"), graph.get_attr("scale")
    shifted = graph.call_function(torch.add, (scale, 1))
    graph.output(graph.call_function(torch.mul, (x, shifted)))
    module = fx.GraphModule(root, graph)
    for node in module.graph.nodes:
        node.meta["val"] = torch.ones(3)
    assert ConstantFolding(TorchSemantics()).run(module.graph)
    assert targets(module) == [torch.mul]
    check(module, lambda x: x * (torch.arange(3.0) + 1), torch.ones(3))
