"""Activation functions as modules. The formulas stand at the functions in `nn.functional`."""

from __future__ import annotations

from tinytorch.nn import functional as F
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.relu(x)


class ReLU6(Module):
    """x limited to [0, 6]"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.relu6(x)


class LeakyReLU(Module):
    """x where x > 0, negative_slope * x elsewhere."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class PReLU(Module):
    """x where x > 0, weight * x elsewhere; the weight is trained.

    Args:
        num_parameters: 1, or one for each channel of x (n, channels, ...).
        init: what the weight starts from.

    Attributes:
        weight: (num_parameters,)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.weight = Parameter([float(init)] * num_parameters)

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.prelu(x, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.weight.numel()}"


class ELU(Module):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class SELU(Module):
    """ELU with the two numbers that keep mean 0 and variance 1."""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.selu(x)


class GELU(Module):
    """x times the normal distribution function at x; approximate="tanh" needs no erf."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.silu(x)


class Mish(Module):
    """x * tanh(softplus(x))"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.mish(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.sigmoid(x)


class LogSigmoid(Module):
    """log(sigmoid(x)), exact where sigmoid would round to 0 or 1."""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.logsigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.tanh(x)


class Hardtanh(Module):
    """x limited to [min_val, max_val]; the gradient at the bounds is 0."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__()
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """x / (1 + |x|)"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.softsign(x)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along `dim`, computed without overflow."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape, and so the result."""
        return F.log_softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
