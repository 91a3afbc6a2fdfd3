"""Kullback-Leibler divergences: how far one distribution is from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch.distributions.bernoulli import Bernoulli
from tinytorch.distributions.categorical import Categorical
from tinytorch.distributions.distribution import Distribution
from tinytorch.distributions.exponential import Exponential
from tinytorch.distributions.independent import Independent
from tinytorch.distributions.multivariate_normal import MultivariateNormal, solve_lower
from tinytorch.distributions.normal import Normal
from tinytorch.distributions.uniform import Uniform
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.functions.movement import stack
from tinytorch.tensor import Tensor

Divergence = Callable[[Any, Any], Tensor]
_DIVERGENCES: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """Enter a function of p and q as the divergence for these classes and their subclasses."""

    def enter(function: Divergence) -> Divergence:
        _DIVERGENCES[type_p, type_q] = function
        return function

    return enter


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The expected value of p.log_prob(x) - q.log_prob(x) for x drawn from p; of batch_shape.

    Raises:
        NotImplementedError: there is no formula for the two.

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5)
    """
    for cls_p in type(p).__mro__:
        for cls_q in type(q).__mro__:
            if (found := _DIVERGENCES.get((cls_p, cls_q))) is not None:
                return found(p, q)
    raise NotImplementedError(
        f"there is no KL divergence of {type(p).__name__} from {type(q).__name__}: enter one with "
        f"@register_kl, or estimate it by (p.log_prob(x) - q.log_prob(x)).mean() for samples x of p"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    log_p = [_log(p.probs), _log(1 - p.probs)]
    log_q = [q.probs.log(), (-q.probs).log1p()]
    terms = [
        where(weight == 0, 0.0, weight * (a - b))
        for weight, a, b in zip([p.probs, 1 - p.probs], log_p, log_q, strict=True)
    ]
    return terms[0] + terms[1]


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    _check_sizes(p.param_shape[-1], q.param_shape[-1])
    difference = where(p.probs == 0, 0.0, p.logits - where(q.probs == 0, -float("inf"), q.logits))
    return (p.probs * difference).sum(-1)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low).logical_and(p.high <= q.high)
    return where(inside, ((q.high - q.low) / (p.high - p.low)).log(), float("inf"))


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            f"the events of p have {p.reinterpreted_batch_ndims} dimensions of the batch, those of "
            f"q {q.reinterpreted_batch_ndims}"
        )
    return p.sum_rightmost(kl_divergence(p.base_dist, q.base_dist))


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    n = p.event_shape[0]
    _check_sizes(n, q.event_shape[0])
    columns = [solve_lower(q.scale_tril, p.scale_tril[..., i]) for i in range(n)]
    trace = (stack(columns, -1) ** 2).sum((-2, -1))
    distance = (solve_lower(q.scale_tril, q.loc - p.loc) ** 2).sum(-1)
    volumes = (q._diagonal.log() - p._diagonal.log()).sum(-1)
    return volumes + 0.5 * (trace + distance - n)


def _check_sizes(of_p: int, of_q: int) -> None:
    """Refuse events that only broadcast to each other."""
    if of_p != of_q:
        raise ShapeError(f"kl_divergence: the events of p have {of_p} values, those of q {of_q}")


def _log(x: Tensor) -> Tensor:
    """log(x), and 0 where x is 0: it is multiplied by x."""
    return where(x == 0, 1.0, x).log()
