"""Smooth activation functions, and relu with its relatives: applied to every element.

Where a formula would overflow on the side that is not taken, its argument is replaced by 0 there:
the gradient of that side is zero times its derivative, and zero times infinity would be NaN.
"""

from __future__ import annotations

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions import elementwise
from tinytorch.functions.elementwise import abs, exp, expm1, log1p, sigmoid, tanh, where
from tinytorch.functions.fusing import fuse
from tinytorch.functions.movement import chunk
from tinytorch.nn.functional.arguments import inplaceable
from tinytorch.tensor import Tensor

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
]

# Source: G. Klambauer et al., "Self-normalizing neural networks", 2017, equation 14.
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805

# Beyond this log(1 + exp(x)) is x, in float64 as in float32.
EXACT_THRESHOLD = 40.0


@inplaceable
def relu(
    x: Tensor,
) -> Tensor:
    """max(x, 0); `inplace` makes it the value of x too, here and below."""
    return elementwise.relu(x)


@inplaceable
def leaky_relu(
    x: Tensor,
    negative_slope: float = 0.01,
) -> Tensor:
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
        weight: () or (1,), or (channels,) for x (n, channels, ...).

    Raises:
        ShapeError: the weight has another length.

    Source: K. He et al., "Delving deep into rectifiers", 2015, equation 1.
    """
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.shape not in ((), (1,), (channels,)):
        raise ShapeError(
            f"prelu: weight {weight.shape} must be (1,) or, for input {x.shape}, ({channels},)"
        )
    slope = weight.reshape(-1, *(1,) * (x.ndim - 2)) if x.ndim > 1 else weight.reshape(())
    return _sloped(x, slope)


def _sloped(x: Tensor, slope: Tensor) -> Tensor:
    return where(x > 0, x, x * slope)


@inplaceable
def elu(
    x: Tensor,
    alpha: float = 1.0,
) -> Tensor:
    """x where x > 0, alpha * (exp(x) - 1) elsewhere; exact near 0.

    For a large x the result is finite, and so is its gradient.

    Args:
        x: of any shape, and so the result.
        alpha: the result goes to -alpha for x far below 0.

    Source: D. Clevert, T. Unterthiner, S. Hochreiter, "Fast and accurate deep network learning by
    exponential linear units (ELUs)", 2015.
    """
    # with alpha 1 the derivative at 0 is 1 from both sides; the second is then that of x, as in
    # PyTorch
    below = x < 0 if alpha == 1 else x <= 0
    return where(below, expm1(where(below, x, 0.0)) * alpha, x)


@inplaceable
def celu(
    x: Tensor,
    alpha: float = 1.0,
) -> Tensor:
    """x where x > 0, alpha * (exp(x / alpha) - 1) elsewhere: smooth at 0 for every alpha.

    Source: J. Barron, "Continuously differentiable exponential linear units", 2017.
    """
    below = x <= 0
    return where(below, expm1(where(below, x, 0.0) / alpha) * alpha, x)


@inplaceable
def selu(
    x: Tensor,
) -> Tensor:
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


@inplaceable
def silu(
    x: Tensor,
) -> Tensor:
    """x * sigmoid(x), for x of any shape.

    Source: S. Elfwing, E. Uchibe, K. Doya, "Sigmoid-weighted linear units", 2017.
    """
    return x * sigmoid(x)


@inplaceable
def mish(
    x: Tensor,
) -> Tensor:
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
        threshold: above it the two agree, and exp is not computed, as it would overflow, in the
            result or in its gradient.

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


def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x)"""
    return x - tanh(x)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), for the halves a and b of x along `dim`.

    Raises:
        ShapeError: x has no even size there.

    Source: Y. Dauphin et al., "Language modeling with gated convolutional networks", 2016.
    """
    if x.ndim == 0 or x.shape[dim] % 2:
        raise ShapeError(f"glu: x {x.shape} must have an even size along dimension {dim}")
    if x.shape[dim] == 0:
        return x
    a, b = chunk(x, 2, dim)
    return _gated(a, b)


def _gated(a: Tensor, b: Tensor) -> Tensor:
    return a * sigmoid(b)


fuse(
    globals(),
    "leaky_relu elu celu selu silu mish softplus logsigmoid softsign tanhshrink _sloped _gated",
)
