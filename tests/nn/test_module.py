from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import nn
from tinytorch.errors import AutogradError, DTypeError


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return self.norm(self.linear(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter([1.0, 2.0, 3.0])
        self.first = Block(3)
        self.second = Block(3)
        self.head = nn.Linear(3, 2, bias=False)
        self.register_buffer("offset", tinytorch.ones(3))
        self.register_buffer("scratch", tinytorch.zeros(2), persistent=False)

    def forward(self, x):
        return self.head(self.second(self.first(x * self.scale + self.offset)))


PARAMETERS = [
    "scale",
    "first.linear.weight",
    "first.linear.bias",
    "first.norm.weight",
    "first.norm.bias",
    "second.linear.weight",
    "second.linear.bias",
    "second.norm.weight",
    "second.norm.bias",
    "head.weight",
]


def test_everything_is_found_by_its_type():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == PARAMETERS
    assert len(list(net.parameters())) == len(PARAMETERS)
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [name for name, _ in net.named_buffers()][:3] == [
        "offset",
        "scratch",
        "first.norm.running_mean",
    ]
    assert [name for name, _ in net.named_children()] == ["first", "second", "head"]
    assert list(net.children()) == [net.first, net.second, net.head]
    assert [name for name, _ in net.named_modules(prefix="net")] == [
        "net",
        "net.first",
        "net.first.linear",
        "net.first.norm",
        "net.second",
        "net.second.linear",
        "net.second.norm",
        "net.head",
    ]
    assert len(list(net.modules())) == 8
    assert len(list(net.buffers(recurse=False))) == 2


def test_what_is_shared_is_given_once():
    net = Net()
    net.second = net.first
    net.head.weight = net.first.linear.weight
    assert [name for name, _ in net.named_parameters()] == PARAMETERS[:5]
    assert list(net.children()) == [net.first, net.head]
    every = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert every == PARAMETERS
    assert [name for name, _ in net.named_modules()] == [
        "",
        "first",
        "first.linear",
        "first.norm",
        "head",
    ]


def test_a_model_learns():
    tinytorch.manual_seed(0)
    net, x = Net(), tinytorch.randn(16, 3)
    target = x @ tinytorch.tensor([[1.0, -1.0], [0.5, 0.0], [2.0, 1.0]])
    losses = []
    for _ in range(60):
        loss = nn.MSELoss()(net(x), target)
        net.zero_grad()
        loss.backward()
        with tinytorch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(parameter.grad, alpha=0.05)
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_super_init_may_be_forgotten():
    class Forgetful(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter([1.0])
            self.layer = nn.Linear(1, 1)
            self.register_buffer("seen", tinytorch.zeros(1))

        def forward(self, x):
            return self.layer(x * self.weight)

    module = Forgetful().eval()
    assert [n for n, _ in module.named_parameters()] == ["weight", "layer.weight", "layer.bias"]
    assert [n for n, _ in module.named_buffers()] == ["seen"]
    assert module(tinytorch.ones(1, 1)).shape == (1, 1)
    assert nn.Linear(1, 1)._hooks is None


def test_train_and_eval_reach_all_modules():
    net = Net()
    assert all(m.training for m in net.modules())
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())


def test_zero_grad_and_requires_grad():
    net = Net()
    net(tinytorch.randn(4, 3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.first.requires_grad_(False)
    net(tinytorch.randn(4, 3)).sum().backward()
    assert [n for n, p in net.named_parameters() if p.grad is None] == PARAMETERS[1:5]


def test_apply_visits_children_before_parents():
    visited = []
    net = Net()
    assert net.apply(lambda module: visited.append(type(module).__name__)) is net
    block = ["Linear", "BatchNorm1d", "Block"]
    assert visited == [*block, *block, "Linear", "Net"]


def test_to_converts_in_place_and_leaves_integers():
    net = Net()
    parameters = list(net.parameters())
    net(tinytorch.randn(4, 3)).sum().backward()
    assert net.double() is net
    assert all(a is b for a, b in zip(parameters, net.parameters(), strict=True))
    assert {p.dtype for p in parameters} == {tinytorch.float64}
    assert {p.grad.dtype for p in parameters} == {tinytorch.float64}
    assert net.offset.dtype is tinytorch.float64
    assert net.first.norm.num_batches_tracked.dtype is tinytorch.int64
    out = net(tinytorch.randn(4, 3, dtype="float64"))
    assert out.dtype is tinytorch.float64
    assert net.float().head.weight.dtype is tinytorch.float32
    with pytest.raises(DTypeError, match="a module's dtype must be floating-point, not int64"):
        net.to("int64")


def test_a_history_does_not_survive_a_conversion():
    layer = nn.Linear(2, 2)
    out = layer(tinytorch.ones(1, 2, requires_grad=True))
    layer.double()
    with pytest.raises(AutogradError, match="overwritten in place"):
        out.sum().backward()


def test_a_parameter_is_not_replaced_by_a_tensor():
    layer = nn.Linear(2, 2)
    text = (
        r"Linear.weight is a Parameter, and Tensor would take it from the optimizer: assign a "
        r"Parameter, or write into it by weight.copy_\(...\) under no_grad\(\)"
    )
    with pytest.raises(TypeError, match=text):
        layer.weight = layer.weight * 2
    layer.weight = nn.Parameter(tinytorch.zeros(2, 2))
    assert layer.weight.tolist() == [[0, 0], [0, 0]]
    layer.bias = None
    assert [n for n, _ in layer.named_parameters()] == ["weight"]


def test_a_buffer_stays_one():
    net = Net()
    net.offset = tinytorch.zeros(3)
    assert net.state_dict()["offset"].tolist() == [0, 0, 0]
    text = "Net.offset is a buffer: assign a Tensor or None, not int"
    with pytest.raises(TypeError, match=text):
        net.offset = 3
    net.offset = None
    assert "offset" not in net.state_dict()
    net.offset = tinytorch.ones(1)
    assert "offset" in net.state_dict()


def test_registering():
    module = nn.Module()
    module.register_parameter("weight", nn.Parameter([1.0]))
    module.register_parameter("bias", None)
    module.register_buffer("running", None)
    module.add_module("layer", nn.Linear(1, 1, bias=False))
    assert [n for n, _ in module.named_parameters()] == ["weight", "layer.weight"]
    assert module.bias is None
    assert list(module.buffers()) == []


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda m: m.register_parameter("w", tinytorch.ones(1)),
            TypeError,
            "parameter 'w' must be a Parameter, not Tensor",
        ),
        (
            lambda m: m.register_buffer("b", np.ones(1)),
            TypeError,
            "buffer 'b' must be a Tensor, not ndarray",
        ),
        (
            lambda m: m.add_module("m", nn.Linear),
            TypeError,
            "module 'm' must be a Module, not type",
        ),
        (
            lambda m: m.register_buffer("a.b", tinytorch.ones(1)),
            ValueError,
            "a name must be text, not be empty, and have no dot in it: 'a.b'",
        ),
        (
            lambda m: m.register_parameter("", None),
            ValueError,
            "a name must be text, not be empty, and have no dot in it: ''",
        ),
        (
            lambda m: m.register_buffer("forward", tinytorch.ones(1)),
            ValueError,
            "Module has an attribute 'forward' already",
        ),
    ],
)
def test_registering_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(nn.Module())


def test_a_missing_forward_is_named():
    class Empty(nn.Module):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no forward: write `def forward"):
        Empty()(tinytorch.ones(1))


def test_get_submodule():
    net = Net()
    assert net.get_submodule("") is net
    assert net.get_submodule("first.norm") is net.first.norm
    text = "Net has no module 'first.nrm': Block has linear, norm"
    with pytest.raises(AttributeError, match=text):
        net.get_submodule("first.nrm")
    with pytest.raises(AttributeError, match="Linear has no modules"):
        net.get_submodule("head.weight")


def test_a_module_that_contains_itself():
    net = Net()
    net.first.parent = net
    assert len(list(net.parameters())) == len(PARAMETERS)
    with pytest.raises(ValueError, match=r"module 'first.parent' contains itself: Net"):
        net.state_dict()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_independent(copied):
    net = Net()
    net.second.linear.weight = net.first.linear.weight
    net.head.requires_grad_(False)
    net.eval()
    other = copied(net)
    x = tinytorch.randn(4, 3)
    assert other(x).tolist() == net(x).tolist()
    assert not other.training
    assert not other.head.weight.requires_grad
    assert other.second.linear.weight is other.first.linear.weight
    assert type(other.scale) is nn.Parameter
    with tinytorch.no_grad():
        other.scale.zero_()
        other.offset.zero_()
    assert net.scale.tolist() == [1, 2, 3]
    assert net.offset.tolist() == [1, 1, 1]


def test_keyword_arguments_reach_forward():
    class Scale(nn.Module):
        def forward(self, x, *, by):
            return x * by

    assert Scale()(tinytorch.ones(2), by=3.0).tolist() == [3, 3]


def test_the_stores_are_views_of_the_attributes():
    net = Net()
    assert list(net._parameters) == ["scale"]
    assert list(net._modules) == ["first", "second", "head"]
    assert list(net._buffers) == ["offset", "scratch"]
    net._parameters["scale"] = nn.Parameter([3.0, 3.0, 3.0])
    assert net.scale.tolist() == [3, 3, 3]
    net._parameters["shift"] = nn.Parameter([1.0])
    net._modules["tail"] = nn.ReLU()
    net._buffers["seen"] = tinytorch.ones(1)
    net._buffers["offset"] = tinytorch.zeros(3)
    assert type(net.tail) is nn.ReLU and net.offset.tolist() == [0, 0, 0]
    assert {"shift", "seen"} <= set(net.state_dict())
    del net._parameters["scale"], net._buffers["seen"]
    assert "scale" not in dict(net.named_parameters()) and "seen" not in net.state_dict()
    net.scale = tinytorch.ones(3)  # no parameter any more, so any attribute
    assert next(reversed(net._modules)) == "tail" and len(net._modules) == 4
    assert net._modules.get("nothing") is None and "offset" not in net._modules
    with pytest.raises(KeyError):
        del net._modules["offset"]
    net._modules = {"only": nn.Linear(1, 1)}
    assert [n for n, _ in net.named_children()] == ["only"]
    assert repr(net._modules).startswith("{'only': Linear(")


def test_a_module_is_not_replaced_by_something_else():
    net = Net()
    with pytest.raises(TypeError, match=r"Net.head is a Module: assign a Module or None, not func"):
        net.head = lambda x: x
    net.head = nn.Identity()
    net.first = None
    assert [n for n, _ in net.named_children()] == ["second", "head"]


def test_named_children_gives_a_shared_module_once():
    layer = nn.ReLU()
    ours, theirs = nn.Sequential(layer, layer), torch.nn.Sequential(*[torch.nn.ReLU()] * 2)
    assert [n for n, _ in ours.named_children()] == [n for n, _ in theirs.named_children()]
    assert len(ours) == 2


def test_get_parameter_and_get_buffer():
    net = Net()
    assert net.get_parameter("first.linear.weight") is net.first.linear.weight
    assert net.get_buffer("first.norm.running_mean") is net.first.norm.running_mean
    with pytest.raises(AttributeError, match=r"no parameter 'head.wieght': head has weight"):
        net.get_parameter("head.wieght")


def test_to_takes_what_pytorchs_does():
    layer = nn.Linear(2, 2)
    assert layer.to("cpu") is layer.to(device="cpu") is layer.cpu() is layer
    assert layer.to("cpu", "float64").weight.dtype is tinytorch.float64
    assert layer.to(tinytorch.ones(1)).weight.dtype is tinytorch.float32
    assert layer.to(dtype=tinytorch.float64).bias.dtype is tinytorch.float64
    assert layer.half().weight.dtype is tinytorch.float16
    with pytest.raises(RuntimeError, match="cuda"):
        layer.to("cuda:0")
    with pytest.raises(RuntimeError, match="cuda"):
        nn.Linear(2, 2, device="cuda")
    assert nn.Linear(2, 2, True, "cpu", "float64").weight.dtype is tinytorch.float64
    with pytest.raises(DTypeError, match="a layer's dtype must be floating-point, not int64"):
        nn.Linear(2, 2, dtype="int64")


def test_zero_grad_may_write_zeros():
    layer = nn.Linear(2, 1)
    layer(tinytorch.ones(1, 2)).sum().backward()
    kept = layer.weight.grad
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is kept and kept.tolist() == [[0, 0]]
    layer.zero_grad()
    assert layer.weight.grad is None
