"""ATen's products, convolution, pooling and normalization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from tinytorch import creation, ops
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import int64, meta_of_array
from tinytorch.functions import (
    elementwise as e,
    linalg,
    movement as m,
    reductions as r,
)
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.fx.convert.aten.volumes import over_planes
from tinytorch.nn import functional as F
from tinytorch.nn.functional.pooling import overhang
from tinytorch.tensor import Tensor

Ints = Sequence[int]

aten("mm", "bmm", "matmul")(linalg.matmul)
aten("linear")(F.linear)
aten("addmv")(linalg.addmv)
aten("addbmm")(linalg.addbmm)
aten("dist")(linalg.dist)


@aten("addmm")
def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = linalg.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    return product + (bias if beta == 1 else bias * beta)


@aten("_trilinear")
def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Ints,
    expand2: Ints,
    expand3: Ints,
    sumdim: Ints,
    unroll_dim: int = 1,
) -> Tensor:
    """The product of three tensors that lack the dimensions `expand`, summed over `sumdim`."""
    dims = range(a.ndim + len(expand1))
    kept = [[d for d in dims if d not in lacking] for lacking in (expand1, expand2, expand3)]
    return linalg.einsum(a, kept[0], b, kept[1], c, kept[2], [d for d in dims if d not in sumdim])


# -- convolution -----------------------------------------------------------------------------------


def _pair(values: Ints) -> tuple[int, int]:
    first, *rest = values
    return (first, rest[0] if rest else first)


def _windows(stride: Ints, padding: Ints, dilation: Ints) -> dict[str, tuple[int, int]]:
    return {"stride": _pair(stride), "padding": _pair(padding), "dilation": _pair(dilation)}


def _only_2d(x: Tensor, transposed: bool) -> None:
    if x.ndim != 4 or transposed:
        raise NotImplementedError("the gradient of a convolution that is not two-dimensional, or "
                                  "that is transposed")  # fmt: skip


@aten("convolution")
def convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Tensor:
    if x.ndim == 3:  # one dimension is two, the first of which is 1
        flat = convolution(
            m.unsqueeze(x, 2), m.unsqueeze(w, 2), bias, (1, *stride), (0, *padding),
            (1, *dilation), transposed, (0, *output_padding), groups,
        )  # fmt: skip
        return m.squeeze(flat, 2)
    if x.ndim == 5 and not transposed:
        y = over_planes(x, w, stride, padding, dilation, groups, convolution)
        return y if bias is None else y + _channels(bias, y)
    if x.ndim != 4:
        kind = "transposed convolution" if transposed else "convolution"
        raise NotImplementedError(f"{kind} over {x.ndim - 2} dimensions")
    windows: dict[str, Any] = {**_windows(stride, padding, dilation), "groups": groups}
    if transposed:
        more = _pair(output_padding)
        return F.conv_transpose2d(x, w, bias, output_padding=more, **windows)
    inputs = (x, w) if bias is None else (x, w, bias)
    return apply(ops.conv2d, *inputs, **windows)


@aten("conv2d")
def conv2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    stride: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
) -> Tensor:
    return convolution(x, w, bias, stride, padding, dilation, False, (0, 0), groups)


@aten("convolution_backward")
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    bias_sizes: Ints | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    _only_2d(x, transposed)
    windows: dict[str, Any] = {**_windows(stride, padding, dilation), "groups": groups}
    size, kernel = x.shape[2:], w.shape[2:]
    return (
        apply(ops.conv2d_input, grad, w, input_size=size, **windows) if mask[0] else None,
        apply(ops.conv2d_weight, x, grad, kernel_size=kernel, **windows) if mask[1] else None,
        r.sum(grad, (0, 2, 3)) if mask[2] else None,
    )


# -- pooling ---------------------------------------------------------------------------------------


def _pooling(kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> dict[str, Any]:
    return {"kernel_size": _pair(kernel), **_windows(stride or kernel, padding, dilation)}


def _of_one_image_too(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same of images without a batch: (channels, height, width)."""

    @wraps(function)
    def of_any(x: Tensor, *given: Any, **options: Any) -> Any:
        if x.ndim != 3:
            return function(x, *given, **options)
        batches = [m.unsqueeze(t, 0) if is_tensor(t) else t for t in (x, *given)]
        found = function(*batches, **options)
        if is_tensor(found):
            return m.squeeze(found, 0)
        return tuple(m.squeeze(t, 0) for t in found)

    return of_any


def _overhanging(x: Tensor, windows: dict[str, Any], ceil_mode: bool, value: float) -> Tensor:
    """An image with what the last windows of `ceil_mode` reach over, behind its own border."""
    names = ("kernel_size", "stride", "padding", "dilation")
    down, right = overhang(x, *(windows[name] for name in names)) if ceil_mode else (0, 0)
    return m.pad(x, (0, right, 0, down), value=value) if down or right else x


@aten("max_pool2d_with_indices")
@_of_one_image_too
def max_pool2d_with_indices(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest elements, and the index of each in its image."""
    windows = _pooling(kernel_size, stride, padding, dilation)
    indices = np.arange(x.shape[2] * x.shape[3], dtype=np.float64).reshape(x.shape[2:])
    everywhere = m.expand(wrap(indices, meta_of_array(indices)), x.shape)
    everywhere = _overhanging(everywhere, windows, ceil_mode, 0.0)
    x = _overhanging(x, windows, ceil_mode, -math.inf)
    # in float64 positions are exact
    chosen = apply(ops.max_pool2d_select, everywhere, x.double(), **windows)
    return apply(ops.max_pool2d, x, **windows), chosen.to(int64)


@aten("max_pool2d")
@_of_one_image_too
def max_pool2d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    ceil_mode: bool = False,
) -> Tensor:
    windows = _pooling(kernel_size, stride, padding, dilation)
    return apply(ops.max_pool2d, _overhanging(x, windows, ceil_mode, -math.inf), **windows)


@aten("max_pool2d_with_indices_backward")
@_of_one_image_too
def max_pool2d_with_indices_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    windows = _pooling(kernel_size, stride, padding, dilation)
    larger = _overhanging(x, windows, ceil_mode, -math.inf)
    found = apply(ops.max_pool2d_backward, grad, larger, **windows)
    if larger is x:
        return found
    return m.narrow(m.narrow(found, 2, 0, x.shape[2]), 3, 0, x.shape[3])


@aten("avg_pool2d")
@_of_one_image_too
def avg_pool2d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    if ceil_mode or divisor_override is not None or (not count_include_pad and any(padding)):
        return F.avg_pool2d(
            x, _pair(kernel_size), _pair(stride or kernel_size), _pair(padding), ceil_mode,
            count_include_pad, divisor_override,
        )  # fmt: skip
    windows = _pooling(kernel_size, stride, padding, (1, 1))
    del windows["dilation"]
    return apply(ops.avg_pool2d, x, **windows)


@aten("avg_pool2d_backward")
@_of_one_image_too
def avg_pool2d_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    windows = _pooling(kernel_size, stride, padding, (1, 1))
    if ceil_mode or divisor_override is not None or (not count_include_pad and any(padding)):
        raise NotImplementedError("the gradient of avg_pool2d with windows of several sizes")
    del windows["dilation"]
    return apply(ops.avg_pool2d_backward, grad, input_size=x.shape[2:], **windows)


@aten("_adaptive_avg_pool2d", "adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Tensor, output_size: Ints) -> Tensor:
    return F.adaptive_avg_pool2d(x, list(output_size))


@aten("adaptive_max_pool2d")
def adaptive_max_pool2d(x: Tensor, output_size: Ints) -> tuple[Tensor, Tensor]:
    values, indices = F.adaptive_max_pool2d(x, list(output_size), True)
    return values, indices


@aten("col2im")
def col2im(
    x: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Tensor:
    kernel, gaps, border, step = map(_pair, (kernel_size, dilation, padding, stride))
    return F.fold(x, _pair(output_size), kernel, gaps, border, step)


@aten("_cdist_forward")
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    return linalg.cdist(a, b, p)


# -- normalization ---------------------------------------------------------------------------------


def _channels(vector: Tensor, x: Tensor) -> Tensor:
    return m.reshape(vector, (-1, *(1,) * (x.ndim - 2)))


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else y * _channels(weight, y)
    return y if bias is None else y + _channels(bias, y)


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """y, the batch's mean and 1 / deviation, and the new running mean and variance."""
    if not training:
        y, _, _ = batch_norm_inference(x, weight, bias, running_mean, running_var, momentum, eps)
        nothing = creation.zeros(0, dtype=x.dtype)
        return y, nothing, nothing, running_mean, running_var
    dims = (0, *range(2, x.ndim))
    count = x.numel() // x.shape[1]
    mean = r.mean(x, dims)
    centered = x - _channels(mean, x)
    var = r.mean(centered * centered, dims)
    inverse = e.rsqrt(var + eps)
    if weight is not None and bias is not None:
        y = apply(ops.batch_norm, x, weight, bias, eps=eps)
    else:
        y = _affine(centered * _channels(inverse, x), weight, bias)
    unbiased = var * (count / max(count - 1, 1))
    return (
        y, mean, inverse, running_mean * (1 - momentum) + mean * momentum,
        running_var * (1 - momentum) + unbiased * momentum,
    )  # fmt: skip


@aten("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    scale = e.rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale if bias is None else bias - running_mean * scale
    y = x * _channels(scale, x) + _channels(shift, x)
    nothing = creation.zeros(0, dtype=x.dtype)
    return y, nothing, nothing


@aten("batch_norm")
def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    if training:
        raise NotImplementedError("batch_norm in training updates its statistics in place")
    return batch_norm_inference(x, weight, bias, running_mean, running_var, momentum, eps)[0]


@aten("native_layer_norm")
def native_layer_norm(
    x: Tensor, normalized_shape: Ints, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    y = F.layer_norm(x, list(normalized_shape), weight, bias, eps)
    # in PyTorch only the first result has a gradient
    var, mean = r.var_mean(x.detach(), dims, correction=0, keepdim=True)
    return y, mean, e.rsqrt(var + eps)


@aten("layer_norm")
def layer_norm(
    x: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    return F.layer_norm(x, list(normalized_shape), weight, bias, eps)


@aten("native_group_norm")
def native_group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    images: int,
    channels: int,
    positions: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, and for each image and group the mean and 1 / deviation."""
    rows = m.reshape(x, (images, groups, channels // groups * positions))
    mean = r.mean(rows, 2, True)
    centered = rows - mean
    inverse = e.rsqrt(r.mean(centered * centered, 2) + eps)
    y = F.group_norm(x, groups, weight, bias, eps)
    return y, m.squeeze(mean, 2), inverse


@aten("group_norm")
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    return F.group_norm(x, num_groups, weight, bias, eps)


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the batch's mean and 1 / deviation: what instance norm becomes."""
    dims = (0, *range(2, x.ndim))
    mean = r.mean(x, dims)
    centered = x - _channels(mean, x)
    inverse = e.rsqrt(r.mean(centered * centered, dims) + eps)
    return _affine(centered * _channels(inverse, x), weight, bias), mean, inverse
