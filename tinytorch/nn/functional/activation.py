"""Activation functions: applied to every element, but for softmax, which works along a dimension.

Where a formula would overflow on the side that is not taken, its argument is replaced by 0 there:
the gradient of that side is zero times its derivative, and zero times infinity would be NaN.
"""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import (
    abs,
    clip,
    exp,
    expm1,
    log1p,
    logical_or,
    relu,
    sigmoid,
    tanh,
    where,
)
from tinytorch.functions.reductions import log_softmax, softmax
from tinytorch.tensor import Tensor

__all__ = [
    "elu",
    "gelu",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "tanh",
]

# Source: G. Klambauer et al., "Self-normalizing neural networks", 2017, equation 14.
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805

# Beyond this log(1 + exp(x)) is x, in float64 as in float32.
EXACT_THRESHOLD = 40.0


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, negative_slope * x elsewhere.

    Args:
        x: of any shape, and so the result.
        negative_slope: how much of a negative x passes.

    Source: A. Maas, A. Hannun, A. Ng, "Rectifier nonlinearities improve neural network acoustic
    models", 2013.
    """
    return where(x > 0, x, x * negative_slope)


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, weight * x elsewhere.

    Args:
        weight: (1,), or (channels,) for x (n, channels, ...).

    Raises:
        ShapeError: the weight has another length.

    Source: K. He et al., "Delving deep into rectifiers", 2015, equation 1.
    """
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.shape not in ((1,), (channels,)):
        raise ShapeError(
            f"prelu: weight {weight.shape} must be (1,) or, for input {x.shape}, ({channels},)"
        )
    slope = weight.reshape(-1, *(1,) * (x.ndim - 2)) if x.ndim > 1 else weight.reshape(())
    return where(x > 0, x, x * slope)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere, exact near 0 and finite for a large x.

    Args:
        x: of any shape, and so the result.
        alpha: the result goes to -alpha for x far below 0.

    Source: D. Clevert, T. Unterthiner, S. Hochreiter, "Fast and accurate deep network learning by
    exponential linear units (ELUs)", 2015.
    """
    below = x <= 0
    return where(below, expm1(where(below, x, 0.0)) * alpha, x)


def selu(x: Tensor) -> Tensor:
    """scale * elu(x, alpha), with the two numbers that keep mean 0 and variance 1.

    Source: Klambauer et al. 2017.
    """
    return elu(x, SELU_ALPHA) * SELU_SCALE


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function at x.

    Args:
        approximate: "none", or "tanh" for an approximation that needs no erf.

    Raises:
        ValueError: it is neither.

    Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    return apply(ops.gelu, x, approximate=approximate)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), for x of any shape.

    Source: S. Elfwing, E. Uchibe, K. Doya, "Sigmoid-weighted linear units", 2017.
    """
    return x * sigmoid(x)


def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x))

    Source: D. Misra, "Mish: a self regularized non-monotonic activation function", 2019.
    """
    return x * tanh(softplus(x))


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold.

    It is a smooth `relu`, the closer the larger beta. Small results are exact too, as by `log1p`.

    Args:
        x: of any shape, and so the result.
        beta: not 0.
        threshold: above it the two agree, and exp is not computed, as it would overflow.

    Source: C. Dugas et al., "Incorporating second-order functional knowledge for better option
    pricing", 2000.
    """
    scaled = x if beta == 1 else x * beta
    beyond = scaled > threshold
    smooth = log1p(exp(where(beyond, 0.0, scaled)))
    return where(beyond, x, smooth if beta == 1 else smooth / beta)


def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), exact where sigmoid would round to 0 or 1."""
    return -softplus(-x, threshold=EXACT_THRESHOLD)


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)"""
    return x / (abs(x) + 1.0)


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val]. The gradient at the bounds is 0, unlike that of `clip`.

    Raises:
        ValueError: min_val is not below max_val.
    """
    if not min_val < max_val:
        raise ValueError(f"hardtanh: min_val {min_val} must be below max_val {max_val}")
    bound = clip(x, min_val, max_val).detach()
    return where(logical_or(x <= min_val, x >= max_val), bound, x)


def relu6(x: Tensor) -> Tensor:
    """x limited to [0, 6].

    Source: A. Krizhevsky, "Convolutional deep belief networks on CIFAR-10", 2010.
    """
    return hardtanh(x, 0.0, 6.0)
