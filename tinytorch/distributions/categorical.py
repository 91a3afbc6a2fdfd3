"""The categorical distribution: one of several classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.creation import tensor
from tinytorch.distributions.distribution import Distribution, real
from tinytorch.dtypes import Shape, int64
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.functions.movement import broadcast_to
from tinytorch.random import rand
from tinytorch.tensor import Tensor


class Categorical(Distribution):
    """Class k with probability probs[..., k], or proportional to exp(logits[..., k])

    Args:
        probs: (..., K), at least 0; they need not sum to 1. Or
        logits: (..., K), any numbers.

    Raises:
        ValueError: neither or both are given, or probs are negative or all 0.
        ShapeError: there is no dimension of classes.

    >>> import tinytorch
    >>> policy = Categorical(logits=tinytorch.zeros(3, 4))
    >>> policy.sample().shape, policy.entropy()
    ((3,), tensor([1.3863, 1.3863, 1.3863]))
    """

    has_enumerate_support = True
    parameters = ("probs", "logits")

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = probs if probs is not None else logits
        if given is None or (probs is not None and logits is not None):
            raise ValueError("Categorical takes probs or logits, one of them")
        if given.ndim < 1:
            raise ShapeError("Categorical: probs or logits are (..., classes), got a 0-d tensor")
        super().__init__(given.shape[:-1], validate_args=validate_args)
        self._num_events = given.shape[-1]
        if probs is not None:
            self._check("probs", probs, lambda a: (a >= 0) & (a < np.inf), "at least 0, and finite")
            total = probs.sum(-1, keepdim=True)
            self._check("sum of probs", total, lambda a: a > 0, "above 0")
            self.probs = probs / total
            least = float(np.finfo(self.probs.dtype.dtype).eps)
            self.logits = self.probs.clip(least, 1 - least).log()
        else:
            assert logits is not None
            self._check("logits", logits, real, "a number, not NaN")
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
            self.probs = self.logits.exp()

    @property
    def param_shape(self) -> Shape:
        """The shape of probs and logits."""
        return self.logits.shape

    @property
    def mode(self) -> Tensor:
        """The most probable class."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draws by inversion: the number of classes whose cumulated probability a u exceeds."""
        with no_grad():
            cumulated = self.probs.double().cumsum(-1)
            u = rand(*self._shape(sample_shape), 1, dtype="float64")
            return (cumulated <= u * cumulated[..., -1:]).sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        value = value if isinstance(value, Tensor) else tensor(value)  # Tensor(2) has two zeros
        classes = self._num_events
        self._check_value(
            value,
            lambda a: (a >= 0) & (a < classes) & (a == np.floor(a)),
            f"a whole number from 0 to {classes - 1}",
        )
        shape = np.broadcast_shapes(tuple(value.shape), self.batch_shape)
        index = broadcast_to(value.long(), shape).unsqueeze(-1)
        return broadcast_to(self.logits, (*shape, classes)).gather(-1, index).squeeze(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(self._num_events, int64, expand)

    def entropy(self) -> Tensor:
        impossible = self.logits == -float("inf")
        finite = where(impossible, 0.0, self.logits)  # 0 log 0 is 0
        return -(self.probs * finite).sum(-1)

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError("classes have no mean; use probs, or mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError("classes have no variance; use probs, or entropy()")
