"""Normalization: to mean 0 and variance 1, over a row, a group of channels or a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinytorch import ops
from tinytorch.autograd import no_grad
from tinytorch.creation import ones, zeros
from tinytorch.dispatch import apply
from tinytorch.dtypes import float32, float64
from tinytorch.errors import ShapeError
from tinytorch.functions.elementwise import rsqrt
from tinytorch.functions.movement import in_shape, pad, reshape
from tinytorch.functions.reductions import mean
from tinytorch.nn.functional.pooling import avg_pool2d
from tinytorch.replay import replayed
from tinytorch.tensor import Tensor
from tinytorch.updates import update

_IN_KERNELS = (float32, float64)  # dtypes that compiled kernels are for


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last dimensions.

    Args:
        x: (..., *normalized_shape)
        normalized_shape: the sizes of the dimensions to normalize over.
        weight, bias: of shape normalized_shape; None for ones and zeros.

    Returns:
        As x.

    Raises:
        ShapeError: x does not end with normalized_shape, or weight or bias do not have it.

    Source: J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016.
    """
    shape = tuple(normalized_shape)
    _check_normalized("layer_norm", x, shape, weight, bias)
    size = math.prod(shape)
    w = ones(size, dtype=x.dtype) if weight is None else in_shape(weight, (size,))
    b = zeros(size, dtype=x.dtype) if bias is None else in_shape(bias, (size,))
    rows = in_shape(x, (*x.shape[: x.ndim - len(shape)], size))
    return in_shape(apply(ops.layer_norm, rows, w, b, eps=eps), x.shape)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, the mean over the last dimensions.

    Args:
        x: (..., *normalized_shape)
        normalized_shape: the sizes of the dimensions to normalize over.
        weight: of shape normalized_shape; None for ones.
        eps: None for the distance from 1 to the next number of x's dtype.

    Returns:
        As x.

    Raises:
        ShapeError: x does not end with normalized_shape, or weight does not have it.

    Source: B. Zhang, R. Sennrich, "Root mean square layer normalization", 2019.
    """
    shape = tuple(normalized_shape)
    _check_normalized("rms_norm", x, shape, weight)
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    added = float(np.finfo(x.dtype.dtype).eps) if eps is None else eps
    out = x * rsqrt(mean(x * x, dims, keepdim=True) + added)
    return out if weight is None else out * weight


def _check_normalized(name: str, x: Tensor, shape: tuple[int, ...], *affine: Tensor | None) -> None:
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"{name}: input {x.shape} must end with normalized_shape {shape}")
    for tensor in affine:
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"{name}: weight and bias must have shape {shape}, not {tensor.shape}")


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over a group of channels.

    Args:
        x: (n, channels, ...)
        num_groups: how many groups the channels make.
        weight, bias: (channels,); None for ones and zeros.

    Returns:
        As x.

    Raises:
        ShapeError: the channels do not split into num_groups, or weight or bias do not fit.

    Source: Y. Wu, K. He, "Group normalization", 2018.
    """
    _check_channels("group_norm", x, weight, bias)
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ShapeError(
            f"group_norm: the {x.shape[1]} channels of input {x.shape} do not split into "
            f"{num_groups} groups"
        )
    w = ones(x.shape[1], dtype=x.dtype) if weight is None else weight
    b = zeros(x.shape[1], dtype=x.dtype) if bias is None else bias
    return apply(ops.group_norm, x, w, b, groups=num_groups, eps=eps)


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance of each channel.

    In training they are those of the batch, and the running ones move towards them; otherwise they
    are the running ones.

    Args:
        x: (n, channels, ...)
        running_mean, running_var: (channels,), written in place in training; None in training to
            keep none.
        weight, bias: (channels,); None for ones and zeros.
        momentum: how far the running ones move, from 0 (stay) to 1 (become those of the batch).

    Returns:
        As x.

    Raises:
        ShapeError: x has fewer than two dimensions, or a vector is not as long as the channels.
        ValueError: training on a single value for each channel, whose variance is 0, or with a
            negative eps; or neither training nor running statistics.

    Source: S. Ioffe, C. Szegedy, "Batch normalization", 2015, algorithms 1 and 2.
    """
    _check_channels("batch_norm", x, running_mean, running_var, weight, bias)
    if not eps >= 0:
        raise ValueError(f"batch_norm: eps must not be negative: {eps}")
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: running_mean and running_var are needed out of training")
        out: Tensor = _normalized(x, running_mean, running_var, weight, bias, eps)
        return out
    channels = x.shape[1]
    if x.meta.size == 0:  # nothing to normalize, and nothing to move the running statistics by
        empty: Tensor = _normalized(
            x, zeros(channels, dtype=x.dtype), ones(channels, dtype=x.dtype), weight, bias, eps
        )
        return empty
    if x.meta.size == channels:
        raise ValueError(
            f"batch_norm: training needs more than one value for each channel, not shape "
            f"{x.shape}; use a larger batch, or eval()"
        )
    if running_mean is not None and running_var is not None:
        _move_running(x, running_mean, running_var, momentum)
    w = ones(channels, dtype=x.dtype) if weight is None else weight
    b = zeros(channels, dtype=x.dtype) if bias is None else bias
    return apply(ops.batch_norm, x, w, b, eps=eps)


def _normalize_by(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias, as x * scale + shift.

    Scale and shift are vectors (channels,), so x itself is read once or twice and not four times.

    Args:
        x: (n, channels, ...)
        running_mean, running_var: (channels,)
        weight, bias: (channels,), or None for 1 and 0.
    """
    scale = rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    return x * _per_channel(scale, x) + _per_channel(shift, x)


_normalized = replayed(_normalize_by)


def _update_running(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float | Tensor
) -> None:
    """Move the running statistics towards those of the batch, in place and unrecorded:

        running = (1 - momentum) * running + momentum * of the batch

    Args:
        x: (n, channels, ...), with `count` values for each channel: in all other dimensions.
        running_mean: (channels,)
        running_var: (channels,); the batch's variance without its bias, that is with a sum divided
            by count - 1.
        momentum: from 0 (stay) to 1 (become those of the batch).
    """
    dims = tuple(i for i in range(x.ndim) if i != 1)
    count = math.prod(x.shape[i] for i in dims)
    with no_grad():
        centre = mean(x, dims, keepdim=True)
        deviation = x - centre
        var = mean(deviation * deviation, dims) * (count / (count - 1))
        running_mean.mul_(1 - momentum).add_(reshape(centre, running_mean.shape) * momentum)
        running_var.mul_(1 - momentum).add_(var * momentum)


@update("running_mean", "running_var")
def running_statistics(
    x: Tensor, running_mean: Tensor, running_var: Tensor, *, momentum: float
) -> None:
    """`_update_running`, for which a backend may have one pass over x.

    Args:
        x: (n, channels, ...), of the dtype of the other two.
        running_mean, running_var: (channels,), changed in place.
    """
    _update_running(x, running_mean, running_var, momentum)


def _move_running(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float | Tensor
) -> None:
    """By the backend's kernel where the operands fit it: floats of one dtype, and a number."""
    is_uniform = x.dtype == running_mean.dtype == running_var.dtype and x.dtype in _IN_KERNELS
    if is_uniform and not isinstance(momentum, Tensor):
        running_statistics(x, running_mean, running_var, momentum=momentum)
    else:
        _update_running(x, running_mean, running_var, momentum)


def _check_channels(name: str, x: Tensor, *vectors: Tensor | None) -> None:
    channels = x.meta.shape[1:2]
    if not channels:
        raise ShapeError(f"{name}: the input must be (n, channels, ...), not {x.shape}")
    for vector in vectors:
        if vector is not None and vector.meta.shape != channels:
            raise ShapeError(
                f"{name}: input {x.shape} needs vectors of shape ({x.shape[1]},), one number for "
                f"each channel, not {vector.shape}"
            )


def _per_channel(vector: Tensor, x: Tensor) -> Tensor:
    """A vector (channels,) in the shape in which it meets x (n, channels, ...)."""
    return reshape(vector, (x.shape[1], *(1,) * (x.ndim - 2)))


def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, for each channel of each sample.

    Args:
        x: (n, channels, ...)
        running_mean, running_var: (channels,), moved towards the means over the samples.
        weight, bias: (channels,); None for ones and zeros.
        use_input_stats: False to normalize by the running ones.

    Returns:
        As x.

    Source: D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance normalization", 2016.
    """
    _check_channels("instance_norm", x, running_mean, running_var, weight, bias)
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    size = math.prod(x.shape[2:])
    if size == 1:
        raise ValueError(
            f"instance_norm: needs more than one value for each channel, not shape {x.shape}"
        )
    if running_mean is not None and running_var is not None and x.meta.size:
        with no_grad():
            rows = reshape(x, (*x.shape[:2], size))
            centre = mean(rows, 2, keepdim=True)
            var = mean((rows - centre) * (rows - centre), 2) * (size / (size - 1))
            running_mean.mul_(1 - momentum).add_(mean(centre, (0, 2)) * momentum)
            running_var.mul_(1 - momentum).add_(mean(var, 0) * momentum)
    return group_norm(x, x.shape[1], weight, bias, eps)


def local_response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta

    Args:
        x: (n, channels, ...)

    Source: A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet classification with deep convolutional
    neural networks", 2012, section 3.3.
    """
    if x.ndim < 3:
        raise ShapeError(f"local_response_norm: the input must be (n, c, ...), not {x.shape}")
    if not x.meta.size:
        return x * 1.0
    n, channels, *places = x.shape
    squares = reshape(x * x, (n, 1, channels, math.prod(places)))
    before = size // 2
    if size % 2 == 0:  # a channel less on the other side
        squares, before = pad(squares, (0, 0, before, before - 1)), 0
    near = reshape(avg_pool2d(squares, (size, 1), 1, (before, 0)), x.shape)
    return x / (near * alpha + k) ** beta
