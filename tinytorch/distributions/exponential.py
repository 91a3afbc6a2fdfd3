"""The exponential distribution."""

from __future__ import annotations

from collections.abc import Iterable

from tinytorch.creation import zeros_like
from tinytorch.distributions.distribution import Distribution, Values, broadcast, positive
from tinytorch.random import rand
from tinytorch.tensor import Tensor


class Exponential(Distribution):
    """The density rate exp(-rate x) for x from 0

    Args:
        rate: one over the mean, above 0.

    Raises:
        ValueError: rate is not above 0.

    >>> Exponential(2.0).log_prob(0.0)
    tensor(0.6931)
    """

    has_rsample = True
    parameters = ("rate",)

    def __init__(self, rate: Values, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)
        self._check("rate", self.rate, positive, "above 0")

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        u = rand(self._shape(sample_shape), dtype=self.rate.dtype)  # below 1, so 1 - u is above 0
        return -(-u).log1p() / self.rate

    def log_prob(self, value: Values) -> Tensor:
        self._check_value(value, lambda a: a >= 0, "at least 0")
        return self.rate.log() - self.rate * value

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    def cdf(self, value: Values) -> Tensor:
        self._check_value(value, lambda a: a >= 0, "at least 0")
        return -(-self.rate * value).expm1()

    def icdf(self, value: Values) -> Tensor:
        self._check_probability(value)
        (value,) = broadcast(value)
        return -(-value).log1p() / self.rate
