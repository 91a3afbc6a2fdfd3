"""The Bernoulli distribution: one yes or no."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.distributions.distribution import Distribution, Values, broadcast, real
from tinytorch.dtypes import Shape
from tinytorch.functions.elementwise import where
from tinytorch.random import rand
from tinytorch.tensor import Tensor


class Bernoulli(Distribution):
    """1 with probability p = probs = 1 / (1 + exp(-logits)), otherwise 0

    Args:
        probs: p, from 0 to 1; or
        logits: log(p / (1 - p)).

    Raises:
        ValueError: neither or both are given, or probs is out of range.

    >>> Bernoulli(probs=0.25).log_prob(1.0)
    tensor(-1.3863)
    """

    has_enumerate_support = True
    parameters = ("probs", "logits")

    def __init__(
        self,
        probs: Values | None = None,
        logits: Values | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Bernoulli takes probs or logits, one of them")
        given = probs if probs is not None else logits
        assert given is not None
        (value,) = broadcast(given)
        super().__init__(value.shape, validate_args=validate_args)
        if probs is not None:
            self._check("probs", value, lambda a: (a >= 0) & (a <= 1), "from 0 to 1")
            self.probs = value
            least = float(np.finfo(value.dtype.dtype).eps)
            clipped = value.clip(least, 1 - least)  # so that certainty has finite logits
            self.logits = clipped.log() - (-clipped).log1p()
        else:
            self._check("logits", value, real, "a number, not NaN")
            self.logits = value
            self.probs = value.sigmoid()

    @property
    def param_shape(self) -> Shape:
        """The shape of probs and logits."""
        return self.probs.shape

    @property
    def mode(self) -> Tensor:
        """The more probable value; NaN where both are equally so."""
        probs = self.probs.detach()
        return where(probs == 0.5, math.nan, (probs >= 0.5).to(probs.dtype))

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        with no_grad():
            u = rand(self._shape(sample_shape), dtype=self.probs.dtype)
            return (u < self.probs).to(self.probs.dtype)

    def log_prob(self, value: Values) -> Tensor:
        self._check_value(value, lambda a: (a == 0) | (a == 1), "0 or 1")
        return self.logits * value - _softplus(self.logits)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(2, self.probs.dtype, expand)

    def entropy(self) -> Tensor:
        return _softplus(self.logits) - self.logits * self.probs


def _softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return x.relu() + (-x.abs()).exp().log1p()
