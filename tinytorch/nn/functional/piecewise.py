"""Activation functions made of straight pieces; at a bound the flat one gives the gradient."""

from __future__ import annotations

import math

import numpy as np

from tinytorch.functions.elementwise import abs, clip, logical_or, where
from tinytorch.functions.fusing import fuse
from tinytorch.functions.scattering import masked_fill
from tinytorch.nn.functional.activation import leaky_relu
from tinytorch.nn.functional.arguments import inplaceable
from tinytorch.random import Generator, rand_like
from tinytorch.tensor import Tensor


@inplaceable
def hardtanh(
    x: Tensor,
    min_val: float = -1.0,
    max_val: float = 1.0,
) -> Tensor:
    """x limited to [min_val, max_val]. The gradient at the bounds is 0, unlike that of `clip`.

    Raises:
        ValueError: min_val is above max_val.
    """
    if min_val > max_val:  # of NaN that is not true: it makes everything NaN
        raise ValueError(f"hardtanh: min_val {min_val} must not be above max_val {max_val}")
    is_float = x.dtype.is_floating_point
    if not is_float and float(min_val).is_integer() and float(max_val).is_integer():
        min_val, max_val = int(min_val), int(max_val)  # integers stay integers
    if not is_float or (not x.requires_grad and isinstance(x._data, np.ndarray)):
        return clip(x, min_val, max_val)
    bound = clip(x, min_val, max_val).detach()
    is_nan = min_val != min_val or max_val != max_val
    inside = x + bound if is_nan else x  # NaN then, whose gradient is that of x
    return where(logical_or(x <= min_val, x >= max_val), bound, inside)


@inplaceable
def relu6(x: Tensor) -> Tensor:
    """x limited to [0, 6].

    Source: A. Krizhevsky, "Convolutional deep belief networks on CIFAR-10", 2010.
    """
    return hardtanh(x, 0.0, 6.0)


@inplaceable
def hardsigmoid(
    x: Tensor,
) -> Tensor:
    """relu6(x + 3) / 6

    Source: A. Howard et al., "Searching for MobileNetV3", 2019, section 5.2, as is `hardswish`.
    """
    return relu6(x + 3.0) / 6.0


@inplaceable
def hardswish(
    x: Tensor,
) -> Tensor:
    """x * relu6(x + 3) / 6"""
    return x * relu6(x + 3.0) / 6.0


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where |x| <= lambd, x elsewhere."""
    return where(abs(x) <= lambd, 0.0, x)


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where |x| <= lambd, and elsewhere x moved towards 0 by lambd.

    Raises:
        ValueError: lambd is negative, or not finite.
    """
    if not 0 <= lambd < math.inf:
        raise ValueError(f"softshrink: lambd must be a number from 0 up, not {lambd}")
    return x - clip(x, -lambd, lambd)


@inplaceable
def threshold(
    x: Tensor,
    threshold: float,
    value: float,
) -> Tensor:
    """x where x > threshold, `value` elsewhere; the dtype stays x's."""
    return masked_fill(x, x <= threshold, value)


@inplaceable
def rrelu(
    x: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """x where x > 0, slope * x elsewhere; in training each slope is drawn from [lower, upper).

    Otherwise the slope is the mean of the two.

    Source: B. Xu et al., "Empirical evaluation of rectified activations in convolutional network",
    2015.

    Raises:
        ValueError: lower is above upper, or one is not finite.
    """
    if not -math.inf < lower <= upper < math.inf:
        raise ValueError(f"rrelu: there is no slope from {lower} to {upper}")
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    slope = rand_like(x, generator=generator) * (upper - lower) + lower
    return where(x <= 0, x * slope, x)


fuse(globals(), "hardtanh relu6 hardsigmoid hardswish hardshrink softshrink threshold")
