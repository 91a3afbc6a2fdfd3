"""Dropout."""

from __future__ import annotations

from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import where
from tinytorch.nn.functional.activation import SELU_ALPHA, SELU_SCALE
from tinytorch.nn.functional.arguments import inplaceable
from tinytorch.random import Generator, rand
from tinytorch.tensor import Tensor


@inplaceable
def dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """x with every element 0 with probability p, and x / (1 - p) otherwise; out of training, x.

    Args:
        x: of any shape.
        p: from 0 to 1.
        generator: of the random numbers; by default the one that `manual_seed` seeds.

    Returns:
        As x.

    Raises:
        ValueError: p is not a probability.

    Source: N. Srivastava et al., "Dropout: a simple way to prevent neural networks from
    overfitting", 2014 (in its inverted form, which leaves evaluation untouched).
    """
    return drop(x, x.shape, p, training, generator)


@inplaceable
def dropout1d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """x with whole channels of a signal, (n, channels, length), dropped as by `dropout`."""
    return _drop_channels("dropout1d", x, 1, p, training, generator)


@inplaceable
def dropout2d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """As `dropout`, but a channel of an image is dropped as a whole.

    Args:
        x: (n, channels, h, w)

    Raises:
        ShapeError: x has another number of dimensions.
        ValueError: p is not a probability.

    Source: J. Tompson et al., "Efficient object localization using convolutional networks", 2015.
    """
    return _drop_channels("dropout2d", x, 2, p, training, generator)


@inplaceable
def dropout3d(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """x with whole channels of a volume, (n, channels, d, h, w), dropped as by `dropout`."""
    return _drop_channels("dropout3d", x, 3, p, training, generator)


def _drop_channels(
    name: str,
    x: Tensor,
    dims: int,
    p: float,
    training: bool,
    generator: Generator | None,
) -> Tensor:
    """Drop whole channels of x (n, channels, ...) or, for one sample, (channels, ...).

    `dropout2d` takes three dimensions for (n, channels, length), as PyTorch does.
    """
    allowed = (dims + 1, dims + 2)
    if x.ndim not in allowed:
        raise ShapeError(
            f"{name}: the input must be (n, channels, {', '.join('dhw'[3 - dims :])}), not "
            f"{x.shape}"
        )
    kept = 2 if x.ndim == dims + 2 or dims == 2 else 1
    shape = (*x.shape[:kept], *(1,) * (x.ndim - kept))
    return drop(x, shape, p, training, generator)


@inplaceable
def alpha_dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Dropout for SELU networks: what is dropped becomes SELU's limit, and mean and variance stay.

    Source: G. Klambauer et al., "Self-normalizing neural networks", 2017, section 4.
    """
    check_probability(p)
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    limit = -SELU_ALPHA * SELU_SCALE
    scale = ((1 - p) * (1 + p * limit**2)) ** -0.5
    keep = rand(x.shape, dtype=x.dtype, generator=generator) >= p
    out: Tensor = where(keep, x, limit) * scale - p * limit * scale
    return out


def check_probability(p: float) -> float:
    """p itself; raises ValueError if it is not a probability."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p must be from 0 to 1, not {p}")
    return p


def drop(x: Tensor, shape: Shape, p: float, training: bool, generator: Generator | None) -> Tensor:
    """x * mask / (1 - p), where the mask is 0 with probability p and 1 otherwise.

    Args:
        x: of any shape, and so the result.
        shape: of the mask, which broadcasts to x: one draw for each of its elements.
        p: from 0 to 1. For 1 the result is 0 everywhere.
        training: if False, or if p is 0, the result is x itself.
        generator: of the random numbers, which `rand` draws in x's dtype.

    Raises:
        ValueError: p is not a probability (`check_probability`).
    """
    check_probability(p)
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0.0
    keep = rand(shape, dtype=x.dtype, generator=generator) >= p
    return x * (keep.to(x.dtype) * (1 / (1 - p)))
