"""Pooling as loops over planes (one channel of one image), windows and their elements."""

from __future__ import annotations

from operator import gt
from typing import Any

from tinytorch.backends.naive.cost import warn_if_slow
from tinytorch.backends.naive.indexing import first_best
from tinytorch.backends.naive.lists import to_array
from tinytorch.dtypes import Array
from tinytorch.shapes_conv import window_positions

Pair = tuple[int, int]
Window = list[int]


def _windows(
    size: Pair, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)
) -> tuple[Pair, list[Window]]:
    """Height and width of the output, and for each of its elements the positions, in the flattened
    plane, of its window's elements. What lies on the border is left out."""
    height, width = size
    oh, ow = (
        window_positions(size[d], kernel_size[d], stride[d], padding[d], dilation[d])
        for d in range(2)
    )
    top, left = ([i * stride[d] - padding[d] for i in range(n)] for d, n in enumerate((oh, ow)))
    rows = [_inside(height, start, kernel_size[0], dilation[0]) for start in top]
    cols = [_inside(width, start, kernel_size[1], dilation[1]) for start in left]
    return (oh, ow), [[r * width + c for r in row for c in col] for row in rows for col in cols]


def _inside(extent: int, start: int, kernel: int, dilation: int) -> Window:
    return [p for p in range(start, start + kernel * dilation, dilation) if 0 <= p < extent]


def _planes(x: Array) -> list[list[Any]]:
    n, c, h, w = x.shape
    return x.reshape(n * c, h * w).tolist()


def _winner(plane: list[Any], window: Window) -> int:
    """Position of the first largest element of a window."""
    return window[first_best([plane[i] for i in window], gt)]


def max_pool2d(x: Array, **params: Any) -> Array:
    """The largest element of each window; NaN counts as the largest."""
    return max_pool2d_select(x, x, **params)


def max_pool2d_select(v: Array, x: Array, **params: Any) -> Array:
    """The elements of `v` where `x` has the first largest of each window."""
    size, windows = _windows(x.shape[2:], **params)
    warn_if_slow("max_pool2d", "elements", x[..., 0, 0].size * sum(map(len, windows)), x.shape)
    out = [
        [values[_winner(plane, window)] for window in windows]
        for values, plane in zip(_planes(v), _planes(x), strict=True)
    ]
    return to_array(out, (*x.shape[:2], *size), v.dtype)


def max_pool2d_backward(g: Array, x: Array, **params: Any) -> Array:
    """Each gradient is added where `x` has the first largest element of the window."""
    _, windows = _windows(x.shape[2:], **params)
    warn_if_slow("max_pool2d_backward", "elements", g.size * len(windows[0]), x.shape)
    out = []
    for gradients, plane in zip(_planes(g), _planes(x), strict=True):
        spread = [0.0] * len(plane)
        for gradient, window in zip(gradients, windows, strict=True):
            spread[_winner(plane, window)] += gradient
        out.append(spread)
    return to_array(out, x.shape, g.dtype)


def avg_pool2d(x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair) -> Array:
    """The sum of each window, divided by the window's size; the border counts as zeros."""
    size, windows = _windows(x.shape[2:], kernel_size, stride, padding)
    warn_if_slow("avg_pool2d", "elements", x[..., 0, 0].size * sum(map(len, windows)), x.shape)
    count = kernel_size[0] * kernel_size[1]
    out = [[sum([plane[i] for i in window]) / count for window in windows] for plane in _planes(x)]
    return to_array(out, (*x.shape[:2], *size), x.dtype)


def avg_pool2d_backward(
    g: Array, *, input_size: Pair, kernel_size: Pair, stride: Pair, padding: Pair
) -> Array:
    """Each gradient is shared evenly among the elements of its window."""
    _, windows = _windows(input_size, kernel_size, stride, padding)
    count = kernel_size[0] * kernel_size[1]
    out = []
    for gradients in _planes(g):
        spread = [0.0] * (input_size[0] * input_size[1])
        for gradient, window in zip(gradients, windows, strict=True):
            for i in window:
                spread[i] += gradient / count
        out.append(spread)
    return to_array(out, (*g.shape[:2], *input_size), g.dtype)
