"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinytorch.creation import ones, zeros
from tinytorch.dtypes import DEFAULT_FLOAT, int64
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F, init
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class _BatchNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, for each channel.

    In training mode mean and variance are those of the batch, and the running ones move towards
    them; in evaluation mode they are the running ones.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: how far the running statistics move in a step; None for the mean of all batches.
        affine: False to go without weight and bias.
        track_running_stats: False to take the batch's statistics in evaluation too.
        dtype: of parameters and buffers.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0; or None.
        running_mean, running_var: buffers (num_features,), at first 0 and 1; or None.
        num_batches_tracked: a 0-d buffer, the number of batches seen in training; or None.

    Source: S. Ioffe, C. Szegedy, "Batch normalization", 2015.
    """

    allowed_dims: tuple[int, ...]
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: Any = DEFAULT_FLOAT,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.weight = Parameter(ones(num_features, dtype=dtype)) if affine else None
        self.bias = Parameter(zeros(num_features, dtype=dtype)) if affine else None
        tracks = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype) if tracks else None)
        self.register_buffer("running_var", ones(num_features, dtype=dtype) if tracks else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=int64) if tracks else None)

    def reset_running_stats(self) -> None:
        """Forget what was seen."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and forget what was seen."""
        self.reset_running_stats()
        _reset_affine(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, num_features, ...), normalized.

        Raises:
            ShapeError: x does not have the layer's number of dimensions or channels.
        """
        if x.ndim not in self.allowed_dims or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: the input must have "
                f"{' or '.join(map(str, self.allowed_dims))} dimensions and {self.num_features} "
                f"channels in the second, not shape {x.shape}"
            )
        by_batch = self.training or self.running_mean is None
        momentum = self._momentum() if self.training else 0.0
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, by_batch, momentum,
            self.eps,
        )  # fmt: skip

    def _momentum(self) -> float | Tensor:
        """Count the batch; the n-th moves the mean of all batches by 1 / n."""
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / self.num_batches_tracked.double()
        return 0.0 if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.weight is not None}, "
            f"track_running_stats={self.running_mean is not None}"
        )


class BatchNorm1d(_BatchNorm):
    __doc__ = f"{_BatchNorm.__doc__}\n    Shapes: (n, num_features) or (n, num_features, length).\n"
    allowed_dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    __doc__ = f"{_BatchNorm.__doc__}\n    Shapes: (n, num_features, h, w).\n"
    allowed_dims = (4,)


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last dimensions.

    Args:
        normalized_shape: the sizes of the dimensions to normalize over; a number for the last one.
        eps: added to the variance.
        elementwise_affine: False to go without weight and bias.
        bias: False to go without bias.
        dtype: of the parameters.

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
        *,
        dtype: Any = DEFAULT_FLOAT,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        shape, affine = self.normalized_shape, elementwise_affine
        self.weight = Parameter(ones(shape, dtype=dtype)) if affine else None
        self.bias = Parameter(zeros(shape, dtype=dtype)) if affine and bias else None

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        _reset_affine(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape), normalized."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

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
        dtype: of the weight.

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
        *,
        dtype: Any = DEFAULT_FLOAT,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.weight = (
            Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        )

    def reset_parameters(self) -> None:
        """Weight 1."""
        _reset_affine(self.weight, None)

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
        dtype: of the parameters.

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
        *,
        dtype: Any = DEFAULT_FLOAT,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels do not make {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Parameter(ones(num_channels, dtype=dtype)) if affine else None
        self.bias = Parameter(zeros(num_channels, dtype=dtype)) if affine else None

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        _reset_affine(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, num_channels, ...), normalized."""
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
            f"affine={self.weight is not None}"
        )


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def _reset_affine(weight: Tensor | None, bias: Tensor | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)
