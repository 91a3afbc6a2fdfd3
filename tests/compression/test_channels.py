"""Channels that are removed: what is left computes what the whole model did without them."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.compression import find_channels, keep_channels_, prune_channels_
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig


class Residual(nn.Module):
    """Two blocks that are added to what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.inner = nn.Conv2d(6, 4, 3, padding=1, bias=False)
        self.outer = nn.Conv2d(4, 6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
        x = F.relu(self.norm(self.first(x)))
        x = x + self.outer(F.relu(self.inner(x)))
        return self.head(F.relu(x).mean((2, 3)))


def mlp() -> tuple[nn.Module, tinytorch.Tensor]:
    net = nn.Sequential(
        nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 7), nn.GELU(), nn.Linear(7, 3)
    )
    return net, tinytorch.randn(4, 5)  # fmt: skip


def cnn() -> tuple[nn.Module, tinytorch.Tensor]:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 6, 1, bias=False),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5), nn.BatchNorm1d(5), nn.Linear(5, 3),
    )  # fmt: skip
    return net, tinytorch.randn(4, 1, 8, 8)


def residual() -> tuple[nn.Module, tinytorch.Tensor]:
    return Residual(), tinytorch.randn(4, 2, 5, 5)


def gpt() -> tuple[nn.Module, tinytorch.Tensor]:
    config = GPTConfig(11, 8, layers=2, heads=2, width=8, activation="swiglu")
    return GPT(config), tinytorch.randint(0, 11, (2, 8))


MODELS = {"mlp": mlp, "cnn": cnn, "residual": residual, "gpt": gpt}
FREE = {
    "mlp": {"0.weight": 8, "3.weight": 7},
    "cnn": {"0.weight": 8, "5.weight": 6, "8.weight": 5},
    "residual": {"first.weight": 6, "inner.weight": 4},
}


def make(name: str) -> tuple[nn.Module, tinytorch.Tensor]:
    """A model with parameters and statistics that nothing makes equal, in evaluation mode."""
    tinytorch.manual_seed(1)
    model, x = MODELS[name]()
    with tinytorch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.ndim == 1:
                tensor.uniform_(0.5, 1.5)
    return model.eval(), x


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["residual", "gpt", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mlp", "cnn"))]
)
def test_what_is_left_is_the_model_whose_removed_channels_nobody_reads(name: str) -> None:
    model, x = make(name)
    whole, _ = make(name)
    groups = find_channels(model, x)
    free = {g.name: g.size for g in groups if g.fixed is None}
    assert free and free == FREE.get(name, free)
    kept = prune_channels_(model, x, amount=0.5)
    assert kept.keys() == free.keys()
    tensors = dict(whole.named_parameters())
    for group in groups:
        if group.name not in kept:
            continue
        gone = np.setdiff1d(np.arange(group.size), kept[group.name])
        assert len(gone) == group.size // 2
        for part in group.parts:
            if part.dim == 1:  # a column, by which the channel is read
                columns = (gone[:, None] * part.repeat + np.arange(part.repeat)).ravel()
                tensors[part.tensor].detach().numpy()[:, columns] = 0
    with tinytorch.no_grad():
        np.testing.assert_allclose(model(x).numpy(), whole(x).numpy(), rtol=2e-4, atol=2e-5)
    for layer in model.modules():  # what layers say of themselves is true, and they can be trained
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            sizes = vars(layer)
            rows = sizes["out_features"] if isinstance(layer, nn.Linear) else sizes["out_channels"]
            assert layer.weight.shape[0] == rows
    model.train()
    model(x).sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


@pytest.mark.slow
def test_the_least_channels_go_and_their_memory_is_free() -> None:
    model, x = make("cnn")
    weight = model[0].weight
    weight.detach().numpy()[[2, 5]] *= 1e-3
    model[1].weight.detach().numpy()[[2, 5]] = 1e-3
    model[4].weight.detach().numpy()[[2, 5]] *= 1e-3
    model[5].weight.detach().numpy()[:, [2, 5]] *= 1e-3
    memory = weakref.ref(weight._data)
    del weight
    kept = prune_channels_(model, x, amount={"0.weight": 0.25})
    assert kept == {"0.weight": [0, 1, 3, 4, 6, 7]}
    assert memory() is None
    assert model[4].groups == 6 and model[1].num_features == 6 and model[5].in_channels == 6


def test_a_weight_that_is_computed_loses_rows_in_all_that_it_is_computed_from() -> None:
    tinytorch.manual_seed(0)
    first, last, x = nn.Linear(4, 8), nn.Linear(8, 3), tinytorch.randn(2, 4)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(first), nn.ReLU(), last)
    hidden = model[:2](x).detach().numpy()
    weight, bias = (p.detach().numpy() for p in (last.weight, last.bias))
    ((_, kept),) = prune_channels_(model, x).items()
    assert len(kept) == 4 and first.weight.shape == (4, 4)
    expected = hidden[:, kept] @ weight[:, kept].T + bias
    np.testing.assert_allclose(model(x).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_how_many_stay() -> None:
    model, x = make("mlp")
    assert prune_channels_(model, x, amount=0.7, multiple_of=4, skip=["3.weight"]).keys() == {
        "0.weight"
    }
    assert model[0].weight.shape == (4, 5)
    prune_channels_(model, x, amount=0.99)
    assert model[0].weight.shape == (1, 5) and model[3].weight.shape == (1, 1)


class SizeInCode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
        return self.last(F.relu(self.first(x)).reshape(-1, 6))


def test_a_size_in_the_code_is_named_and_the_model_stays_as_it_was() -> None:
    model, x = SizeInCode(), tinytorch.randn(3, 4)
    before = model(x).detach().numpy()
    with pytest.raises(ShapeError, match="a size is written into its code: 9 elements do"):
        prune_channels_(model, x)
    assert model.first.out_features == 6 and model.last.in_features == 6
    np.testing.assert_array_equal(model(x).detach().numpy(), before)


def test_whatever_the_code_raises_the_model_stays_as_it_was() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Conv2d(2, 4, 1, groups=2)  # two filters for each channel
            self.first, self.each = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1, groups=4)
            self.last = nn.Conv2d(2, 8, 1)

        def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
            a, b = self.each(self.first(self.wide(x))).split(2, 1)
            return self.last(a + b)

    model, x = Split(), tinytorch.randn(1, 2, 3, 3)
    before = model(x).detach().numpy()
    with pytest.raises(ShapeError, match="not enough values to unpack"):
        prune_channels_(model, x)
    assert model.each.groups == 4 and model.wide.groups == 2
    np.testing.assert_array_equal(model(x).detach().numpy(), before)


def test_a_softmax_over_channels_that_are_not_last_fixes_them() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Softmax(1), nn.Conv2d(4, 2, 1))
    found = find_channels(model, tinytorch.ones(1, 1, 3, 3))
    assert "softmax uses all of it at once" in (found[0].fixed or "")


@pytest.mark.slow
def test_what_cannot_be_removed_says_why() -> None:
    model = nn.Sequential(
        nn.Linear(4, 6), nn.Softmax(-1), nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 2)
    )
    x = tinytorch.randn(3, 4)
    reasons = {g.name: g.fixed or "" for g in find_channels(model, x)}
    assert "softmax uses all of it at once at" in reasons["0.weight"]
    assert "layer_norm uses all of it at once at" in reasons["2.weight"]
    assert reasons["4.weight"] == "it is a result of the model"
    assert prune_channels_(model, x) == {}
    with pytest.raises(ValueError, match=r"no channel of 0.weight can be removed: softmax"):
        prune_channels_(model, x, amount={"0.weight": 0.5})
    with pytest.raises(ValueError, match=r"no channels '1.weight'; there are 0.weight, 2"):
        prune_channels_(model, x, skip=["1.weight"])
    other, y = make("mlp")
    with pytest.raises(ValueError, match=r"of 0.weight must be at least 0 and below 1, got 1.0"):
        prune_channels_(other, y, amount=1.0)
    with pytest.raises(ValueError, match=r"0.weight has channels 0 to 7; .*: \[8\]"):
        keep_channels_(other, y, keep={"0.weight": [8]})
