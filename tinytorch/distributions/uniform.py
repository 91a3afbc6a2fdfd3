"""The uniform distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tinytorch.creation import full_like
from tinytorch.distributions.distribution import Distribution, Values, broadcast
from tinytorch.functions.elementwise import where
from tinytorch.random import rand
from tinytorch.tensor import Tensor


class Uniform(Distribution):
    """The density 1 / (high - low) from low to below high

    Args:
        low, high: the bounds, low below high.

    Raises:
        ValueError: low is not below high.

    >>> Uniform(1.0, 3.0).log_prob(2.0)
    tensor(-0.6931)
    """

    has_rsample = True
    parameters = ("low", "high")

    def __init__(self, low: Values, high: Values, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        self._check("high - low", self.high - self.low, lambda a: a > 0, "above 0")

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """NaN: no value is more probable than the others."""
        return full_like(self.high, math.nan)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        u = rand(self._shape(sample_shape), dtype=self.low.dtype)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Values) -> Tensor:
        (value,) = broadcast(value)
        inside = (self.low.detach() <= value.detach()).logical_and(
            value.detach() <= self.high.detach()
        )
        self._check_value(inside.double(), lambda a: a == 1, "within low and high (1, not 0)")
        density = -(self.high - self.low).log()
        return where(inside.logical_and(value < self.high), density, -float("inf"))

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def cdf(self, value: Values) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clip(0.0, 1.0)

    def icdf(self, value: Values) -> Tensor:
        self._check_probability(value)
        return self.low + value * (self.high - self.low)
