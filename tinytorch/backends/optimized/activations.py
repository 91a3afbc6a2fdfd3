"""Activation functions that are one op each: relu and gelu, with their gradients.

Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016, arXiv:1606.08415.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tinytorch.backends.optimized.elementwise import compile_elementwise
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


def gelu_backward_scalar(g: float, x: float) -> float:
    below = 0.5 * (1 + math.erf(x * SQRT_HALF))
    return g * (below + x * DENSITY_AT_0 * math.exp(-0.5 * x * x))


def gelu_tanh_scalar(x: float) -> float:
    """The approximation by tanh.

    0.5 (1 + tanh u) is written as 1 / (1 + exp(-2 u)): the same number, one function call less.
    """
    u = SQRT_2_OVER_PI * (x + CUBIC * x * x * x)
    return x / (1 + math.exp(-2 * u))


def gelu_tanh_backward_scalar(g: float, x: float) -> float:
    u = SQRT_2_OVER_PI * (x + CUBIC * x * x * x)
    slope = SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x)
    s = 1 / (1 + math.exp(-2 * u))
    return g * (s + 2 * x * s * (1 - s) * slope)


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
