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
MATRICES = [(3, 4), (6, 2), (3, 3)]
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
        "betas": st.tuples(fractions, st.sampled_from([0.9, 0.999])).map(list),
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
    shapes = MATRICES if name == "Muon" else SHAPES
    start, target = ([rng.normal(size=s).astype(dtype) for s in shapes] for _ in range(2))
    ours = [tinytorch.tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    our_optimizer = getattr(optim, name)(ours, **options)
    their_optimizer = getattr(torch.optim, name)(
        theirs, **options, **({} if name == "Muon" else {"foreach": False})
    )
    sign = -1 if options.get("maximize") else 1
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


@settings(max_examples=12)
@given(sgd_options(), dtypes, seeds)
def test_sgd(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("SGD", options, dtype, seed), dtype)


@settings(max_examples=12)
@given(adam_options, dtypes, seeds)
def test_adam(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("Adam", options, dtype, seed), dtype)


@settings(max_examples=12)
@given(adam_options, dtypes, seeds)
def test_adamw(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("AdamW", options, dtype, seed), dtype)


@settings(max_examples=12)
@given(rmsprop_options, dtypes, seeds)
def test_rmsprop(options: dict[str, Any], dtype: str, seed: int) -> None:
    assert_same(run_both("RMSprop", options, dtype, seed), dtype)


#: For every other optimizer the options that are compared. One that is missing fails below.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "Adagrad": [
        {},
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
        {"lr": 0.1, "eps": 1e-3, "maximize": True},
    ],
    "Adadelta": [{}, {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}],
    "Adamax": [
        {},
        {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
    ],
    "NAdam": [
        {},
        {"lr": 0.1, "betas": (0.5, 0.9), "weight_decay": 0.1, "momentum_decay": 0.1},
        {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    ],
    "RAdam": [
        {},
        {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
        {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
    ],
    "Rprop": [
        {},
        {"lr": 0.1, "etas": (0.6, 1.1), "step_sizes": (1e-3, 0.3)},
        {"lr": 0.1, "maximize": True},
    ],
    "ASGD": [
        {},
        {"lr": 0.1, "lambd": 0.01, "alpha": 0.5, "t0": 20, "weight_decay": 0.1},
        {"lr": 0.05, "maximize": True},
    ],
}
MUON = [
    {"lr": 0.02},
    {"lr": 0.02, "weight_decay": 0.01, "momentum": 0.8, "nesterov": False, "ns_steps": 3},
    {"lr": 0.01, "adjust_lr_fn": "match_rms_adamw", "ns_coefficients": (2.0, -1.5, 0.5)},
]
GENERATED = ("SGD", "Adam", "AdamW", "RMSprop")
ALONE = {"Optimizer", "LBFGS", "Muon"}  # the base; test_lbfgs.py; below


def exported_optimizers() -> list[str]:
    classes = {name: getattr(optim, name) for name in optim.__all__}
    return [
        name
        for name, cls in classes.items()
        if isinstance(cls, type) and issubclass(cls, optim.Optimizer)
    ]


@pytest.mark.parametrize("name", exported_optimizers())
def test_every_optimizer_is_compared(name: str) -> None:
    assert name in OPTIONS or name in {*GENERATED, *ALONE}, (
        f"optim.{name} is compared with nothing: add its options to OPTIONS in {__file__}"
    )


@pytest.mark.slow_beyond(9)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, each in OPTIONS.items() for options in each]
)
def test_the_other_optimizers(name: str, options: dict[str, Any], dtype: str) -> None:
    seen = run_both(name, {"maximize": False, **options}, dtype, 3)
    if name in ("NAdam", "ASGD") and dtype == "float64":  # their float32 state is rounded twice
        for p, q in seen:
            np.testing.assert_allclose(p, q, rtol=1e-6, atol=1e-6)
    else:
        assert_same(seen, dtype)


@pytest.mark.parametrize("name", [*GENERATED, *OPTIONS, "LBFGS", "Muon"])
def test_defaults_are_those_of_torch(name: str) -> None:
    ours = getattr(optim, name)([tinytorch.zeros(1, 1)]).defaults
    theirs = getattr(torch.optim, name)([torch.zeros(1, 1)]).defaults
    assert ours == {option: theirs[option] for option in ours}


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("options", MUON)
@pytest.mark.usefixtures("full_precision")
def test_muon(options: dict[str, Any], dtype: str) -> None:
    assert_same(run_both("Muon", options, dtype, 3), dtype)


def test_muon_beside_bfloat16() -> None:
    for p, q in run_both("Muon", {"lr": 0.02}, "float32", 3)[: len(MATRICES)]:
        np.testing.assert_allclose(p, q, atol=0.1 * 0.02)  # of a step of 0.02


@pytest.fixture
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's Muon orthogonalizes in bfloat16; here its code does so in the gradient's dtype."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)


@pytest.mark.parametrize("name", [*GENERATED, *OPTIONS, "Muon"])
@pytest.mark.usefixtures("full_precision")
def test_states_are_exchanged_with_torch(name: str, rng: np.random.Generator) -> None:
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    shapes = MATRICES if name == "Muon" else SHAPES
    start = [rng.normal(size=shape) for shape in shapes]
    gradients = [[rng.normal(size=shape) for shape in shapes] for _ in range(6)]

    def run(library: Any, params: list[Any], optimizer: Any, steps: slice) -> None:
        for step in gradients[steps]:
            for p, g in zip(params, step, strict=True):
                p.grad = library.tensor(g)
            optimizer.step()

    ours = [tinytorch.tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    mine = getattr(optim, name)(ours, **options)
    other = getattr(torch.optim, name)(theirs, **options)
    run(tinytorch, ours, mine, slice(3))
    run(torch, theirs, other, slice(3))

    from_torch = getattr(optim, name)(ours)
    from_torch.load_state_dict(other.state_dict())
    to_torch = getattr(torch.optim, name)(theirs)
    state = mine.state_dict()
    state["state"] = {
        i: {k: torch.tensor(v.numpy()) for k, v in entries.items()}
        for i, entries in state["state"].items()
    }
    to_torch.load_state_dict(state)
    run(tinytorch, ours, from_torch, slice(3, 6))
    run(torch, theirs, to_torch, slice(3, 6))
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6)
