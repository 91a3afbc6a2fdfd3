"""Convolution as loops over images, positions, output channels and window elements.

The three functions walk over the same windows. A window is the elements of one image that one
output element sees; `_taps` lists, for every position of the window, where in the padded image they
are.
"""

from __future__ import annotations

from operator import mul
from typing import Any

import numpy as np

from tinytorch.backends.naive.cost import warn_if_slow
from tinytorch.backends.naive.lists import to_array
from tinytorch.backends.reference_conv import pad2d
from tinytorch.dtypes import Array
from tinytorch.shapes_conv import window_positions

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
    out = [
        _filtered(pixels, group, bias_group, taps)
        for image in _grouped_images(padded, groups)
        for pixels, group, bias_group in zip(image, filters, biases, strict=True)
    ]
    return to_array(out, (n, o, *out_size), x.dtype)


def _filtered(
    pixels: list[Any], filters: list[list[Any]], biases: list[Any], taps: list[list[int]]
) -> list[list[Any]]:
    """What each filter gives at each position of one image.

    Args:
        pixels: the flat padded image.
        filters: the flat weights of each output channel, in the order of a window's elements.
        biases: a number for each output channel.
        taps: for each position, where in `pixels` the window's elements are.

    Returns:
        For each output channel, for each position: bias + sum of window times weights.

    >>> _filtered([1.0, 2.0, 3.0], [[10.0, 1.0]], [0.5], [[0, 1], [1, 2]])
    [[12.5, 23.5]]
    """
    windows = [[pixels[i] for i in window] for window in taps]
    return [
        [sum(map(mul, window, weights), bias) for window in windows]
        for weights, bias in zip(filters, biases, strict=True)
    ]


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
    """The gradient of the input: a window element gets each output's gradient times its weight."""
    n, channels = g.shape[0], w.shape[1] * groups
    height, width = (s + 2 * p for s, p in zip(input_size, padding, strict=True))
    _, taps = _taps((height, width), w.shape, stride, dilation)
    _warn("conv2d_input", g, w, n * len(taps))
    filters = _grouped_filters(w, groups)
    out = [
        _pixel_gradient(gradients, group, taps, w.shape[1] * height * width)
        for image in _grouped_positions(g, groups)
        for gradients, group in zip(image, filters, strict=True)
    ]
    padded = to_array(out, (n, channels, height, width), g.dtype)
    inside = padded[:, :, padding[0] : height - padding[0], padding[1] : width - padding[1]]
    return np.ascontiguousarray(inside)


def _pixel_gradient(
    gradients: list[Any], filters: list[list[Any]], taps: list[list[int]], count: int
) -> list[Any]:
    """The gradient of `_filtered` for its pixels: each output spreads over its window.

    Args:
        gradients: for each position, a number for each output channel.
        filters, taps: as for `_filtered`.
        count: how many pixels the image has.

    Returns:
        For each pixel, the sum over all windows that see it, and over the output channels, of
        gradient times weight; 0 where no window is.

    >>> _pixel_gradient([[1.0], [100.0]], [[2.0, 3.0]], [[0, 1], [1, 2]], 4)
    [2.0, 203.0, 300.0, 0.0]
    """
    elements = list(zip(*filters, strict=True))  # the weights of each window element
    spread = [0.0] * count
    for channels, window in zip(gradients, taps, strict=True):
        for i, weights in zip(window, elements, strict=True):
            spread[i] += sum(map(mul, channels, weights))
    return spread


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
    """The gradient of the weights: each gets the gradient at a position times the element there."""
    shape = (g.shape[1], x.shape[1] // groups, *kernel_size)
    padded = pad2d(x, padding)
    _, taps = _taps(padded.shape[2:], shape, stride, dilation)
    _warn("conv2d_weight", x, np.empty(shape, np.bool_), x.shape[0] * len(taps))
    images = list(_grouped_images(padded, groups))
    gradients = list(_grouped_positions(g, groups))
    out = []
    for k in range(groups):
        arrived = zip(*(position for image in gradients for position in image[k]), strict=True)
        channels = list(arrived) or [()] * (shape[0] // groups)
        out.append(_filter_gradient(channels, [image[k] for image in images], taps))
    return to_array(out, shape, x.dtype)


def _filter_gradient(
    gradients: list[Any], images: list[list[Any]], taps: list[list[int]]
) -> list[list[Any]]:
    """The gradient of `_filtered` for its filters, over several images.

    Args:
        gradients: for each output channel, a number for each position, image after image.
        images: their pixels, as for `_filtered`.
        taps: as for `_filtered`.

    Returns:
        For each output channel, for each window element: the sum over all positions of gradient
        times the pixel that the element met there.

    >>> _filter_gradient([[1.0, 10.0]], [[2.0, 3.0, 4.0]], [[0, 1], [1, 2]])
    [[32.0, 43.0]]
    """
    met = [[pixels[window[i]] for pixels in images for window in taps] for i in range(len(taps[0]))]
    return [[sum(map(mul, channel, values)) for values in met] for channel in gradients]


def _taps(
    size: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, dilation: Pair
) -> tuple[Pair, list[list[int]]]:
    """Where the elements of each window are in a flat image.

    Args:
        size: (height, width) of the image, with its border.
        w_shape: (out_channels, channels, kh, kw); the image has as many channels as a window.
        stride, dilation: of the windows.

    Returns:
        (oh, ow), and for each of the oh * ow positions, row by row, the places of the window's
        elements in the flattened image (channels, height, width): by channel, row and column.

    >>> _taps((2, 3), (1, 1, 2, 2), (1, 1), (1, 1))
    ((1, 2), [[0, 1, 3, 4], [1, 2, 4, 5]])
    """
    height, width = size
    _, channels, kh, kw = w_shape
    oh = window_positions(height, kh, stride[0], 0, dilation[0])
    ow = window_positions(width, kw, stride[1], 0, dilation[1])
    first = [
        (c * height + i * dilation[0]) * width + j * dilation[1]
        for c in range(channels)
        for i in range(kh)
        for j in range(kw)
    ]
    corners = [i * stride[0] * width + j * stride[1] for i in range(oh) for j in range(ow)]
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
