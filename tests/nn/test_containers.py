from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import pytest
import torch

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
        (({"a.b": nn.ReLU()},), ValueError, "a name must be text, .*: 'a.b'"),
        (({"": nn.ReLU()},), ValueError, "a name must be text, not be empty, .*: ''"),
        (({"forward": nn.ReLU()},), ValueError, "has an attribute 'forward' already"),
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


def test_the_sum_of_module_lists_is_another_one():
    layers = nn.ModuleList([nn.ReLU()])
    both = layers + [nn.Tanh()] + nn.ModuleList([nn.Linear(1, 2)])  # noqa: RUF005
    assert isinstance(both, nn.ModuleList) and len(layers) == 1
    assert [type(layer).__name__ for layer in both] == ["ReLU", "Tanh", "Linear"]
    assert both[0] is layers[0]


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
    with pytest.raises(TypeError, match="module 'n' must be a Module, not int"):
        heads["n"] = 3
    with pytest.raises(ValueError, match="a name must be text, not be empty, and have no dot"):
        heads["a.b"] = nn.ReLU()


def test_containers_nest_and_have_attributes_too():
    class Tower(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(2, 2), nn.ReLU())
            self.skip = nn.Linear(2, 2)

        def forward(self, x):
            return super().forward(x) + x

    net = nn.ModuleDict({"towers": nn.ModuleList([Tower(), Tower()])})
    assert [n for n, _ in net.named_parameters()][:4] == [
        "towers.0.0.weight",
        "towers.0.0.bias",
        "towers.0.skip.weight",
        "towers.0.skip.bias",
    ]
    assert net.get_submodule("towers.1.0") is net["towers"][1][0]
    assert not any(m.training for m in net.eval().modules())
    assert net["towers"][0](tinytorch.ones(1, 2)).shape == (1, 2)


def both(change):
    """What a change of a Sequential makes of it, here and in PyTorch: names and the chain."""
    seen = []
    for module, ones in ((nn, tinytorch.ones), (torch.nn, torch.ones)):
        net = change(module)
        net(ones(2, 3))
        seen.append(
            (
                [(name, type(child).__name__) for name, child in net.named_children()],
                [type(child).__name__ for child in net],
                list(net._modules),
                len(net),
                list(net.state_dict()),
            )
        )
    assert seen[0] == seen[1]
    return seen[0]


def _add_module(nn):
    net = nn.Sequential()
    net.add_module("0", nn.Linear(3, 4))
    net.add_module("act", nn.ReLU())
    net.register_module("1", nn.Linear(4, 2))
    return net


def _setattr(nn):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    setattr(net, "0", nn.Linear(3, 7))
    setattr(net, "2", nn.Linear(7, 1))
    net.last = nn.Tanh()
    return net


def _modules(nn):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    net._modules["1"] = nn.Sigmoid()
    net._modules["3"] = nn.Tanh()
    del net._modules["2"]
    return net


def _list_methods(nn):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    net.append(nn.Tanh()).append(nn.Linear(2, 5))
    net.insert(1, nn.Sigmoid())
    del net[2]
    net[-1] = nn.Linear(2, 3)
    net.extend([nn.Linear(3, 3), nn.Tanh()])
    net.pop(-1)
    return net


def _slices(nn):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Tanh())
    return nn.Sequential(*list(net.children())[:-1]) + nn.Sequential(nn.ReLU())


def _delattr(nn):
    net = nn.Sequential(OrderedDict(fc=nn.Linear(3, 4), act=nn.ReLU(), out=nn.Linear(4, 2)))
    del net.act
    delattr(net, "out")
    return net


@pytest.mark.parametrize(
    "change", [_add_module, _setattr, _modules, _list_methods, _slices, _delattr]
)
def test_the_chain_is_what_the_attributes_are(change):
    names, chain, *_ = both(change)
    assert [kind for _, kind in names] == chain  # nothing is skipped or named twice


def test_a_replaced_layer_is_not_used_any_more():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    setattr(net, "1", nn.Identity())
    assert net[1] is getattr(net, "1") is net._modules["1"]
    x = tinytorch.randn(3, 2)
    assert net(x).tolist() == net[0](x).tolist()
    assert len(list(net.parameters())) == 2


def test_module_list_is_changed_through_its_attributes():
    layers = nn.ModuleList([nn.ReLU(), nn.ReLU()])
    setattr(layers, "1", nn.Tanh())
    layers.add_module("2", nn.Sigmoid())
    layers += [nn.ELU()]
    assert [type(m).__name__ for m in layers] == ["ReLU", "Tanh", "Sigmoid", "ELU"]
    assert [name for name, _ in layers.named_children()] == ["0", "1", "2", "3"]
    assert not isinstance(nn.Sequential(), nn.ModuleList)


def test_the_items_of_a_module_dict_are_attributes():
    heads = nn.ModuleDict(dict(wte=nn.Embedding(3, 2), h=nn.ModuleList([nn.Linear(2, 2)])))
    assert heads.wte is heads["wte"]
    heads.wte = nn.Embedding(5, 2)
    assert heads["wte"].num_embeddings == 5
    assert list(heads.keys()) == ["wte", "h"]
    with pytest.raises(ValueError, match="ModuleDict has an attribute 'pop' already"):
        heads["pop"] = nn.ReLU()
    heads.clear()
    assert len(heads) == 0 and list(heads.parameters()) == []


def test_parameter_containers():
    theirs, ours = (
        (
            module.ParameterList([ones(2), ones(3)]),
            module.ParameterDict({"left": ones(2), "right": module.Parameter(ones(1))}),
        )
        for module, ones in ((torch.nn, torch.ones), (nn, tinytorch.ones))
    )
    for a, b in zip(ours, theirs, strict=True):
        assert [n for n, _ in a.named_parameters()] == [n for n, _ in b.named_parameters()]
        assert list(a.state_dict()) == list(b.state_dict())
    row, named = ours
    row.append(tinytorch.ones(4))
    row[0] = nn.Parameter(tinytorch.zeros(2))
    assert [p.shape for p in row] == [(2,), (3,), (4,)] and row[0].tolist() == [0, 0]
    assert named.left is named["left"] and "right" in named and len(named) == 2
    named["third"] = tinytorch.ones(1)
    assert isinstance(named.third, nn.Parameter)
    with pytest.raises(TypeError, match="ParameterList holds parameters, not int"):
        row.append(3)
