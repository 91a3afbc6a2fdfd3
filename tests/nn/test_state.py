from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tinytorch import nn
from tinytorch.nn import StateDictError


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 2)))


NAMES = [
    "0.weight",
    "0.bias",
    "1.weight",
    "1.bias",
    "1.running_mean",
    "1.running_var",
    "1.num_batches_tracked",
    "2.0.weight",
    "2.0.bias",
]


def values(module: nn.Module) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


def test_what_does_not_fit_is_a_runtime_error_as_in_pytorch():
    """Programs try to load a checkpoint, and begin anew at a RuntimeError."""
    with pytest.raises(RuntimeError, match="weight"):
        nn.Linear(2, 3).load_state_dict(nn.Linear(2, 4).state_dict())


def test_names_and_memory():
    net = model()
    state = net.state_dict()
    assert list(state) == NAMES
    assert not any(tensor.requires_grad for tensor in state.values())
    with tinytorch.no_grad():
        net[0].weight.fill_(7)
    assert state["0.weight"].numpy().min() == 7


@pytest.mark.parametrize("as_array", [False, True])
def test_round_trip(as_array):
    source, target = model(), model()
    source(tinytorch.randn(5, 3))
    state = source.state_dict()
    if as_array:
        state = {name: tensor.numpy() for name, tensor in state.items()}
    parameters = list(target.parameters())
    result = target.load_state_dict(state)
    assert result == ([], [])
    assert values(target) == values(source)
    assert all(a is b for a, b in zip(parameters, target.parameters(), strict=True))
    source(tinytorch.randn(5, 3))
    assert values(target) != values(source)


def test_all_that_does_not_fit_is_in_one_error_and_nothing_is_loaded():
    net = model()
    before = values(net)
    state = dict(net.state_dict())
    state = {name: tensor + 1 for name, tensor in state.items()}
    del state["0.bias"], state["2.0.weight"]
    state["1.weight"] = tinytorch.zeros(5)
    state["1.running_var"] = [1.0]
    state["1.num_batches_tracked"] = tinytorch.tensor(1.5)
    state["head.weight"] = tinytorch.zeros(2)
    with pytest.raises(StateDictError) as caught:
        net.load_state_dict(state)
    assert str(caught.value).splitlines() == [
        "the state does not fit Sequential; nothing was loaded:",
        "  wrong shape: 1.weight is (5,), must be (4,)",
        "  wrong type: 1.running_var is list, must be a Tensor or NumPy array",
        "  wrong dtype: 1.num_batches_tracked is float32, must be int64",
        "  missing: 0.bias (4,)",
        "  missing: 2.0.weight (2, 4)",
        "  unexpected: head.weight",
    ]
    assert values(net) == before


def test_a_state_of_before_batches_were_counted_loads_as_in_pytorch():
    state = {"running_mean": [1.0, 2.0], "running_var": [3.0, 4.0], "weight": [5.0, 6.0]}
    for lib in (torch, tinytorch):
        layer = lib.nn.BatchNorm1d(2)
        given = {name: lib.tensor(values) for name, values in state.items()}
        layer.load_state_dict({**given, "bias": lib.zeros(2)})
        assert layer.running_mean.tolist() == [1.0, 2.0] and layer.num_batches_tracked.item() == 0
        with pytest.raises(RuntimeError, match="bias"):
            layer.load_state_dict(given)


def test_strict_false_passes_over_names_but_not_over_shapes():
    net = model()
    state = {"0.bias": np.full(4, 2.0), "other": np.zeros(1)}
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == [name for name in NAMES if name != "0.bias"]
    assert result.unexpected_keys == ["other"]
    assert "unexpected_keys=['other']" in repr(result)
    assert repr(net.load_state_dict(net.state_dict())) == "<All keys matched successfully>"
    assert net[0].bias.tolist() == [2, 2, 2, 2]
    with pytest.raises(StateDictError, match=r"wrong shape: 0.bias is \(3,\), must be \(4,\)"):
        net.load_state_dict({"0.bias": np.zeros(3)}, strict=False)


@given(dtype=st.sampled_from(["float32", "float64", "float16", "int64"]))
def test_values_take_the_dtype_of_the_module(dtype):
    layer = nn.Linear(1, 1)
    state = {"weight": np.array([[3]], dtype), "bias": np.array([4], dtype)}
    layer.load_state_dict(state)
    assert layer.weight.dtype is tinytorch.float32
    assert (layer.weight.item(), layer.bias.item()) == (3, 4)


def test_a_buffer_that_is_not_persistent_is_left_out():
    layer = nn.Linear(1, 1)
    layer.register_buffer("kept", tinytorch.ones(1))
    layer.register_buffer("scratch", tinytorch.ones(1), persistent=False)
    assert list(layer.state_dict()) == ["weight", "bias", "kept"]
    with pytest.raises(StateDictError, match="unexpected: scratch"):
        layer.load_state_dict({**layer.state_dict(), "scratch": np.ones(1)})


def test_a_shared_module_stands_under_each_name():
    layer = nn.Linear(1, 1, bias=False)
    assert list(nn.Sequential(layer, layer).state_dict()) == ["0.weight", "1.weight"]


def test_shared_parameters_stand_under_each_name():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    other[1].weight = other[0].weight
    other.load_state_dict(net.state_dict())
    assert values(other) == values(net)


def test_a_history_notices_a_load():
    layer = nn.Linear(2, 2)
    out = layer(tinytorch.ones(1, 2, requires_grad=True))
    layer.load_state_dict(nn.Linear(2, 2).state_dict())
    with pytest.raises(tinytorch.AutogradError, match="overwritten in place"):
        out.sum().backward()


def in_both(program):
    ours, theirs = program(tinytorch), program(torch)
    assert ours == theirs
    return ours


def test_options_of_state_dict_are_pytorchs():
    def program(lib):
        net = lib.nn.Sequential(lib.nn.Linear(1, 1))
        held, put = net.state_dict(keep_vars=True), {"before": 1}
        result = net.state_dict(destination=put, prefix="a.")
        return (
            held["0.weight"] is net[0].weight,
            result is put,
            list(net.state_dict(prefix="b.")),
            list(put),
        )

    assert in_both(program)[0]


def test_extra_state_is_saved_and_loaded():
    def program(lib):
        class Counted(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.count = lib.nn.Parameter(lib.ones(2)), 0

            def get_extra_state(self):
                return {"count": self.count}

            def set_extra_state(self, state):
                self.count = state["count"]

        first, second = (lib.nn.Sequential(Counted()) for _ in range(2))
        first[0].count = 5
        state = first.state_dict()
        second.load_state_dict(state)
        names = list(state)
        del state["0._extra_state"]
        with pytest.raises(RuntimeError, match="_extra_state"):
            second.load_state_dict(state)
        return names, second[0].count, second.load_state_dict(state, strict=False).missing_keys

    assert in_both(program)[1] == 5


def test_classes_say_how_they_are_saved_and_loaded():
    def program(lib):
        class Renamed(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.twice = lib.nn.Parameter(lib.zeros(2)), None

            def _save_to_state_dict(self, destination, prefix, keep_vars):
                super()._save_to_state_dict(destination, prefix, keep_vars)
                destination[prefix + "more"] = lib.ones(1)

            def _load_from_state_dict(self, state_dict, prefix, *rest):
                state_dict.pop(prefix + "more", None)
                if prefix + "old" in state_dict:
                    state_dict[prefix + "weight"] = state_dict.pop(prefix + "old")
                super()._load_from_state_dict(state_dict, prefix, *rest)
                self.twice = (self.weight * 2).tolist()

        class Without(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.kept, self.large = lib.nn.Linear(1, 1), lib.nn.Linear(1, 1)

            def state_dict(self, *args, **kwargs):
                found = super().state_dict(*args, **kwargs)
                for name in [name for name in found if "large" in name]:
                    del found[name]
                return found

        net = lib.nn.Sequential(Renamed(), Without())
        names = list(net.state_dict())
        found = net.load_state_dict({"0.old": lib.ones(2), "x": lib.ones(1)}, strict=False)
        return names, found.missing_keys, found.unexpected_keys, net[0].twice

    assert in_both(program)[-1] == [2, 2]


def test_a_class_that_loads_by_itself_is_put_back_too():
    class Own(nn.Linear):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)

    net = nn.Sequential(Own(2, 2), nn.Linear(2, 2))
    before = values(net)
    state = {name: tensor + 1 for name, tensor in net.state_dict().items()}
    with pytest.raises(StateDictError, match=r"missing: 1\.bias \(2,\)"):
        net.load_state_dict({name: t for name, t in state.items() if name != "1.bias"})
    assert values(net) == before
    net.load_state_dict(state)
    assert values(net) == {name: tensor.tolist() for name, tensor in state.items()}


def test_an_error_of_such_a_class_leaves_everything_as_it_was():
    class Refuses(nn.Linear):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)
            raise ValueError("another version")

    net = nn.Sequential(nn.Linear(2, 2), Refuses(2, 2))
    before = values(net)
    state = {name: tensor + 1 for name, tensor in net.state_dict().items()}
    with pytest.raises(ValueError, match="another version"):
        net.load_state_dict(state)
    assert values(net) == before


def test_assign_takes_the_tensors_of_the_state():
    def program(lib):
        net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.BatchNorm1d(2))
        net[0].bias.requires_grad_(False)
        old = net[0].weight
        state = {name: tensor.double() for name, tensor in net.state_dict().items()}
        state["1.num_batches_tracked"] = lib.tensor(4)
        net.load_state_dict(state, assign=True)
        state["0.weight"].fill_(3.0)
        flags = [
            (name, p.requires_grad, p.dtype == lib.float64) for name, p in net.named_parameters()
        ]
        kept = net[1].running_mean is state["1.running_mean"]
        return flags, kept, net[0].weight is old, net[0].weight.tolist(), len(list(net.buffers()))

    assert in_both(program)[-1] == 3
    net = nn.Linear(2, 2)
    with pytest.raises(StateDictError, match="wrong shape"):
        net.load_state_dict(
            {"weight": tinytorch.ones(2, 2), "bias": tinytorch.ones(3)}, assign=True
        )
    with pytest.raises(TypeError, match="a state is a dict of tensors by name, not a list"):
        net.load_state_dict([("weight", 1)])


def test_integers_take_no_bfloat16():
    layer = nn.BatchNorm1d(2)
    state = {**layer.state_dict(), "num_batches_tracked": tinytorch.tensor(1.5).bfloat16()}
    with pytest.raises(StateDictError, match="num_batches_tracked is bfloat16, must be int64"):
        layer.load_state_dict(state)
