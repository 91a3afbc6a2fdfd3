"""Linear layers, and layers that compute nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tinytorch import ops
from tinytorch.creation import zeros
from tinytorch.dispatch import apply
from tinytorch.functions.movement import flatten, unflatten
from tinytorch.nn import functional as F, init
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class Linear(Module):
    """x @ weight.T + bias

    Args:
        in_features: size of the last dimension of x.
        out_features: size of the last dimension of the result.
        bias: False to go without.
        device, dtype: of the parameters.

    Attributes:
        weight: (out_features, in_features), at first uniform over +-1 / sqrt(in_features).
        bias: (out_features,), at first likewise; or None.

    Shapes: (..., in_features) gives (..., out_features).

    >>> import tinytorch
    >>> Linear(3, 2)(tinytorch.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        dtype = parameter_dtype(device, dtype)
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


class Unflatten(Module):
    """Dimension `dim` split into `unflattened_size`: the inverse of `Flatten`."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """(n, a * b, ...) gives (n, a, b, ...), for dim 1."""
        return unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Bilinear(Module):
    """x1 @ weight[o] @ x2 + bias[o], for each output o.

    Args:
        in1_features, in2_features: sizes of the last dimensions of x1 and x2.
        out_features: size of the last dimension of the result.
        bias: False to go without.
        device, dtype: of the parameters.

    Attributes:
        weight: (out_features, in1_features, in2_features), at first uniform over
            +-1 / sqrt(in1_features).
        bias: (out_features,), at first likewise; or None.
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = parameter_dtype(device, dtype)
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(zeros(out_features, in1_features, in2_features, dtype=kind))
        self.bias = Parameter(zeros(out_features, dtype=kind)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1 / math.sqrt(max(self.in1_features, 1))
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(..., in1_features) and (..., in2_features) give (..., out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Identity(Module):
    """x, whatever arguments it is made with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """x"""
        return input
