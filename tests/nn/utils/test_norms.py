"""Weight and spectral normalization, in both of PyTorch's forms, against PyTorch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import tinytorch
from tests.nn.twins import assert_twins_agree
from tinytorch import nn

LAYERS = [("Linear", (3, 4), (2, 3)), ("Conv2d", (2, 3, 2), (1, 2, 3, 3)),
          ("ConvTranspose2d", (2, 3, 2), (1, 2, 3, 3))]  # fmt: skip
TOOLS = {
    "classic": lambda library: library.utils,
    "parametrized": lambda library: library.utils.parametrizations,
}
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated")  # PyTorch's


def twins(layer, args, form, name, options):
    made = []
    for library in (nn, torch.nn):
        module = getattr(library, layer)(*args).double()
        made.append(getattr(TOOLS[form](library), name)(module, **options))
    ours, theirs = made
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize("form", TOOLS)
@pytest.mark.parametrize(("layer", "args", "shape"), LAYERS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("weight_norm", {}),
        ("weight_norm", {"dim": None}),
        ("weight_norm", {"dim": 1}),
        ("spectral_norm", {}),
        ("spectral_norm", {"n_power_iterations": 3}),
    ],
)
def test_equals_pytorch(rng, form, layer, args, shape, name, options):
    ours, theirs = twins(layer, args, form, name, options)
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        assert_twins_agree(ours, theirs, rng.standard_normal(shape))
        for key, value in theirs.state_dict().items():
            np.testing.assert_allclose(ours.state_dict()[key].numpy(), value, rtol=1e-9)


@pytest.mark.parametrize("form", TOOLS)
def test_the_largest_singular_value_becomes_one(form):
    tinytorch.manual_seed(0)
    layer = TOOLS[form](nn).spectral_norm(nn.Linear(6, 5), n_power_iterations=30)
    layer(tinytorch.ones(1, 6))
    values = np.linalg.svd(layer.weight.detach().numpy(), compute_uv=False)
    assert values[0] == pytest.approx(1, abs=1e-3)
    with pytest.raises(ValueError, match="n_power_iterations must be positive, not 0"):
        TOOLS[form](nn).spectral_norm(nn.Linear(6, 5), n_power_iterations=0)


def test_removing_the_classic_forms():
    for name in ("weight_norm", "spectral_norm"):
        layer = getattr(nn.utils, name)(nn.Linear(3, 4))
        x = tinytorch.ones(2, 3)
        layer.eval()
        expected = layer(x).tolist()
        getattr(nn.utils, f"remove_{name}")(layer)
        assert list(layer.state_dict()) == ["bias", "weight"]
        np.testing.assert_allclose(layer(x).tolist(), expected, rtol=1e-6)
        assert isinstance(layer.weight, nn.Parameter)
        with pytest.raises(ValueError, match=r"Linear.weight has no"):
            getattr(nn.utils, f"remove_{name}")(layer)


def test_a_normalized_layer_learns():
    tinytorch.manual_seed(0)
    net = nn.Sequential(
        nn.utils.weight_norm(nn.Linear(3, 8)),
        nn.Tanh(),
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 1)),
    )
    optimizer = tinytorch.optim.Adam(net.parameters(), lr=0.05)
    x = tinytorch.randn(32, 3)
    losses = []
    for _ in range(40):
        loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


def test_parametrizations_of_ones_own():
    tools = nn.utils.parametrize
    layer = nn.Linear(3, 3)
    assert not tools.is_parametrized(layer)
    first = layer.weight.detach().clone()
    tools.register_parametrization(layer, "weight", Symmetric())
    assert isinstance(layer, nn.Linear) and type(layer).__name__ == "ParametrizedLinear"
    assert layer.weight.tolist() == (first.triu() + first.triu(1).mT).tolist()
    tools.register_parametrization(layer, "weight", Doubled())
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    layer(tinytorch.ones(1, 3)).sum().backward()
    original = layer.parametrizations.weight.original
    assert original.grad.tolist()[2][0] == 0 and original.grad.tolist()[0][2] == 4
    other = copy.deepcopy(layer)
    with tinytorch.no_grad():
        other.parametrizations.weight.original.zero_()
    assert other.weight.tolist() != layer.weight.tolist()
    assert tools.is_parametrized(layer, "weight") and not tools.is_parametrized(layer, "bias")
    value = layer.weight.tolist()
    tools.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight.tolist() == value
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_writing_a_parametrized_weight():
    layer = nn.utils.parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    layer.weight = tinytorch.tensor([[1.0, 2.0], [5.0, 3.0]])
    assert layer.weight.tolist() == [[1, 2], [2, 3]]
    nn.utils.parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight.tolist() == [[1, 2], [0, 3]]


def test_a_parametrized_tensor_is_computed_once_in_a_block_of_cached():
    from tinytorch.nn.utils import parametrize

    calls = []

    class Exp(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x.exp()

    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Exp())
    calls.clear()
    with parametrize.cached():
        with parametrize.cached():
            first = layer.weight
        assert layer.weight is first and len(calls) == 1
        (first.sum() + layer.weight.sum()).backward()
    assert layer.weight is not first and len(calls) == 2
    assert layer.parametrizations.weight.original.grad.tolist() == (first * 2).tolist()


def test_parametrization_errors():
    class Wider(nn.Module):
        def forward(self, x):
            return x.repeat(1, 2)

    tools = nn.utils.parametrize
    with pytest.raises(ValueError, match="Linear has no parameter 'wieght'"):
        tools.register_parametrization(nn.Linear(2, 2), "wieght", Symmetric())
    with pytest.raises(ValueError, match=r"Wider makes \(2, 4\) of weight, whose shape"):
        tools.register_parametrization(nn.Linear(2, 2), "weight", Wider())
    with pytest.raises(ValueError, match=r"Linear.weight has no parametrizations"):
        tools.remove_parametrizations(nn.Linear(2, 2), "weight")
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="weight has 2 originals; pass leave_parametrized=True"):
        tools.remove_parametrizations(layer, "weight", leave_parametrized=False)


def test_copies_of_a_parametrized_module_change_apart():
    parametrize = nn.utils.parametrize

    class Doubled(nn.Module):
        def forward(self, x):
            return x * 2

    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Doubled())
    values, bias = layer.weight.tolist(), layer.bias.tolist()
    first, second = copy.deepcopy(layer), copy.deepcopy(layer)
    parametrize.remove_parametrizations(first, "weight")
    parametrize.register_parametrization(second, "bias", Doubled())
    assert layer.weight.tolist() == first.weight.tolist() == second.weight.tolist() == values
    assert layer.bias.tolist() == first.bias.tolist() == bias
    assert second.bias.tolist() == [2 * value for value in bias]
    parametrize.remove_parametrizations(second, "weight", leave_parametrized=False)
    assert second.weight.tolist() == [[value / 2 for value in row] for row in values]
    assert list(second._parameters) == ["weight"] and type(first) is nn.Linear
