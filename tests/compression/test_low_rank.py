from __future__ import annotations

import itertools

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.compression import factorize, low_rank_
from tinytorch.compression.low_rank import ranks_for_budget


def net() -> nn.Sequential:
    tinytorch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2)
    )


def numbers(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.ndim > 1)


def test_the_error_is_that_of_the_singular_values_that_were_left_out() -> None:
    layer = nn.Linear(24, 32)
    weight = layer.weight.detach().numpy().astype(np.float64)
    two = factorize(layer, 5)
    product = two[1].weight.detach().numpy() @ two[0].weight.detach().numpy()
    s = np.linalg.svd(weight, compute_uv=False)
    off = np.linalg.norm(product - weight)
    assert off == pytest.approx(np.sqrt((s[5:] ** 2).sum()), rel=1e-5)
    x = tinytorch.randn(3, 24)
    whole = factorize(layer, 24)
    np.testing.assert_allclose(whole(x).detach().numpy(), layer(x).detach().numpy(), atol=1e-5)
    found = low_rank_(nn.Sequential(layer), ranks={"0": 5})
    assert found["0"].error == pytest.approx(off / np.linalg.norm(weight), rel=1e-6)


@pytest.mark.parametrize("budget", [0.3, 0.5, 0.9])
def test_a_budget_is_kept_and_used(budget: float) -> None:
    model = net()
    whole = numbers(model)
    found = low_rank_(model, budget=budget)
    assert "0" in found and numbers(model) <= budget * whole
    assert numbers(model) > budget * whole - 56  # one more rank does not fit
    assert all(0 < f.error < 1 for f in found.values())


def test_a_weight_without_singular_values_is_named() -> None:
    model = net()
    model[2].weight.detach()[0, 0] = float("inf")
    with pytest.raises(ValueError, match=r"the weight of 2 is NaN or infinite"):
        low_rank_(model, ranks={"2": 1})


def test_a_budget_goes_where_it_lowers_the_error_most() -> None:
    rng = np.random.default_rng(0)
    sizes = {"a": (8, 8), "b": (8, 8)}
    tails = {}
    for name, decay in (("a", 0.3), ("b", 0.9)):
        squares = decay ** np.arange(8) * rng.uniform(0.9, 1.1)
        tails[name] = np.append(np.cumsum(squares[::-1])[::-1], 0.0) / squares.sum()
    found = ranks_for_budget(sizes, tails, 0.625)  # 80 numbers: five ranks of 16
    best = min(
        (r for r in itertools.product(range(1, 4), repeat=2) if sum(r) <= 5),
        key=lambda r: tails["a"][r[0]] + tails["b"][r[1]],
    )
    assert tuple(found.values()) == best and found["b"] > found["a"]


def test_an_error_gives_each_layer_its_smallest_rank() -> None:
    model = net()
    with tinytorch.no_grad():
        thin = model[0].weight[:, :3] @ model[0].weight[:3]
        model[0].weight.copy_(thin)
    found = low_rank_(model, error=1e-3)
    assert {name: f.rank for name, f in found.items()} == {"0": 3}  # the others would not shrink
    assert type(model[2]) is nn.Linear
    assert low_rank_(net(), error=0.0) == {}


def test_shared_weights_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    model[1].weight = model[0].weight
    assert low_rank_(model, budget=0.6).keys() == {"2"}


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="one of budget, error and ranks"):
        low_rank_(net(), budget=0.5, error=0.1)
    with pytest.raises(ValueError, match=r"rank 1 everywhere takes 0.\d+ of them, and it is 0.01"):
        low_rank_(net(), budget=0.01)
    with pytest.raises(ValueError, match=r"weight of 0 has shape \(32, 24\), .* 1 to 24, not 25"):
        low_rank_(net(), ranks={"0": 25})
    with pytest.raises(ValueError, match=r"rank is from 1 to 24, not 2.5"):
        low_rank_(net(), ranks={"0": 2.5})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"0 cannot have a rank and be in skip"):
        low_rank_(net(), ranks={"0": 2}, skip=["0"])
    with pytest.raises(ValueError, match=r"Sequential has no linear layer"):
        low_rank_(nn.Sequential(nn.ReLU()), error=0.5)
    with pytest.raises(ValueError, match=r"no linear layer '1' that can be exchanged; .* 0, 2"):
        low_rank_(net(), budget=0.5, skip=["1"])
    with pytest.raises(ValueError, match="is a layer itself and cannot be replaced in place"):
        low_rank_(nn.Linear(8, 8), error=0.5)
    with pytest.raises(ValueError, match="from 0 to 1, not 2"):
        low_rank_(net(), error=2)
