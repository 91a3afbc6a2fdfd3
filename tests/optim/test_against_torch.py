"""100 steps beside PyTorch's optimizers, over generated options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import tinytorch
from tinytorch import optim
from tinytorch.dtypes import Array

SHAPES = [(3, 4), (5,), ()]
STEPS = 100

rates = st.sampled_from([0.003, 0.02, 0.1])
fractions = st.sampled_from([0.0, 0.5, 0.9])
decays = st.sampled_from([0.0, 0.01, 0.3])
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from(["float64", "float32"])


@st.composite
def sgd_options(draw: st.DrawFn) -> dict[str, Any]:
    momentum = draw(fractions)
    nesterov = momentum > 0 and draw(st.booleans())
    return {
        "lr": draw(rates),
        "momentum": momentum,
        "dampening": 0.0 if nesterov else draw(fractions),
        "weight_decay": draw(decays),
        "nesterov": nesterov,
        "maximize": draw(st.booleans()),
    }


adam_options = st.fixed_dictionaries(
    {
        "lr": rates,
        "betas": st.tuples(fractions, st.sampled_from([0.9, 0.999])),
        "eps": st.sampled_from([1e-8, 1e-3]),
        "weight_decay": decays,
        "amsgrad": st.booleans(),
        "maximize": st.booleans(),
    }
)
rmsprop_options = st.fixed_dictionaries(
    {
        "lr": rates,
        "alpha": st.sampled_from([0.9, 0.99]),
        "eps": st.sampled_from([1e-8, 1e-3]),
        "weight_decay": decays,
        "momentum": fractions,
        "centered": st.booleans(),
        "maximize": st.booleans(),
    }
)


def run_both(
    name: str, options: dict[str, Any], dtype: str, seed: int
) -> list[tuple[Array, Array]]:
    """Parameters after each step, ours and PyTorch's, on noisy quadratics of their own."""
    rng = np.random.default_rng(seed)
    start = [rng.normal(size=shape).astype(dtype) for shape in SHAPES]
    target = [rng.normal(size=shape).astype(dtype) for shape in SHAPES]
    ours = [tinytorch.tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    our_optimizer = getattr(optim, name)(ours, **options)
    their_optimizer = getattr(torch.optim, name)(theirs, **options, foreach=False)
    sign = -1 if options["maximize"] else 1
    seen = []
    for _ in range(STEPS):
        for p, q, goal in zip(ours, theirs, target, strict=True):
            noise = rng.normal(size=goal.shape).astype(dtype)
            p.grad = tinytorch.tensor(np.asarray(sign * (p.detach().numpy() - goal + noise)))
            q.grad = torch.tensor(sign * (q.detach().numpy() - goal + noise))
        our_optimizer.step()
        their_optimizer.step()
        seen += [
            (p.detach().numpy().copy(), q.detach().numpy().copy())
            for p, q in zip(ours, theirs, strict=True)
        ]
    return seen


def assert_same(seen: list[tuple[Array, Array]], dtype: str) -> None:
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    for p, q in seen:
        np.testing.assert_allclose(p, q, rtol=tolerance, atol=tolerance)


@settings(max_examples=25)
@given(sgd_options(), dtypes, seeds)
def test_sgd(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("SGD", options, dtype, seed), dtype)


@settings(max_examples=25)
@given(adam_options, dtypes, seeds)
def test_adam(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("Adam", options, dtype, seed), dtype)


@settings(max_examples=25)
@given(adam_options, dtypes, seeds)
def test_adamw(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("AdamW", options, dtype, seed), dtype)


@settings(max_examples=25)
@given(rmsprop_options, dtypes, seeds)
def test_rmsprop(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("RMSprop", options, dtype, seed), dtype)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_defaults_are_those_of_torch(name: str) -> None:
    ours = getattr(optim, name)([tinytorch.zeros(1)]).defaults
    theirs = getattr(torch.optim, name)([torch.zeros(1)]).defaults
    assert ours == {option: theirs[option] for option in ours}
