"""Distributions beside PyTorch's: values, gradients, shapes, samples and errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch import distributions as ours_module

theirs_module = torch.distributions


def lower(rng: np.random.Generator, *batch: int) -> Any:
    matrix = np.tril(rng.normal(size=(*batch, 3, 3)))
    diagonal = np.arange(3)
    matrix[..., diagonal, diagonal] = rng.uniform(0.5, 2, (*batch, 3))
    return matrix


def spd(rng: np.random.Generator, *batch: int) -> Any:
    factor = lower(rng, *batch)
    return factor @ np.swapaxes(factor, -1, -2)


#: name -> parameters, values, and how to make it: d is the module of distributions.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "Normal": (
        lambda r: [r.normal(size=(4, 3)), r.uniform(0.5, 2, 3)],
        lambda r: r.normal(size=(2, 4, 3)),
        lambda d, loc, scale: d.Normal(loc, scale),
    ),
    "Uniform": (
        lambda r: [r.uniform(-2, 0, (4, 3)), r.uniform(1, 2, 3)],
        lambda r: r.uniform(0, 1, (4, 3)),
        lambda d, low, high: d.Uniform(low, high),
    ),
    "Exponential": (
        lambda r: [r.uniform(0.5, 2, (4, 3))],
        lambda r: r.uniform(0, 3, (2, 4, 3)),
        lambda d, rate: d.Exponential(rate),
    ),
    "Bernoulli": (
        lambda r: [r.normal(size=(4, 3))],
        lambda r: r.integers(0, 2, (2, 4, 3)).astype(float),
        lambda d, logits: d.Bernoulli(logits=logits),
    ),
    "Bernoulli of probs": (
        lambda r: [r.uniform(0.1, 0.9, (4, 3))],
        lambda r: r.integers(0, 2, (4, 3)).astype(float),
        lambda d, probs: d.Bernoulli(probs),
    ),
    "Categorical": (
        lambda r: [r.normal(size=(4, 3))],
        lambda r: r.integers(0, 3, (5, 4)),
        lambda d, logits: d.Categorical(logits=logits),
    ),
    "Categorical of probs": (
        lambda r: [r.uniform(0.1, 2, (4, 3))],
        lambda r: r.integers(0, 3, 4),
        lambda d, probs: d.Categorical(probs),
    ),
    "Independent": (
        lambda r: [r.normal(size=(2, 4, 3)), r.uniform(0.5, 2, 3)],
        lambda r: r.normal(size=(2, 4, 3)),
        lambda d, loc, scale: d.Independent(d.Normal(loc, scale), 2),
    ),
    "MultivariateNormal": (
        lambda r: [r.normal(size=(4, 3)), spd(r)],
        lambda r: r.normal(size=(2, 4, 3)),
        lambda d, loc, covariance: d.MultivariateNormal(loc, covariance),
    ),
    "MultivariateNormal of scale_tril": (
        lambda r: [r.normal(size=3), lower(r, 4)],
        lambda r: r.normal(size=(4, 3)),
        lambda d, loc, scale: d.MultivariateNormal(loc, scale_tril=scale),
    ),
}
each = pytest.mark.parametrize("name", CASES)


def both(name: str, rng: np.random.Generator) -> tuple[Any, Any]:
    """Ours and PyTorch's, of the same parameters."""
    parameters, _, make = CASES[name]
    given = parameters(rng)
    ours = make(ours_module, *map(tinytorch.tensor, given))
    return ours, make(theirs_module, *map(torch.tensor, given))


def module_of(x: Any) -> Any:
    return theirs_module if isinstance(x, torch.Tensor) else ours_module


def test_every_distribution_is_compared() -> None:
    exported = {
        name
        for name in ours_module.__all__
        if isinstance(getattr(ours_module, name), type) and name != "Distribution"
    }
    missing = exported - {name.split(" ")[0] for name in CASES}
    assert not missing, f"{missing} are compared with nothing: add them to CASES in {__file__}"


@each
def test_log_prob_and_its_gradients(name: str, rng: np.random.Generator) -> None:
    parameters, values, make = CASES[name]
    value = values(rng)
    differentiable = name.split(" ")[0] in ("Normal", "Exponential", "Independent")

    def log_prob(*args: Any) -> Any:
        *given, x = args if differentiable else (*args, None)
        if x is None:
            library = torch if isinstance(args[0], torch.Tensor) else tinytorch
            x = library.tensor(value)
        return make(module_of(args[0]), *given).log_prob(x)

    assert_like_torch(log_prob, None, *parameters(rng), *([value] if differentiable else []))


@each
@pytest.mark.parametrize("what", ["entropy", "perplexity", "mean", "variance", "stddev"])
def test_entropy_and_moments(name: str, what: str, rng: np.random.Generator) -> None:
    parameters, _, make = CASES[name]
    if name.startswith("Categorical") and what not in ("entropy", "perplexity"):
        with pytest.raises(NotImplementedError, match="classes have no"):
            getattr(make(ours_module, *map(tinytorch.tensor, parameters(rng))), what)
        return

    def compute(*given: Any) -> Any:
        result = getattr(make(module_of(given[0]), *given), what)
        return result() if callable(result) else result * 1

    inexact = name == "Independent" and what != "entropy"
    if not inexact:
        assert_like_torch(compute, None, *parameters(rng))


@pytest.mark.parametrize("name", ["Normal", "Uniform", "Exponential"])
def test_cdf(name: str, rng: np.random.Generator) -> None:
    parameters, values, make = CASES[name]
    value = values(rng)

    def cdf(*given: Any) -> Any:
        library = torch if isinstance(given[0], torch.Tensor) else tinytorch
        return make(module_of(given[0]), *given).cdf(library.tensor(value))

    assert_like_torch(cdf, None, *parameters(rng))


@pytest.mark.parametrize("name", ["Normal", "Uniform", "Exponential"])
def test_icdf(name: str, rng: np.random.Generator) -> None:
    parameters, _, make = CASES[name]
    p = rng.uniform(0, 1, (2, 4, 3))

    def icdf(*given: Any) -> Any:
        *args, x = given
        return make(module_of(x), *args).icdf(x)

    assert_like_torch(icdf, None, *parameters(rng), p)
    ours = make(ours_module, *map(tinytorch.tensor, parameters(rng)))
    theirs = make(theirs_module, *map(torch.tensor, parameters(np.random.default_rng(0))))
    np.testing.assert_allclose(ours.cdf(ours.icdf(tinytorch.tensor(p))).numpy(), p, rtol=1e-6)
    for edge in (0.0, 1.0):
        found = ours.icdf(edge).numpy()
        assert (np.isinf(found) == np.isinf(theirs.icdf(torch.tensor(edge)).numpy())).all()
    for wrong in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match=f"a probability for {name} must be from 0 to 1"):
            ours.icdf(wrong)


@each
def test_mode_support_and_what_there_is_not(name: str, rng: np.random.Generator) -> None:
    ours, theirs = both(name, rng)
    np.testing.assert_allclose(ours.mode.numpy(), theirs.mode.numpy())
    assert ours.sample_n(5).shape == tuple(theirs.sample((5,)).shape)
    assert ours.has_rsample == theirs.has_rsample
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    for expand in (True, False):
        if not theirs.has_enumerate_support:
            with pytest.raises(NotImplementedError):
                ours.enumerate_support(expand)
            continue
        values, expected = (d.enumerate_support(expand) for d in (ours, theirs))
        assert values.tolist() == expected.tolist()
        assert values.dtype.name == str(expected.dtype).removeprefix("torch.")
    for method in ("cdf", "icdf"):
        try:
            getattr(theirs, method)(torch.tensor(0.5))
        except NotImplementedError:
            with pytest.raises(NotImplementedError, match=f"has no {method}"):
                getattr(ours, method)(0.5)


def test_the_mode_of_a_fair_coin() -> None:
    for d, t in ((ours_module, tinytorch), (theirs_module, torch)):
        coins = d.Bernoulli(t.tensor([0.2, 0.5, 0.9]))
        np.testing.assert_array_equal(coins.mode.numpy(), [0.0, np.nan, 1.0])
        assert tuple(coins.param_shape) == (3,)


def test_a_precision_matrix(rng: np.random.Generator) -> None:
    loc, precision, value = rng.normal(size=3), spd(rng, 2), rng.normal(size=(2, 3))

    def log_prob(loc: Any, precision: Any, value: Any) -> Any:
        normal = module_of(loc).MultivariateNormal(loc, precision_matrix=precision)
        return normal.log_prob(value) + normal.precision_matrix.sum((-1, -2))

    symmetric = (precision + precision.swapaxes(-1, -2)) / 2
    ours, theirs = (
        log_prob(*(t.tensor(a) for a in (loc, symmetric, value))) for t in (tinytorch, torch)
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    normal = ours_module.MultivariateNormal(*(tinytorch.tensor(a) for a in (loc, symmetric)))
    np.testing.assert_allclose(
        (normal.precision_matrix @ normal.covariance_matrix).numpy(),
        np.broadcast_to(np.eye(3), (2, 3, 3)),
        atol=1e-9,
    )
    with pytest.raises(ValueError, match=r"precision_matrix \(its pivots\)"):
        ours_module.MultivariateNormal(
            tinytorch.zeros(2), precision_matrix=tinytorch.tensor([[1.0, 2.0], [2.0, 1.0]])
        )


PAIRS = [name for name in CASES if name != "Uniform"]


@pytest.mark.parametrize("name", PAIRS)
def test_kl_divergence(name: str, rng: np.random.Generator) -> None:
    parameters, _, make = CASES[name]
    p, q = parameters(rng), parameters(rng)

    def kl(*given: Any) -> Any:
        d = module_of(given[0])
        return d.kl_divergence(make(d, *given[: len(p)]), make(d, *given[len(p) :]))

    assert_like_torch(kl, None, *p, *q)


def test_kl_at_the_edges() -> None:
    for d, t in ((ours_module, tinytorch), (theirs_module, torch)):
        wide, narrow = d.Uniform(t.tensor([0.0]), t.tensor([2.0])), d.Uniform(0.5, 1.0)
        assert d.kl_divergence(narrow, wide).tolist() == pytest.approx([np.log(4)])
        assert d.kl_divergence(wide, narrow).tolist() == [np.inf]
        p, q = (d.Categorical(t.tensor(v)) for v in ([0.0, 1.0], [0.5, 0.5]))
        assert d.kl_divergence(p, q).item() == pytest.approx(np.log(2), rel=1e-5)
        assert d.kl_divergence(q, p).item() == np.inf
        p, q = (d.Bernoulli(t.tensor(v)) for v in (1.0, 0.5))
        assert d.kl_divergence(p, q).item() == pytest.approx(np.log(2), rel=1e-5)
        with pytest.raises(NotImplementedError):
            d.kl_divergence(d.Normal(0.0, 1.0), d.Categorical(t.ones(2)))


def test_a_divergence_of_ones_own() -> None:
    class Mine(ours_module.Normal):
        pass

    @ours_module.register_kl(Mine, ours_module.Normal)
    def divergence(p: Any, q: Any) -> Any:
        return tinytorch.tensor(7.0)

    normal = ours_module.Normal(0.0, 1.0)
    assert ours_module.kl_divergence(Mine(0.0, 1.0), normal).item() == 7
    assert ours_module.kl_divergence(normal, Mine(0.0, 1.0)).item() == 0


# -- samples ---------------------------------------------------------------------------------------


@pytest.mark.slow_beyond(8)
@each
def test_samples_have_the_shape_and_the_moments(name: str, rng: np.random.Generator) -> None:
    d, other = both(name, rng)
    assert d.batch_shape == tuple(other.batch_shape)
    assert d.event_shape == tuple(other.event_shape)
    x = d.sample((4000,))
    assert tuple(x.shape) == tuple(other.sample((4000,)).shape)
    assert not x.requires_grad
    assert tuple(d.sample().shape) == tuple(other.sample().shape)
    assert d.has_rsample == other.has_rsample
    drawn = x.double().numpy()
    if name.startswith("Categorical"):
        counts = np.stack([(drawn == k).mean(0) for k in range(3)], -1)
        np.testing.assert_allclose(counts, other.probs.numpy(), atol=0.05)
    else:
        spread = np.sqrt(other.variance.numpy())
        assert np.all(np.abs(drawn.mean(0) - other.mean.numpy()) < 0.09 * spread)
        np.testing.assert_allclose(drawn.std(0), spread, rtol=0.15)


def test_the_covariance_of_samples(rng: np.random.Generator) -> None:
    covariance = spd(rng)
    d = ours_module.MultivariateNormal(tinytorch.zeros(3, dtype="float64"),
                                       tinytorch.tensor(covariance))  # fmt: skip
    np.testing.assert_allclose(d.covariance_matrix.numpy(), covariance, rtol=1e-12)
    found = np.cov(d.sample((20_000,)).numpy().T)
    np.testing.assert_allclose(found, covariance, atol=0.1 * np.abs(covariance).max())


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("Bernoulli", "Categorical")])
def test_gradients_flow_through_rsample(name: str, rng: np.random.Generator) -> None:
    parameters, _, make = CASES[name]
    given = [tinytorch.tensor(a, requires_grad=True) for a in parameters(rng)]
    d = make(ours_module, *given)
    if not d.has_rsample:
        with pytest.raises(NotImplementedError, match="has no rsample, as its draws are discrete"):
            d.rsample()
        return
    tinytorch.manual_seed(1)
    d.rsample((2,)).sum().backward()
    tinytorch.manual_seed(1)
    for x in given:
        assert x.grad is not None
    index = np.unravel_index(0, given[0].shape)
    moved = [x.detach().clone() for x in given]
    moved[0][index] += 1e-6
    change = make(ours_module, *moved).rsample((2,)).sum()
    tinytorch.manual_seed(1)
    change = (change - d.rsample((2,)).sum()).item() / 1e-6
    assert change == pytest.approx(given[0].grad.numpy()[index], rel=1e-4)


def test_impossible_classes_are_never_drawn() -> None:
    d = ours_module.Categorical(tinytorch.tensor([0.0, 1.0, 0.0, 2.0, 0.0]))
    assert set(d.sample((2000,)).tolist()) == {1, 3}
    logits = ours_module.Categorical(logits=tinytorch.tensor([0.0, -float("inf"), 0.0]))
    assert set(logits.sample((200,)).tolist()) == {0, 2}
    assert logits.entropy().item() == pytest.approx(np.log(2))
    certain = ours_module.Bernoulli(tinytorch.tensor([0.0, 1.0]))
    assert certain.sample((50,)).numpy().mean(0).tolist() == [0, 1]
    assert certain.sample().dtype is tinytorch.float32


def test_a_policy_gradient_as_programs_write_it(rng: np.random.Generator) -> None:
    logits, actions = rng.normal(size=(5, 3)), rng.integers(0, 3, 5)
    grads = []
    for t, d in ((tinytorch, ours_module), (torch, theirs_module)):
        x = t.tensor(logits, requires_grad=True)
        m = d.Categorical(logits=x)
        loss = (-m.log_prob(t.tensor(actions)) * t.arange(5)).mean() - 0.1 * m.entropy().mean()
        loss.backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-10)


# -- arguments -------------------------------------------------------------------------------------


def test_classes_and_counts_may_be_integers() -> None:
    ours = ours_module.Categorical(tinytorch.tensor([1, 3]))
    theirs = theirs_module.Categorical(torch.tensor([1, 3]))
    np.testing.assert_allclose(ours.probs.numpy(), theirs.probs.numpy())
    assert ours.log_prob(1).item() == pytest.approx(theirs.log_prob(torch.tensor(1)).item())
    assert ours.log_prob(1).shape == ()


def test_classes_are_not_compared_with_others() -> None:
    three, one = (ours_module.Categorical(tinytorch.ones(n)) for n in (3, 1))
    with pytest.raises(tinytorch.ShapeError, match="events of p have 3 values, those of q 1"):
        ours_module.kl_divergence(three, one)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d, t: d.Normal(0.0, -1.0), "parameter scale of Normal must be above 0, but 1 of 1"),
        (lambda d, t: d.Normal(t.tensor([0.0, float("nan")]), 1.0), "loc of Normal must be a num"),
        (lambda d, t: d.Uniform(1.0, t.tensor([0.5, 2.0])), "must be above 0, but 1 of 2 elements"),
        (lambda d, t: d.Exponential(0.0), "rate of Exponential must be above 0, but 1 of 1"),
        (lambda d, t: d.Bernoulli(1.5), "from 0 to 1, but 1 of 1 elements are not, such as 1.5"),
        (lambda d, t: d.Bernoulli(), "Bernoulli takes probs or logits, one of them"),
        (lambda d, t: d.Categorical(t.tensor([-1.0, 2.0])), "at least 0, and finite"),
        (lambda d, t: d.Categorical(t.ones(2), t.ones(2)), "takes probs or logits, one of them"),
        (lambda d, t: d.Categorical(t.tensor(1.0)), "are (..., classes), got a 0-d tensor"),
        (lambda d, t: d.Categorical(t.ones(3)).log_prob(t.tensor(3)), "a whole number from 0 to 2"),
        (lambda d, t: d.Bernoulli(0.5).log_prob(0.3), "a value for Bernoulli must be 0 or 1"),
        (lambda d, t: d.Exponential(1.0).log_prob(-1.0), "at least 0, but 1 of 1"),
        (lambda d, t: d.Uniform(0.0, 1.0).log_prob(t.tensor([0.5, 2.0])), "within low and high"),
        (lambda d, t: d.Independent(d.Normal(0.0, 1.0), 1), "from 0 to the 0 dimensions"),
        (
            lambda d, t: d.MultivariateNormal(t.zeros(2), t.tensor([[1.0, 2.0], [2.0, 1.0]])),
            "its pivots) of MultivariateNormal must be positive definite",
        ),
        (
            lambda d, t: d.MultivariateNormal(t.zeros(2), t.tensor([[1.0, 2.0], [0.0, 1.0]])),
            "covariance_matrix of MultivariateNormal must be symmetric",
        ),
        (
            lambda d, t: d.MultivariateNormal(t.zeros(3), t.eye(3)).log_prob(t.zeros(4, 1)),
            "MultivariateNormal: a value is (..., 3), got (4, 1)",
        ),
        (
            lambda d, t: d.kl_divergence(
                d.MultivariateNormal(t.zeros(1), t.eye(1)),
                d.MultivariateNormal(t.zeros(2), t.eye(2)),
            ),
            "kl_divergence: the events of p have 1 values, those of q 2",
        ),
        (lambda d, t: d.MultivariateNormal(t.zeros(2)), "precision_matrix or scale_tril, one of"),
        (lambda d, t: d.MultivariateNormal(t.zeros(3), t.eye(2)), "needs a matrix (..., n, n), go"),
    ],
)
def test_wrong_arguments_are_refused_by_both(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make(ours_module, tinytorch)
    if "needs a matrix" not in message:  # which PyTorch finds out later
        with pytest.raises((ValueError, RuntimeError)):
            make(theirs_module, torch)


@pytest.mark.parametrize(
    "make",
    [
        lambda d, t: d.Normal(t([0.0, 1.0]), t([1.0, 2.0])),
        lambda d, t: d.Uniform(t([-1.0, 0.0]), t([3.0, 4.0])),
        lambda d, t: d.Exponential(t([1.0, 2.0])),
        lambda d, t: d.Bernoulli(logits=t([0.5, -1.0])),
        lambda d, t: d.Categorical(probs=t([[0.2, 0.8], [0.5, 0.5]])),
        lambda d, t: d.MultivariateNormal(t([[0.0, 1.0]]), t([[2.0, 0.5], [0.5, 1.0]])),
        lambda d, t: d.Independent(d.Normal(t([[0.0, 1.0]]), t([[1.0, 2.0]])), 1),
    ],
)
def test_expand(make: Any) -> None:
    ours = make(ours_module, tinytorch.tensor).expand((3, 2))
    theirs = make(torch.distributions, torch.tensor).expand((3, 2))
    assert ours.batch_shape == tuple(theirs.batch_shape) == (3, 2)
    assert ours.event_shape == tuple(theirs.event_shape)
    assert ours.sample((4,)).shape == tuple(theirs.sample((4,)).shape)
    if hasattr(theirs, "param_shape") and isinstance(ours, ours_module.Categorical):
        assert ours.param_shape == tuple(theirs.param_shape)
    value = np.ones((3, 2, *ours.event_shape), np.float32)
    np.testing.assert_allclose(
        ours.log_prob(tinytorch.tensor(value)).numpy(),
        theirs.log_prob(torch.tensor(value)).numpy(),
        rtol=1e-5,
    )
    assert ours.entropy().shape == tuple(theirs.entropy().shape)
    with pytest.raises(tinytorch.ShapeError, match=r"\(2,\) does not expand to \(3,\)"):
        ours_module.Normal(tinytorch.zeros(2), 1.0).expand((3,))


def test_checks_can_be_left_out() -> None:
    for d, t in ((ours_module, tinytorch), (theirs_module, torch)):
        uniform = d.Uniform(t.tensor(0.0), t.tensor(1.0), validate_args=False)
        assert uniform.log_prob(t.tensor([-1.0, 0.5, 1.0])).tolist() == [-np.inf, 0, -np.inf]


def test_repr() -> None:
    assert repr(ours_module.Normal(0.0, 1.5)) == "Normal(loc: 0.0, scale: 1.5)"
    assert repr(ours_module.Categorical(tinytorch.ones(2, 3))).startswith("Categorical(probs: (2, ")


def test_log_prob_can_be_traced() -> None:
    from tinytorch.graph import trace

    def loss(x: Any, value: Any) -> Any:
        return -ours_module.Normal(x, x.exp()).log_prob(value).sum()

    x, value = tinytorch.tensor([0.1, 0.2]), tinytorch.tensor([1.0, -1.0])
    assert trace(loss, x, value)(x, value).item() == pytest.approx(loss(x, value).item())
