"""Normalization layers without running statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.creation import ones, zeros
from tinytorch.nn import functional as F
from tinytorch.nn.batch_norm import reset_affine
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last dimensions.

    Args:
        normalized_shape: the sizes of the dimensions to normalize over; a number for the last one.
        eps: added to the variance.
        elementwise_affine: False to go without weight and bias.
        bias: False to go without bias.
        device, dtype: of the parameters.

    Attributes:
        weight, bias: of shape normalized_shape, at first 1 and 0; or None.

    Shapes: (..., *normalized_shape), and so the result.

    Source: J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        dtype = parameter_dtype(device, dtype)
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        shape, affine = self.normalized_shape, elementwise_affine
        self.weight = Parameter(ones(shape, dtype=dtype)) if affine else None
        self.bias = Parameter(zeros(shape, dtype=dtype)) if affine and bias else None

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """input (..., *normalized_shape), normalized."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.weight is not None}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight, the mean over the last dimensions.

    Args:
        normalized_shape: the sizes of the dimensions to normalize over; a number for the last one.
        eps: added to the mean square; None for the distance from 1 to the dtype's next number.
        elementwise_affine: False to go without weight.
        device, dtype: of the weight.

    Attributes:
        weight: of shape normalized_shape, at first 1; or None.

    Shapes: (..., *normalized_shape), and so the result.

    Source: B. Zhang, R. Sennrich, "Root mean square layer normalization", 2019.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        dtype = parameter_dtype(device, dtype)
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.weight = (
            Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        )

    def reset_parameters(self) -> None:
        """Weight 1."""
        reset_affine(self.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape), normalized."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"
        )


class GroupNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over a group of channels.

    Args:
        num_groups: how many groups the channels make.
        num_channels: number of channels, a multiple of num_groups.
        eps: added to the variance.
        affine: False to go without weight and bias.
        device, dtype: of the parameters.
        bias: False to go without bias.

    Attributes:
        weight, bias: (num_channels,), at first 1 and 0; or None.

    Shapes: (n, num_channels, ...), and so the result.

    Raises:
        ValueError: the channels do not split into the groups.

    Source: Y. Wu, K. He, "Group normalization", 2018.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        dtype = parameter_dtype(device, dtype)
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels do not make {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Parameter(ones(num_channels, dtype=dtype)) if affine else None
        self.bias = Parameter(zeros(num_channels, dtype=dtype)) if affine and bias else None

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """input (n, num_channels, ...), normalized."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
            f"affine={self.weight is not None}"
        )


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LocalResponseNorm(Module):
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta"""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, ...), and so the result."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
