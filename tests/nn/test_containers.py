from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import pytest

import tinytorch
from tinytorch import nn


def test_sequential_runs_its_layers_in_turn():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    x = tinytorch.randn(4, 2)
    expected = x
    for layer in net:
        expected = layer(expected)
    assert net(x).tolist() == expected.tolist()
    assert nn.Sequential()(x) is x


def test_sequential_with_names():
    net = nn.Sequential(OrderedDict(hidden=nn.Linear(2, 3), act=nn.ReLU()))
    net.append(nn.Linear(3, 1))
    assert [name for name, _ in net.named_children()] == ["hidden", "act", "2"]
    assert net.hidden is net[0]
    net.hidden = nn.Linear(2, 3)
    assert net.hidden is net[0]
    assert len(net) == 3
    assert list(net.state_dict()) == ["hidden.weight", "hidden.bias", "2.weight", "2.bias"]
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'head'"):
        net.head  # noqa: B018
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert copied.hidden.weight.tolist() == net.hidden.weight.tolist()


def test_a_slice_of_a_sequential_shares_its_layers_and_keeps_names():
    net = nn.Sequential({"a": nn.Linear(2, 3), "b": nn.ReLU(), "c": nn.Linear(3, 1)})
    body = net[:-1]
    assert type(body) is nn.Sequential
    assert [name for name, _ in body.named_children()] == ["a", "b"]
    assert body[0] is net[0]
    assert [name for name, _ in net[1:].named_children()] == ["b", "c"]


def test_sequential_is_changed_like_a_list():
    first, second, third = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
    net = nn.Sequential(first, third)
    net.insert(1, second)
    assert list(net) == [first, second, third]
    del net[0]
    assert [(n, m) for n, m in net.named_children()] == [("0", second), ("1", third)]
    net[-1] = first
    net.extend([third])
    assert list(net) == [second, first, third]
    assert net.pop() is third
    assert len(net) == 2


@pytest.mark.parametrize(
    ("layers", "error", "text"),
    [
        ((nn.ReLU,), TypeError, "Sequential holds modules, not ABCMeta|type"),
        ((tinytorch.relu,), TypeError, r"not function \(<function relu"),
        (([nn.ReLU()],), TypeError, "Sequential holds modules, not list"),
        (({"a.b": nn.ReLU()},), ValueError, "layer 0 cannot be named 'a.b'"),
        (({"": nn.ReLU()},), ValueError, "layer 0 cannot be named ''"),
        (({"1": nn.ReLU()},), ValueError, "is a number only if that is its position"),
    ],
)
def test_sequential_errors(layers, error, text):
    with pytest.raises(error, match=text):
        nn.Sequential(*layers)


def test_names_that_are_positions():
    net = nn.Sequential(dict(nn.Sequential(nn.ReLU(), nn.Tanh()).named_children()))
    del net[0]
    assert [name for name, _ in net.named_children()] == ["0"]


def test_module_list_is_a_list():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    first = layers[0]
    layers.append(nn.Linear(2, 2, bias=False))
    layers.insert(1, nn.ReLU())
    assert len(layers) == 5
    assert [type(m).__name__ for m in layers] == ["Linear", "ReLU", *["Linear"] * 3]
    assert isinstance(layers[1:3], nn.ModuleList)
    assert first in layers
    assert layers.index(first) == 0
    layers[1] = nn.Linear(2, 2)
    assert len(list(layers.parameters())) == 9
    del layers[-1]
    assert [n for n, _ in layers.named_parameters()][-1] == "3.bias"
    with pytest.raises(NotImplementedError, match="ModuleList has no forward"):
        layers(1)
    with pytest.raises(TypeError, match="ModuleList holds modules, not str"):
        layers.append("relu")
    with pytest.raises(TypeError, match="assign modules one by one, not to a slice"):
        layers[:1] = [nn.ReLU()]
    with pytest.raises(IndexError):
        layers[9]


def test_module_dict_is_a_dict():
    heads = nn.ModuleDict({"digit": nn.Linear(2, 10)})
    heads["colour"] = nn.Linear(2, 3)
    heads.update([("size", nn.Linear(2, 1))])
    assert list(heads) == ["digit", "colour", "size"]
    assert heads["colour"](tinytorch.ones(1, 2)).shape == (1, 3)
    assert [n for n, _ in heads.named_parameters()][:2] == ["digit.weight", "digit.bias"]
    assert "size" in heads
    assert heads.pop("size").out_features == 1
    assert len(heads) == 2
    assert heads != nn.ModuleDict(heads.items())
    assert len({heads, heads}) == 1
    with pytest.raises(KeyError):
        heads["size"]
    with pytest.raises(TypeError, match="ModuleDict holds modules, not int"):
        heads["n"] = 3
    with pytest.raises(ValueError, match="a name must be text, not be empty, and have no dot"):
        heads["a.b"] = nn.ReLU()


def test_containers_nest_and_have_attributes_too():
    class Tower(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(2, 2), nn.ReLU())
            self.skip = nn.Linear(2, 2)

        def forward(self, x):
            return super().forward(x) + self.skip(x)

    net = nn.ModuleDict({"towers": nn.ModuleList([Tower(), Tower()])})
    assert [n for n, _ in net.named_parameters()][:4] == [
        "towers.0.skip.weight",
        "towers.0.skip.bias",
        "towers.0.0.weight",
        "towers.0.0.bias",
    ]
    assert net.get_submodule("towers.1.0") is net["towers"][1][0]
    assert not any(m.training for m in net.eval().modules())
    assert net["towers"][0](tinytorch.ones(1, 2)).shape == (1, 2)
