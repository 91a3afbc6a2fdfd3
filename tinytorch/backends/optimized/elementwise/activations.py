"""Activation functions that are one op each: relu and gelu, with their gradients.

Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016, arXiv:1606.08415.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tinytorch.backends.optimized.elementwise.loops import compile_elementwise
from tinytorch.backends.optimized.elementwise.math import standard_normal
from tinytorch.dtypes import Array

SQRT_HALF = math.sqrt(0.5)
DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def relu_scalar(x: float) -> float:
    """max(x, 0); NaN stays NaN."""
    return max(x, 0)


def relu_backward_scalar(g: float, out: float) -> float:
    return g if out > 0 else 0


def gelu_scalar(x: float) -> float:
    """x times the probability that a standard normal variable is below x."""
    return 0.5 * x * (1 + math.erf(x * SQRT_HALF))


def gelu_by_density_scalar(x: float) -> float:
    """The same from what its gradient needs, in a loop that computes both."""
    below, _ = standard_normal(x)
    return x * below


def gelu_backward_scalar(g: float, x: float) -> float:
    below, density = standard_normal(x)  # both by one exp, and without a division
    return g * (below + x * (DENSITY_AT_0 * density))


def gelu_tanh_scalar(x: float) -> float:
    """The approximation by tanh.

    0.5 (1 + tanh u) is written as 1 / (1 + exp(-2 u)), or, where that exp would be larger than 1,
    as exp(2 u) / (1 + exp(2 u)): the same number with an exp that cannot overflow.
    """
    doubled = x * (2 * SQRT_2_OVER_PI + 2 * SQRT_2_OVER_PI * CUBIC * x * x)
    e = math.exp(-abs(doubled))
    part = x / (1 + e)
    return e * part if doubled < 0 else part


def silu_scalar(x: float) -> float:
    """x sigmoid(x), with an exp that cannot overflow, as in `gelu_tanh_scalar`."""
    e = math.exp(-abs(x))
    part = x / (1 + e)
    return e * part if x < 0 else part


def gelu_tanh_backward_scalar(g: float, x: float) -> float:
    doubled = x * (2 * SQRT_2_OVER_PI + 2 * SQRT_2_OVER_PI * CUBIC * x * x)
    slope = 2 * SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x)
    e = math.exp(-abs(doubled))
    part = 1 / (1 + e)
    s = e * part if doubled < 0 else part
    return g * (s + x * s * (1 - s) * slope)


relu: Callable[[Array], Array] = compile_elementwise(relu_scalar)
relu_backward: Callable[[Array, Array], Array] = compile_elementwise(relu_backward_scalar)

_gelu = {
    "none": compile_elementwise(gelu_scalar),
    "tanh": compile_elementwise(gelu_tanh_scalar),
}
_gelu_backward = {
    "none": compile_elementwise(gelu_backward_scalar),
    "tanh": compile_elementwise(gelu_tanh_backward_scalar),
}


def gelu(x: Array, *, approximate: str) -> Array:
    """x Phi(x), with Phi the normal distribution function.

    Args:
        x: float32 or float64.
        approximate: "none", or "tanh" for the formula with tanh.
    """
    return _gelu[approximate](x)


def gelu_backward(g: Array, x: Array, *, approximate: str) -> Array:
    """Gradient of `gelu`: g (Phi(x) + x phi(x)), or that of the approximation."""
    return _gelu_backward[approximate](g, x)
