from __future__ import annotations

import numpy as np
import pytest
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
