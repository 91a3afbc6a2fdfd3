"""Batch and instance normalization: layers with running statistics."""

from __future__ import annotations

from inspect import getdoc
from typing import Any

from tinytorch.creation import ones, zeros
from tinytorch.dtypes import int64
from tinytorch.errors import ShapeError
from tinytorch.functions.movement import squeeze, unsqueeze
from tinytorch.nn import functional as F, init
from tinytorch.nn.factory import parameter_dtype
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.tensor import Tensor


class _NormBase(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, for each channel.

    In training mode mean and variance are those of the batch, and the running ones move towards
    them; in evaluation mode they are the running ones.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: how far the running statistics move in a step; None for the mean of all batches.
        affine: False to go without weight and bias.
        track_running_stats: False to take the batch's statistics in evaluation too.
        device, dtype: of parameters and buffers.
        bias: False to go without bias.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0; or None.
        running_mean, running_var: buffers (num_features,), at first 0 and 1; or None.
        num_batches_tracked: a 0-d buffer, the number of batches seen in training; or None.

    Source: S. Ioffe, C. Szegedy, "Batch normalization", 2015.
    """

    left_out_of_old_states = ("num_batches_tracked",)  # PyTorch's have it since 0.4.1
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
        device: Any = None,
        dtype: Any = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        dtype = parameter_dtype(device, dtype)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.weight = Parameter(ones(num_features, dtype=dtype)) if affine else None
        self.bias = Parameter(zeros(num_features, dtype=dtype)) if affine and bias else None
        tracks = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype) if tracks else None)
        self.register_buffer("running_var", ones(num_features, dtype=dtype) if tracks else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=int64) if tracks else None)

    def reset_running_stats(self) -> None:
        """Reset the running statistics."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset weight to 1, bias to 0, and the running statistics."""
        self.reset_running_stats()
        reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """input (n, num_features, ...), normalized.

        Raises:
            ShapeError: `input` does not have the layer's number of dimensions or channels.
        """
        self._check_shape(input)
        by_batch = self.training or self.running_mean is None
        momentum = self._momentum() if self.training and input.numel() else 0.0
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, by_batch, momentum,
            self.eps,
        )  # fmt: skip

    def _check_shape(self, input: Tensor) -> None:
        if input.ndim not in self.allowed_dims or input.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: the input must have "
                f"{' or '.join(map(str, self.allowed_dims))} dimensions and {self.num_features} "
                f"channels in the second, not shape {input.shape}"
            )

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


class _BatchNorm(_NormBase):
    __doc__ = _NormBase.__doc__


class BatchNorm1d(_BatchNorm):
    __doc__ = f"{getdoc(_BatchNorm)}\n\nShapes: (n, num_features) or (n, num_features, length).\n"
    allowed_dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    __doc__ = f"{getdoc(_BatchNorm)}\n\nShapes: (n, num_features, h, w).\n"
    allowed_dims = (4,)


class BatchNorm3d(_BatchNorm):
    __doc__ = f"{getdoc(_BatchNorm)}\n\nShapes: (n, num_features, d, h, w).\n"
    allowed_dims = (5,)


class _InstanceNorm(_NormBase):
    """(x - mean) / sqrt(var + eps) * weight + bias, for each channel of each sample.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: how far the running statistics move in a step.
        affine: True for weight and bias.
        track_running_stats: True to keep running statistics, and normalize by them in evaluation.
        device, dtype: of parameters and buffers.
        bias: False to go without bias.

    Source: D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance normalization", 2016.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """(n, num_features, ...) or (num_features, ...), and so the result.

        Raises:
            ShapeError: the input does not have the layer's number of dimensions or channels.
        """
        (dims,) = self.allowed_dims
        if input.ndim == dims - 1:
            return squeeze(self.forward(unsqueeze(input, 0)), 0)
        channels = self.num_features
        if input.ndim != dims or (self.weight is not None and input.shape[1] != channels):
            raise ShapeError(
                f"{type(self).__name__}: the input must have {dims - 1} or {dims} dimensions and "
                f"{channels} channels, not shape {input.shape}"
            )
        by_sample = self.training or self.running_mean is None
        return F.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, by_sample,
            self.momentum or 0.0, self.eps,
        )  # fmt: skip


class InstanceNorm1d(_InstanceNorm):
    __doc__ = f"{getdoc(_InstanceNorm)}\n\nShapes: (n, num_features, length).\n"
    allowed_dims = (3,)


class InstanceNorm2d(_InstanceNorm):
    __doc__ = f"{getdoc(_InstanceNorm)}\n\nShapes: (n, num_features, h, w).\n"
    allowed_dims = (4,)


class InstanceNorm3d(_InstanceNorm):
    __doc__ = f"{getdoc(_InstanceNorm)}\n\nShapes: (n, num_features, d, h, w).\n"
    allowed_dims = (5,)


def reset_affine(weight: Tensor | None, bias: Tensor | None) -> None:
    """Weight 1, bias 0."""
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)
