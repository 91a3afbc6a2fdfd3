"""ONNX's normalization operators."""

from __future__ import annotations

import math
from typing import Any

from tinytorch.functions import elementwise as e, movement as m, reductions as r
from tinytorch.nn import functional as F
from tinytorch.onnx.operators.registry import operator
from tinytorch.tensor import Tensor


def _channels(vector: Tensor, x: Tensor) -> Tensor:
    return m.reshape(vector, (-1, *(1,) * (x.ndim - 2)))


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps), and the mean and the reciprocal it was made with."""
    mean = r.mean(x, dims, keepdim=True)
    centered = x - mean
    inverse = e.rsqrt(r.mean(centered * centered, dims, keepdim=True) + eps)
    return centered * inverse, mean, inverse


@operator("BatchNormalization", since=9)
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Any:
    """The normalized input; in training also the new running mean and variance (of n elements, not
    of n - 1)."""
    if not training_mode:
        factor = _channels(scale * e.rsqrt(var + epsilon), x)
        return (x - _channels(mean, x)) * factor + _channels(bias, x)
    dims = (0, *range(2, x.ndim))
    y, _, _ = _standardized(x, dims, epsilon)
    now_mean, now_var = r.mean(x, dims), r.var(x, dims, correction=0)
    return (
        y * _channels(scale, x) + _channels(bias, x),
        mean * momentum + now_mean * (1 - momentum),
        var * momentum + now_var * (1 - momentum),
    )


@operator("InstanceNormalization")
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    y, _, _ = _standardized(x, tuple(range(2, x.ndim)), epsilon)
    return y * _channels(scale, x) + _channels(bias, x)


@operator("GroupNormalization")
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    if scale.shape[0] == num_groups != x.shape[1]:  # before version 21: one for each group
        repeats = x.shape[1] // num_groups
        scale, bias = (m.reshape(m.repeat(m.reshape(v, (-1, 1)), (1, repeats)), (-1,))
                       for v in (scale, bias))  # fmt: skip
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, ...]:
    y, mean, inverse = _standardized(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    y = y * scale
    return (y if bias is None else y + bias), mean, inverse


@operator("RMSNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    dims = tuple(range(axis % x.ndim, x.ndim))
    return x * e.rsqrt(r.mean(x * x, dims, keepdim=True) + epsilon) * scale


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: tuple[int, ...] = (0, 2, 3)) -> Tensor:
    mean = r.mean(x, axes, keepdim=True)
    deviation = e.sqrt(r.mean(x * x, axes, keepdim=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


@operator("LRN")
def local_response_normalization(
    x: Tensor, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta"""
    below = (size - 1) // 2
    around = (0, 0) * (x.ndim - 2) + (below, math.ceil((size - 1) / 2))
    squares = m.unfold(m.pad(x * x, around), 1, size, 1)
    return x / e.pow(bias + r.sum(squares, -1) * (alpha / size), beta)
