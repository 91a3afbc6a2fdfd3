"""`Independent`: some dimensions of a batch taken as one event."""

from __future__ import annotations

from collections.abc import Iterable

from tinytorch.distributions.distribution import Distribution, Values
from tinytorch.tensor import Tensor


class Independent(Distribution):
    """A distribution whose last batch dimensions are one event: log-probabilities add up

    Args:
        base_distribution: the distribution.
        reinterpreted_batch_ndims: how many of its batch dimensions become part of the event.

    Raises:
        ValueError: it has not as many.

    >>> import tinytorch
    >>> from tinytorch.distributions.normal import Normal
    >>> vector = Independent(Normal(tinytorch.zeros(2, 3), tinytorch.ones(3)), 1)
    >>> vector.batch_shape, vector.event_shape
    ((2,), (3,))
    """

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch = base_distribution.batch_shape
        kept = len(batch) - reinterpreted_batch_ndims
        if not 0 <= reinterpreted_batch_ndims <= len(batch):
            raise ValueError(
                f"reinterpreted_batch_ndims must be from 0 to the {len(batch)} dimensions of the "
                f"batch {batch}, got {reinterpreted_batch_ndims}"
            )
        event = (*batch[kept:], *base_distribution.event_shape)
        super().__init__(batch[:kept], event, validate_args)
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def expand(self, batch_shape: Iterable[int]) -> Independent:
        """The same distributions in a larger batch, to which the batch_shape broadcasts."""
        count = self.reinterpreted_batch_ndims
        base = self.base_dist.expand((*batch_shape, *self.event_shape[:count]))
        return Independent(base, count, self.validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the base has, and no dimension of its batch is part of the event."""
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError(
                "Independent: the values of several numbers are all combinations of these"
            )
        return self.base_dist.enumerate_support(expand)

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Values) -> Tensor:
        return self.sum_rightmost(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self.sum_rightmost(self.base_dist.entropy())

    def sum_rightmost(self, x: Tensor) -> Tensor:
        """The sum over the dimensions that are part of the event."""
        count = self.reinterpreted_batch_ndims
        return x.sum(tuple(range(-count, 0))) if count else x

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
