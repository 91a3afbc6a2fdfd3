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

from tests.fx.semantics.subjects import MOSTLY_SLOW, NAMES, SEMANTICS
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.step import capture_step
from tinytorch.fx.models import load_model
from tinytorch.fx.semantics.effects import HIDDEN_WRITERS, effects
from tinytorch.fx.semantics.semantics import TorchSemantics

aten = torch.ops.aten


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


@pytest.mark.slow
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
    net = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    step = capture_step(net, torch.ones(2, 3), "adamw", loss=lambda m, x: m(x).sum())
    (update,) = step.module.graph.find_nodes(op="call_function", target=aten._fused_adamw.tensor_lr)
    assert SEMANTICS.cost(update).flops == sum(p.numel() for p in net.parameters())


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
