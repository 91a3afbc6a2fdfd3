"""`Distribution`: what all distributions have, and how their arguments are checked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.creation import arange
from tinytorch.dtypes import DType, Shape
from tinytorch.functions.movement import broadcast_to
from tinytorch.tensor import Tensor

Values = Tensor | float


class Distribution:
    """A batch of independent distributions of one kind.

    Args:
        batch_shape: of the batch: a distribution for each element.
        event_shape: of one draw: () for a number.
        validate_args: check parameters and values; None means yes.
    """

    #: `rsample` gives draws through which gradients flow.
    has_rsample: ClassVar[bool] = False
    #: `enumerate_support` gives all values that occur.
    has_enumerate_support: ClassVar[bool] = False
    #: Names of the parameters, for `repr`.
    parameters: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, batch_shape: Shape = (), event_shape: Shape = (), validate_args: bool | None = None
    ) -> None:
        self.batch_shape = tuple(batch_shape)
        self.event_shape = tuple(event_shape)
        self.validate_args = validate_args is not False

    def expand(self, batch_shape: Iterable[int]) -> Self:
        """The same distributions in a larger batch, to which the batch_shape broadcasts.

        Raises:
            ShapeError: it does not.
        """
        new, shape = copy.copy(self), tuple(batch_shape)
        new.batch_shape = shape
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                event = value.shape[len(self.batch_shape) :]
                setattr(new, name, broadcast_to(value, (*shape, *event)))
        return new

    def sample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape + event_shape, without history."""
        with no_grad():
            return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Iterable[int] = ()) -> Tensor:
        """Draws as a function of the parameters: gradients flow through them.

        Raises:
            NotImplementedError: the draws are no such function.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no rsample, as its draws are discrete: use sample(), and "
            f"log_prob for a gradient (the score function)"
        )

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`, by its old name."""
        return self.sample((n,))

    def log_prob(self, value: Values) -> Tensor:
        """The logarithm of the density, or probability, of a value; of batch_shape.

        Raises:
            ValueError: the value cannot occur.
        """
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Values) -> Tensor:
        """The probability of at most `value`.

        Raises:
            ValueError: the value cannot occur.
        """
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Values) -> Tensor:
        """The quantile: what `cdf` gives `value`, a probability, for.

        Raises:
            ValueError: it is not from 0 to 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values that occur, along a new first dimension.

        Args:
            expand: repeat them for each element of the batch; its dimensions are of size 1 without.
        """
        raise NotImplementedError(f"{type(self).__name__} has no finite number of values")

    def entropy(self) -> Tensor:
        """The expected value of -log_prob, of batch_shape."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy: of n equally probable classes it is n."""
        return self.entropy().exp()

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The value of the largest density, or probability."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def _shape(self, sample_shape: Iterable[int]) -> Shape:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def _check(self, name: str, value: Tensor, holds: Callable[[Any], Any], rule: str) -> None:
        """Raise ValueError if a parameter does not follow a rule in every element."""
        self._check_all(f"the parameter {name} of {type(self).__name__}", value, holds, rule)

    def _check_value(self, value: Values, holds: Callable[[Any], Any], rule: str) -> None:
        """Raise ValueError if a value cannot occur."""
        self._check_all(f"a value for {type(self).__name__}", value, holds, rule)

    def _check_probability(self, value: Values) -> None:
        """Raise ValueError for what is no probability."""
        what = f"a probability for {type(self).__name__}"
        self._check_all(what, value, lambda a: (a >= 0) & (a <= 1), "from 0 to 1")

    def _enumerated(self, count: int, dtype: DType, expand: bool) -> Tensor:
        """The numbers below `count`, for `enumerate_support`."""
        batch = self.batch_shape
        values = arange(count, dtype=dtype).reshape(count, *(1,) * len(batch))
        return broadcast_to(values, (count, *batch)) if expand else values

    def _check_all(self, what: str, value: Any, holds: Callable[[Any], Any], rule: str) -> None:
        if not self.validate_args:
            return
        data = value._data if isinstance(value, Tensor) else np.asarray(value)
        if not isinstance(data, np.ndarray):  # in a trace nobody knows the values
            return
        right = holds(data)
        if not np.all(right):
            wrong = np.broadcast_to(data, np.shape(right))[~np.asarray(right, bool)]
            raise ValueError(
                f"{what} must be {rule}, but {wrong.size} of {np.size(right)} elements are not, "
                f"such as {wrong.flat[0]:.6g}"
            )

    def __repr__(self) -> str:
        shown = []
        for name in self.parameters:
            if name in vars(self):
                value = vars(self)[name]
                one = value.numel() == 1 and isinstance(value._data, np.ndarray)
                shown.append(f"{name}: {value.detach().item() if one else value.shape}")
        return f"{type(self).__name__}({', '.join(shown)})"


def broadcast(*values: Values) -> list[Tensor]:
    """Numbers and tensors as float tensors of one shape."""
    given = [v for v in values if isinstance(v, Tensor)]
    dtype = next((t.dtype for t in given if t.dtype.is_floating_point), None)
    tensors = []
    for value in values:
        t = value if isinstance(value, Tensor) else Tensor(float(value), dtype=dtype)
        tensors.append(t if t.dtype.is_floating_point else t.to(dtype or "float32"))
    shape = np.broadcast_shapes(*(tuple(t.shape) for t in tensors))
    return [t if t.shape == shape else broadcast_to(t, shape) for t in tensors]


def positive(array: Any) -> Any:
    """Whether each element is above 0; NaN is not."""
    return array > 0


def real(array: Any) -> Any:
    """Whether each element is a number, and not NaN."""
    return array == array
