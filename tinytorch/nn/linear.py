"""Linear layers, and layers that compute nothing."""

from __future__ import annotations

from typing import Any

from tinytorch import ops
from tinytorch.creation import zeros
from tinytorch.dispatch import apply
from tinytorch.dtypes import DEFAULT_FLOAT
from tinytorch.functions.movement import flatten
from tinytorch.nn import init
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class Linear(Module):
    """x @ weight.T + bias

    Args:
        in_features: size of the last dimension of x.
        out_features: size of the last dimension of the result.
        bias: False to go without.
        dtype: of the parameters.

    Attributes:
        weight: (out_features, in_features), at first uniform over +-1 / sqrt(in_features).
        bias: (out_features,), at first likewise; or None.

    Shapes: (..., in_features) gives (..., out_features).

    >>> import tinytorch
    >>> Linear(3, 2)(tinytorch.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, dtype: Any = DEFAULT_FLOAT
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(zeros(out_features, in_features, dtype=dtype))
        self.bias = Parameter(zeros(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.reset_weight_and_bias(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) gives (..., out_features)."""
        if self.bias is None:
            return apply(ops.linear, x, self.weight)
        return apply(ops.linear, x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Flatten(Module):
    """The dimensions from `start_dim` to `end_dim` made into one; by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        """The dimensions of x from `self.start_dim` to `self.end_dim` made into one.

        By default (n, a, b, ...) gives (n, a * b * ...).
        """
        return flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Module):
    """x"""

    def forward(self, x: Tensor) -> Tensor:
        """x"""
        return x
