from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import nn

# name, arguments, shapes of inputs that it takes
LAZY = [
    ("LazyLinear", (4,), [(2, 3), (2, 5, 3)]),
    ("LazyConv1d", (4, 2), [(2, 3, 5), (3, 5)]),
    ("LazyConv2d", (4, 3, 1, 1), [(2, 2, 5, 5), (2, 5, 5)]),
    ("LazyConvTranspose1d", (4, 2), [(2, 3, 5), (3, 5)]),
    ("LazyConvTranspose2d", (4, 3, 2), [(2, 2, 5, 5), (2, 5, 5)]),
    ("LazyBatchNorm1d", (), [(4, 3), (4, 3, 2)]),
    ("LazyBatchNorm2d", (1e-3,), [(2, 3, 4, 4)]),
    ("LazyBatchNorm3d", (), [(2, 3, 2, 2, 2)]),
    ("LazyInstanceNorm1d", (1e-5, 0.1, True), [(2, 3, 4)]),
    ("LazyInstanceNorm2d", (1e-5, 0.1, False, True), [(2, 3, 4, 4)]),
    ("LazyInstanceNorm3d", (), [(2, 3, 2, 2, 2)]),
]
CASES = [(name, args, shape) for name, args, shapes in LAZY for shape in shapes]


@pytest.mark.filterwarnings("ignore:Lazy modules")  # PyTorch's
@pytest.mark.parametrize(("name", "args", "shape"), CASES)
def test_becomes_the_layer_that_fits_as_in_pytorch(rng, name, args, shape):
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    parameters = list(ours.parameters())
    x = rng.standard_normal(shape).astype(np.float32)
    ours(tinytorch.tensor(x))
    theirs(torch.tensor(x))
    assert type(ours).__name__ == type(theirs).__name__ == name.removeprefix("Lazy")
    assert all(a is b for a, b in zip(parameters, ours.parameters(), strict=True))
    state = theirs.state_dict()
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in state.items()
    }
    ours.load_state_dict({k: v.numpy() for k, v in state.items()})
    expected = theirs.eval()(torch.tensor(x)).detach()
    np.testing.assert_allclose(
        ours.eval()(tinytorch.tensor(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5
    )


def test_an_optimizer_takes_the_parameters_before_the_first_call():
    tinytorch.manual_seed(0)
    net = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(1))
    assert isinstance(net, nn.Sequential) and isinstance(net[0], nn.Linear)
    assert net[0].weight is next(net.parameters())
    optimizer = tinytorch.optim.SGD(net.parameters(), lr=0.1)
    x = tinytorch.randn(16, 3)
    losses = []
    for _ in range(20):
        loss = ((net(x) - x[:, :1]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert net[0].in_features == 3 and net[2].in_features == 8


def test_values_are_loaded_before_the_first_call():
    source = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    net.load_state_dict(source.state_dict())
    x = tinytorch.randn(5, 3)
    assert net.eval()(x).tolist() == source.eval()(x).tolist()
    assert type(net[0]) is nn.Linear and net[0].in_features == 3


def test_copies_conversions_and_state_before_the_first_call():
    layer = copy.deepcopy(nn.LazyLinear(2).double())
    assert repr(layer.weight) == "UninitializedParameter()"
    with pytest.raises(nn.StateDictError, match="weight has no values yet; call the model once"):
        layer.state_dict()
    assert layer(tinytorch.ones(1, 3, dtype="float64")).dtype is tinytorch.float64
    assert layer.weight.shape == (2, 3)
    assert nn.LazyLinear(2, dtype="float64").weight.dtype is tinytorch.float64
