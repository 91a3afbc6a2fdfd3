"""ONNX's pooling operators."""

from __future__ import annotations

import math

from tinytorch import creation
from tinytorch.functions import reductions as r
from tinytorch.nn import functional as F
from tinytorch.onnx.operators.registry import operator
from tinytorch.onnx.operators.windows import gather_windows, pad_spatial, place_windows
from tinytorch.tensor import Tensor

Ints = tuple[int, ...]


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
) -> Tensor:
    """The second result, positions of the largest elements, is not supported."""
    w = place_windows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    small = all(2 * p <= k for p, k in zip(w.before, kernel_shape, strict=True))
    if len(kernel_shape) == 2 and w.is_symmetric and small:
        out: Tensor = F.max_pool2d(x, kernel_shape, w.stride, w.before, w.dilation)
        return out
    elements = gather_windows(pad_spatial(x, w, -math.inf), w)
    return r.amax(elements, tuple(range(-len(kernel_shape), 0)))


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Tensor:
    """The mean of each window, of what lies inside of it; with `count_include_pad` of its border
    too (but never of what `ceil_mode` adds)."""
    extents = x.shape[2:]
    w = place_windows(extents, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    dims = tuple(range(-len(kernel_shape), 0))
    inside = creation.ones((1, 1, *extents), dtype=x.dtype)
    if count_include_pad:
        border = place_windows(extents, kernel_shape, strides, pads, dilations, auto_pad)
        inside = pad_spatial(inside, border, 1)
        extra = tuple(a - b for a, b in zip(w.after, border.after, strict=True))
        inside = pad_spatial(inside, w._replace(before=(0,) * len(extents), after=extra))
    else:
        inside = pad_spatial(inside, w)
    total = r.sum(gather_windows(pad_spatial(x, w), w), dims)
    return total / r.sum(gather_windows(inside, w), dims)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return r.mean(x, tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return r.amax(x, tuple(range(2, x.ndim)), keepdim=True)


@operator("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    p: int = 2,
) -> Tensor:
    w = place_windows(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    elements = gather_windows(pad_spatial(x, w), w)
    return r.norm(elements, p, tuple(range(-len(kernel_shape), 0)))
