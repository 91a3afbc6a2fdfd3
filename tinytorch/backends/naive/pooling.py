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
    """The places of a window along one dimension: from `start` on, `kernel` of them, `dilation`
    apart; without those on the border, which are below 0 or not below `extent`.

    >>> _inside(5, -1, 3, 1), _inside(5, 2, 3, 2)
    ([0, 1], [2, 4])
    """
    return [p for p in range(start, start + kernel * dilation, dilation) if 0 <= p < extent]


def _planes(x: Array) -> list[list[Any]]:
    n, c, h, w = x.shape
    return x.reshape(n * c, h * w).tolist()


def _winner(plane: list[Any], window: Window) -> int:
    """Position in a flat plane of the first largest element of a window; NaN counts as the largest.

    >>> _winner([5.0, 1.0, 7.0, 7.0], [1, 2, 3])
    2
    """
    return window[first_best([plane[i] for i in window], gt)]


def _selected(values: list[Any], plane: list[Any], windows: list[Window]) -> list[Any]:
    """For each window, the element of `values` at the place where `plane` is largest."""
    return [values[_winner(plane, window)] for window in windows]


def _routed(gradients: list[Any], plane: list[Any], windows: list[Window]) -> list[Any]:
    """The adjoint of `_selected`: each window's gradient is added where `plane` is largest.

    Args:
        gradients: one for each window.

    Returns:
        One for each element of the plane; 0 where nothing was added.

    >>> _routed([1.0, 10.0], [0.0, 9.0, 3.0], [[0, 1], [1, 2]])
    [0.0, 11.0, 0.0]
    """
    spread = [0.0] * len(plane)
    for gradient, window in zip(gradients, windows, strict=True):
        spread[_winner(plane, window)] += gradient
    return spread


def max_pool2d(x: Array, **params: Any) -> Array:
    """The largest element of each window; NaN counts as the largest."""
    return max_pool2d_select(x, x, **params)


def max_pool2d_select(v: Array, x: Array, **params: Any) -> Array:
    """The elements of `v` where `x` has the first largest of each window."""
    size, windows = _windows(x.shape[2:], **params)
    warn_if_slow("max_pool2d", "elements", x[..., 0, 0].size * sum(map(len, windows)), x.shape)
    planes = zip(_planes(v), _planes(x), strict=True)
    out = [_selected(values, plane, windows) for values, plane in planes]
    return to_array(out, (*x.shape[:2], *size), v.dtype)


def max_pool2d_backward(g: Array, x: Array, **params: Any) -> Array:
    """The gradient of the input: each is added where `x` has the window's first largest element."""
    _, windows = _windows(x.shape[2:], **params)
    warn_if_slow("max_pool2d_backward", "elements", g.size * len(windows[0]), x.shape)
    planes = zip(_planes(g), _planes(x), strict=True)
    out = [_routed(gradients, plane, windows) for gradients, plane in planes]
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
    """The gradient of the input: each is shared evenly among the elements of its window."""
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
