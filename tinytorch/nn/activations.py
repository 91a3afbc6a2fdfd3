"""Activation functions as modules. The formulas are at the functions in `nn.functional`.

`inplace=True` writes the result into x too, where nothing is recorded.
"""

from __future__ import annotations

from typing import Any

from tinytorch.creation import full
from tinytorch.nn import functional as F
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class _Inplace(Module):
    """An activation function that has no settings, but for `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """max(x, 0)"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.relu(input, inplace=self.inplace)


class ReLU6(_Inplace):
    """x limited to [0, 6]"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.relu6(input, inplace=self.inplace)


class SELU(_Inplace):
    """ELU with the two numbers that keep mean 0 and variance 1."""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.selu(input, inplace=self.inplace)


class SiLU(_Inplace):
    """x * sigmoid(x)"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """x * tanh(softplus(x))"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.mish(input, inplace=self.inplace)


class Hardsigmoid(_Inplace):
    """relu6(x + 3) / 6"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.hardsigmoid(input, inplace=self.inplace)


class Hardswish(_Inplace):
    """x * relu6(x + 3) / 6"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.hardswish(input, inplace=self.inplace)


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x)), exact where sigmoid would round to 0 or 1."""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.logsigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x)"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|)"""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.softsign(input)


class LeakyReLU(_Inplace):
    """x where x > 0, negative_slope * x elsewhere."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_Inplace):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(_Inplace):
    """x where x > 0, alpha * (exp(x / alpha) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """x times the normal distribution function at x; approximate="tanh" needs no erf."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardtanh(_Inplace):
    """x limited to [min_val, max_val]; the gradient at the bounds is 0.

    Raises:
        ValueError: min_val is not below max_val.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        if not min_val < max_val:
            raise ValueError(f"Hardtanh: min_val {min_val} must be below max_val {max_val}")
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (
            ", inplace=True" if self.inplace else ""
        )


class Hardshrink(Module):
    """0 where |x| <= lambd, x elsewhere."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Softshrink(Module):
    """0 where |x| <= lambd, and elsewhere x moved towards 0 by lambd."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Threshold(_Inplace):
    """x where x > threshold, `value` elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (
            ", inplace=True" if self.inplace else ""
        )


class GLU(Module):
    """a * sigmoid(b), for the halves a and b of x along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """A tensor whose size along `dim` is even; the result has half of it."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(Module):
    """exp(x) / sum(exp(x)) along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along `dim`, computed without overflow."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """softmax(-x) along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of images."""

    def forward(self, input: Tensor) -> Tensor:
        """(n, c, h, w) or (c, h, w), and so the result."""
        return F.softmax(input, -3)


class RReLU(_Inplace):
    """x where x >= 0, slope * x elsewhere, with random slopes in training; see `F.rrelu`."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"


class PReLU(Module):
    """x where x > 0, weight * x elsewhere; the weight is trained.

    Args:
        num_parameters: 1, or one for each channel of x (n, channels, ...).
        init: what the weight starts from.
        device, dtype: of the weight.

    Attributes:
        weight: (num_parameters,)
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        kind = parameter_dtype(device, dtype)
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), init, dtype=kind))

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of any shape, and so the result."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
