"""What passes are told of torch graphs, held against schemas and against what nodes really do."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.fx import Node
from torch.nn import functional
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.models import load_model
from tinytorch.fx.semantics.effects import HIDDEN_WRITERS, effects
from tinytorch.fx.semantics.semantics import FusedFunction, TorchSemantics
from tinytorch.graph.passes import PassManager

aten = torch.ops.aten
SEMANTICS = TorchSemantics()
NAMES = ["hf:resnet152", "hf:bert-base", "hf:gpt2"]
MOSTLY_SLOW = [*(pytest.param(n, marks=pytest.mark.slow) for n in NAMES[:2]), NAMES[2]]


def node_of(target: Any, *args: Any, op: str = "call_function", owner: Any = None, **kwargs: Any):
    """A node with placeholders x, y, z in place of those names among the arguments."""
    graph = torch.fx.Graph()
    names = {name: graph.placeholder(name) for name in "xyz"}
    args, kwargs = torch.utils._pytree.tree_map(
        lambda a: names.get(a, a) if isinstance(a, str) else a, (args, kwargs)
    )
    node = graph.create_node(op, target, args, kwargs)
    graph.output(node)
    graph.owning_module = torch.fx.GraphModule(owner or {}, graph)
    return node


def described(node: Node) -> tuple[bool, bool, str, str]:
    found = effects(node)
    return (found.pure, found.random, "".join(n.name for n in found.writes),
            "".join(n.name for n in found.views))  # fmt: skip


def label(value: Any) -> str:
    """A name without an address: all workers must call a test the same."""
    return getattr(value, "__name__", None) or str(value)


PURE, RANDOM = (True, False, "", ""), (False, True, "", "")
VIEW = (True, False, "", "x")


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "expected"),
    [
        (aten.add.Tensor, ("x", "y"), {}, PURE),
        (aten.add_.Tensor, ("x", "y"), {}, (False, False, "x", "x")),
        (aten.add.out, ("x", "y"), {"out": "z"}, (False, False, "z", "z")),
        (aten.view.default, ("x", [2]), {}, VIEW),
        (aten.split.Tensor, ("x", 2), {}, VIEW),
        (aten.rand.default, ([2],), {}, RANDOM),
        (aten.bernoulli.p, ("x", 0.5), {}, RANDOM),
        (aten.native_dropout.default, ("x", 0.5, True), {}, RANDOM),
        (aten.native_dropout.default, ("x", 0.5, False), {}, PURE),
        (aten.dropout.default, ("x", 0.5, False), {}, VIEW),
        (aten.dropout.default, ("x", 0.5, True), {}, (False, True, "", "x")),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, ("x", "y", "z"), {}, PURE),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, ("x", "y", "z", 0.1), {},
         RANDOM),
        (aten.native_batch_norm.default, ("x", None, None, "y", "z", True, 0.1, 1e-5), {},
         (False, False, "yz", "")),
        (aten.native_batch_norm.default, ("x", None, None, "y", "z", False, 0.1, 1e-5), {}, PURE),
        (aten._foreach_add_.Scalar, (["x", "y"], 1), {}, (False, False, "xy", "")),
        (aten._assert_async.msg, ("x", "no"), {}, (False, False, "", "")),
        (aten.full.default, ([2], 1.0), {}, PURE),
        (operator.getitem, ("x", 0), {}, VIEW),
        (operator.setitem, ("x", 0, "y"), {}, (False, False, "x", "x")),
        (operator.iadd, ("x", "y"), {}, (False, False, "x", "x")),
        (operator.add, ("x", "y"), {}, PURE),
        (torch.relu, ("x",), {}, PURE),
        (torch.relu_, ("x",), {}, (False, False, "x", "x")),
        (torch.add, ("x", "y"), {"out": "z"}, (False, False, "z", "z")),
        (torch.t, ("x",), {}, VIEW),
        (torch.rand_like, ("x",), {}, RANDOM),
        (functional.relu, ("x",), {}, PURE),
        (aten.einsum.default, ("ij->ji", ["x"]), {}, VIEW),
        (aten.linear.default, ("x", "y"), {}, PURE),
        (aten.type_as.default, ("x", "y"), {}, (True, False, "", "xy")),
        (aten._unsafe_view.default, ("x", [2]), {}, VIEW),
        (functional.relu, ("x",), {"inplace": True}, (False, False, "x", "x")),
        (functional.dropout, ("x", 0.5, True), {}, RANDOM),
        (functional.dropout, ("x", 0.5, False), {}, VIEW),
        (functional.batch_norm, ("x", "y", "z"), {"training": True}, (False, False, "yz", "")),
        (functional.embedding, ("x", "y"), {"max_norm": 1.0}, (False, False, "y", "")),
        (functional.gumbel_softmax, ("x",), {}, (False, True, "x", "x")),
        (print, ("x",), {}, (False, True, "x", "x")),
        (lambda x: x, ("x",), {}, (False, True, "x", "x")),
    ],
    ids=label,
)  # fmt: skip
def test_functions(target: Any, args: Any, kwargs: Any, expected: Any):
    assert described(node_of(target, *args, **kwargs)) == expected


@pytest.mark.parametrize(
    ("method", "args", "expected"),
    [
        ("relu", ("x",), PURE),
        ("add_", ("x", 1), (False, False, "x", "x")),
        ("view", ("x", 2), VIEW),
        ("contiguous", ("x",), VIEW),
        ("float", ("x",), VIEW),
        ("bernoulli", ("x",), RANDOM),
        ("register_hook", ("x", 1), (False, True, "x", "x")),
        ("requires_grad_", ("x",), (False, False, "x", "x")),
        ("no_such_method", ("x",), (False, True, "x", "x")),
    ],
)
def test_methods(method: str, args: Any, expected: Any):
    assert described(node_of(method, *args, op="call_method")) == expected


def hooked() -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_forward_hook(lambda *args: None)
    return module


class Custom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("module", "training", "pure", "random"),
    [
        (nn.Linear(2, 2), True, True, False),
        (nn.Dropout(0.5), True, False, True),
        (nn.Dropout(0.5), False, True, False),
        (nn.Dropout(0.0), True, True, False),
        (nn.BatchNorm1d(2), True, False, False),
        (nn.BatchNorm1d(2), False, True, False),
        (nn.BatchNorm1d(2, track_running_stats=False), True, True, False),
        (nn.ReLU(inplace=True), False, False, False),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), True, False, True),
        (nn.LSTM(2, 2, 2, dropout=0.5), True, False, True),
        (nn.MultiheadAttention(2, 1, dropout=0.5), False, True, False),
        (nn.Embedding(2, 2, max_norm=1.0), False, False, True),
        (hooked(), False, False, True),
        (Custom(), False, False, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_modules(module: nn.Module, training: bool, pure: bool, random: bool):
    owner = nn.Module()
    owner.inner = module.train(training)
    found = effects(node_of("inner", "x", op="call_module", owner=owner))
    assert (found.pure, found.random) == (pure, random)


def test_every_aten_op_that_its_schema_or_tags_betray_is_not_pure():
    """Over all overloads: what writes, draws random numbers or returns nothing is not pure."""
    counts: Counter[str] = Counter()
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, packet, None), overload or "default", None)
        if op is None:
            continue
        graph = torch.fx.Graph()
        arguments = [a for a in op._schema.arguments if not a.has_default_value()]
        given = {a.name: graph.placeholder(f"a_{a.name}") for a in arguments}
        node = graph.call_function(op, (), given)
        writes = [a.name for a in arguments if a.alias_info and a.alias_info.is_write]
        found = effects(node)
        if writes:
            counts["writes"] += 1
            assert not found.pure and {given[n] for n in writes} <= set(found.writes), name
        elif not op._schema.returns:
            counts["returns nothing"] += 1
            assert not found.pure, name
        elif torch.Tag.nondeterministic_seeded in op.tags:
            counts["random"] += 1
            default = {a.name: a.default_value for a in op._schema.arguments}
            off = default.get("dropout_p") == 0 or default.get("training") is False
            assert found.random != off, name
        elif packet not in HIDDEN_WRITERS:
            counts["pure"] += found.pure
            assert found.pure or "assert" in name or name.startswith("aten::sym_constrain"), name
    assert counts["writes"] > 1000 and counts["random"] > 50 and counts["pure"] > 1000


class Checked(torch.fx.Interpreter):
    """Holds what each node does against what it is said to do."""

    def run_node(self, n: Node) -> Any:
        if n.op not in ("call_function", "call_module", "call_method"):
            return super().run_node(n)
        found = effects(n)
        inputs = {a: self.env[a] for a in n.all_input_nodes}
        before = {a: [t.clone() for t in tensors(v)] for a, v in inputs.items()}
        state = torch.get_rng_state()
        result = super().run_node(n)
        drew = not torch.equal(torch.get_rng_state(), state)
        assert not drew or (found.random and not found.pure), n.format_node()
        own = {t.untyped_storage().data_ptr() for t in tensors(result) if t.numel()}
        for a, value in inputs.items():
            same = all(map(identical, tensors(value), before[a]))
            assert same or (a in found.writes and not found.pure), n.format_node()
            shared = own & {t.untyped_storage().data_ptr() for t in tensors(value) if t.numel()}
            assert not shared or a in found.views, n.format_node()
        return result


def identical(a: Tensor, b: Tensor) -> bool:
    """Equal; what `empty` has left may hold NaN."""
    return bool(((a == b) | (a != a) & (b != b)).all())


def tensors(value: Any) -> list[Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, Tensor)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MOSTLY_SLOW)
def test_nodes_do_what_they_are_said_to_do(name: str):
    e = load_model(name, small=True, sequence=8, image=32)
    step = capture_step(e.model, e.batch, "adam")
    with torch.no_grad():
        Checked(step.module).run(*step.flat_inputs(step.state_of(e.model), e.batch))
        for training in (False, True):
            graph = capture_forward(e.model.train(training), e.inputs)
            Checked(graph).run(*e.inputs.values(), enable_io_processing=False)


class Module(nn.Module):
    """What symbolic_trace makes of Python: functions, methods, modules, attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(8, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        x = functional.max_pool2d(self.layers(x), 2)
        x = self.dropout(x.flatten(1).contiguous())
        y = x.view(-1, 8).transpose(0, 1).t()
        z = y.clone()
        z += torch.rand_like(z)
        return functional.dropout(self.head(z), 0.5, self.training) * x.size(0) + y[0, 0]


@pytest.mark.parametrize("training", [False, True])
def test_nodes_of_symbolic_trace_do_what_they_are_said_to_do(training: bool):
    module = torch.fx.symbolic_trace(Module().train(training))
    with torch.no_grad():
        Checked(module).run(torch.randn(2, 1, 6, 6))


# -- costs -----------------------------------------------------------------------------------------


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", NAMES)
def test_flops_are_those_of_torchs_counter(name: str):
    e = load_model(name, small=True, sequence=8, image=32, dropout=0.0)
    joint = capture_joint(e.model, e.batch, e.loss)
    with FlopCounterMode(display=False) as counter:
        e.loss(e.model, e.batch).backward()
    counted = counter.get_total_flops()
    contractions = sum(
        SEMANTICS.cost(n).flops for n in joint.module.graph.nodes
        if any(word in str(n.target) for word in ("mm", "convolution"))
    )  # fmt: skip
    assert contractions == counted
    total = sum(SEMANTICS.cost(n).flops for n in joint.module.graph.nodes)
    assert total > counted


def test_costs_of_single_nodes():
    graph = capture_forward(nn.Linear(3, 5), (torch.ones(2, 3),)).graph
    (linear,) = [n for n in graph.nodes if n.op == "call_function"]
    assert SEMANTICS.cost(linear) == (2 * 2 * 3 * 5, 4 * (2 * 3 + 3 * 5 + 5 + 2 * 5))
    attention = load_model("hf:gpt2", small=True, sequence=8, dropout=0.0)
    joint = capture_joint(attention.model, attention.batch, attention.loss)
    forward = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    for target, products in ((forward, 2), (backward, 5)):
        (first, *_) = joint.module.graph.find_nodes(op="call_function", target=target.default)
        heads, tokens, width = 4, 8, 8
        assert SEMANTICS.cost(first).flops == products * 2 * 2 * heads * tokens * tokens * width
    views = joint.module.graph.find_nodes(op="call_function", target=aten.view.default)
    assert all(SEMANTICS.cost(n) == (0, 0) for n in views)


# -- the shared passes -----------------------------------------------------------------------------


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
    [("hf:bert-base", (207, 61), (4, 4, 18)), ("hf:gpt2", (154, 41), (4, 8, 36))],
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


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (aten.mul.Tensor, "elementwise"), (aten.sum.dim_IntList, "reduction"),
        (aten.mm.default, "contraction"), (aten.view.default, "movement"),
        (aten.bernoulli.p, "random"), (operator.getitem, "movement"),
        (aten.embedding.default, "other"), (print, "call_function"),
    ],
    ids=label,
)  # fmt: skip
def test_kinds(target: Any, kind: str):
    assert SEMANTICS.kind(node_of(target, "x", "y")) == kind


def test_constants_of_the_code_and_buffers_of_the_model():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.tensor([1.0, 2.0]) * self.scale

    graphs = [
        capture_forward(Model(), (torch.ones(2),)).graph,
        torch.fx.symbolic_trace(Model()).graph,
    ]
    for graph in graphs:
        for node in graph.find_nodes(op="get_attr"):
            is_constant = SEMANTICS.constant_value(node) is not None
            assert is_constant == (node.target != "scale"), node.target
            assert TorchSemantics(frozen=True).constant_value(node) is not None


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


def test_an_operator_of_a_library_does_what_it_declares():
    """It may draw random numbers, so it is not pure; of one that declares nothing, nobody knows."""
    name = "tinytorch_tests::scaled"
    custom = torch.library.custom_op(
        name,
        lambda x, out: x * 2,
        mutates_args=("out",),
        schema="(Tensor x, Tensor(a!) out) -> Tensor",
    )
    node = node_of(torch.ops.tinytorch_tests.scaled.default, "x", "y")
    found = effects(node)
    assert [n.name for n in found.writes] == ["y"] and found.views == ()
    assert found.random and not found.pure
    library = torch.library.Library("tinytorch_tests", "FRAGMENT")
    library.define("bare(Tensor x) -> Tensor")
    found = effects(node_of(torch.ops.tinytorch_tests.bare.default, "x"))
    assert [n.name for n in found.writes] == ["x"] and [n.name for n in found.views] == ["x"]
    assert custom is not None  # whose life is that of the operator
