"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tinytorch.distributions.distribution import Distribution, Values, broadcast, positive, real
from tinytorch.random import randn
from tinytorch.tensor import Tensor


class Normal(Distribution):
    """The density exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi))

    Args:
        loc: the mean.
        scale: the standard deviation, above 0.

    Raises:
        ValueError: loc is NaN, or scale is not above 0.

    >>> Normal(0.0, 1.0).log_prob(0.0)
    tensor(-0.9189)
    """

    has_rsample = True
    parameters = ("loc", "scale")

    def __init__(self, loc: Values, scale: Values, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)
        self._check("loc", self.loc, real, "a number, not NaN")
        self._check("scale", self.scale, positive, "above 0")

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.loc + self.scale * randn(self._shape(sample_shape), dtype=self.loc.dtype)

    def log_prob(self, value: Values) -> Tensor:
        self._check_value(value, real, "a number, not NaN")
        distance = (value - self.loc) / self.scale
        return -0.5 * distance**2 - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + 0.5 * math.log(2 * math.pi))

    def cdf(self, value: Values) -> Tensor:
        self._check_value(value, real, "a number, not NaN")
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Values) -> Tensor:
        self._check_probability(value)
        (value,) = broadcast(value)
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)
