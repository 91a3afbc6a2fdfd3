"""Convolution as loops over images, positions, output channels and window elements.

The three functions walk over the same windows. A window is the elements of one image that one
output element sees; `_taps` lists, for every position of the window, where in the padded image they
stand.
"""

from __future__ import annotations

from operator import mul
from typing import Any

import numpy as np

from tinytorch.backends.naive.cost import warn_if_slow
from tinytorch.backends.naive.lists import to_array
from tinytorch.backends.reference_conv import pad2d
from tinytorch.dtypes import Array

Pair = tuple[int, int]


def conv2d(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """out[o] at a position = b[o] + sum over the window of x * w[o]."""
    n, o = x.shape[0], w.shape[0]
    padded = pad2d(x, padding)
    out_size, taps = _taps(padded.shape[2:], w.shape, stride, dilation)
    _warn("conv2d", x, w, n * len(taps))
    filters = _grouped_filters(w, groups)
    biases = (np.zeros(o) if b is None else b).reshape(groups, o // groups).tolist()
    out = []
    for image in _grouped_images(padded, groups):
        for channels, group, bias_group in zip(image, filters, biases, strict=True):
            windows = [[channels[i] for i in window] for window in taps]
            for weights, bias in zip(group, bias_group, strict=True):
                out.append([sum(map(mul, window, weights), bias) for window in windows])
    return to_array(out, (n, o, *out_size), x.dtype)


def conv2d_input(
    g: Array,
    w: Array,
    *,
    input_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """Every window element gets, from each output channel, the gradient there times its weight."""
    n, channels = g.shape[0], w.shape[1] * groups
    height, width = (s + 2 * p for s, p in zip(input_size, padding, strict=True))
    _, taps = _taps((height, width), w.shape, stride, dilation)
    _warn("conv2d_input", g, w, n * len(taps))
    # for each group and window element, its weights in all output channels
    elements = [list(zip(*filters, strict=True)) for filters in _grouped_filters(w, groups)]
    out = []
    for image in _grouped_positions(g, groups):
        for positions, group in zip(image, elements, strict=True):
            spread = [0.0] * (w.shape[1] * height * width)
            for gradients, window in zip(positions, taps, strict=True):
                for i, weights in zip(window, group, strict=True):
                    spread[i] += sum(map(mul, gradients, weights))
            out.append(spread)
    padded = to_array(out, (n, channels, height, width), g.dtype)
    inside = padded[:, :, padding[0] : height - padding[0], padding[1] : width - padding[1]]
    return np.ascontiguousarray(inside)


def conv2d_weight(
    x: Array,
    g: Array,
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """Every weight gets, from each position, the gradient there times the element it met."""
    shape = (g.shape[1], x.shape[1] // groups, *kernel_size)
    padded = pad2d(x, padding)
    _, taps = _taps(padded.shape[2:], shape, stride, dilation)
    _warn("conv2d_weight", x, np.empty(shape, np.bool_), x.shape[0] * len(taps))
    images = list(_grouped_images(padded, groups))
    gradients = list(_grouped_positions(g, groups))
    out = []
    for k in range(groups):
        # each list runs over the positions of all images
        met = [[image[k][window[i]] for image in images for window in taps]
               for i in range(len(taps[0]))]  # fmt: skip
        arrived = zip(*(position for image in gradients for position in image[k]), strict=True)
        channels = list(arrived) or [()] * (shape[0] // groups)
        out.append([[sum(map(mul, channel, values)) for values in met] for channel in channels])
    return to_array(out, shape, x.dtype)


def _taps(
    size: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, dilation: Pair
) -> tuple[Pair, list[list[int]]]:
    """Height and width of the output, and for each of its positions where in a flat padded image
    (channels, height, width) the window's elements stand."""
    height, width = size
    _, channels, kh, kw = w_shape
    oh = (height - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    first = [
        (c * height + i * dilation[0]) * width + j * dilation[1]
        for c in range(channels)
        for i in range(kh)
        for j in range(kw)
    ]
    corners = [(i * width) * stride[0] + j * stride[1] for i in range(oh) for j in range(ow)]
    return (oh, ow), [[corner + tap for tap in first] for corner in corners]


def _grouped_images(x: Array, groups: int) -> list[list[list[Any]]]:
    """[image][group] -> flat list of the group's channels."""
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups * h * w).tolist()


def _grouped_filters(w: Array, groups: int) -> list[list[list[Any]]]:
    """[group][output channel] -> flat list of weights."""
    o, c, kh, kw = w.shape
    return w.reshape(groups, o // groups, c * kh * kw).tolist()


def _grouped_positions(g: Array, groups: int) -> list[list[list[list[Any]]]]:
    """[image][group][position] -> the gradients of the group's output channels there."""
    n, o, oh, ow = g.shape
    split = g.reshape(n, groups, o // groups, oh * ow).swapaxes(-1, -2)
    return split.tolist()


def _warn(name: str, image: Array, w: Array, positions: int) -> None:
    warn_if_slow(name, "multiply-adds", positions * w.size, image.shape + w.shape)
