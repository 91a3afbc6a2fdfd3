"""Pooling: one value for each window of an image."""

from __future__ import annotations

from collections.abc import Sequence

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions.movement import narrow, reshape, squeeze, stack, unsqueeze
from tinytorch.functions.reductions import mean
from tinytorch.nn.functional.arguments import Size, pair
from tinytorch.tensor import Tensor


def max_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
) -> Tensor:
    """The largest element of every window; of equal ones the first takes the gradient.

    Args:
        x: (n, c, h, w), or (c, h, w) for one image.
        kernel_size: of the window: one number, or (height, width), as for those below.
        stride: step of the window; by default its size.
        padding: a border of minus infinity on each side, at most half the window.
        dilation: distance between the elements that a window takes.

    Returns:
        (n, c, oh, ow)

    Raises:
        ShapeError: the window does not fit into the image.
    """
    if x.ndim == 3:
        return squeeze(max_pool2d(unsqueeze(x, 0), kernel_size, stride, padding, dilation), 0)
    return apply(
        ops.max_pool2d,
        x,
        kernel_size=pair(kernel_size, "kernel_size"),
        stride=pair(kernel_size if stride is None else stride, "stride"),
        padding=pair(padding, "padding"),
        dilation=pair(dilation, "dilation"),
    )


def avg_pool2d(
    x: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0
) -> Tensor:
    """The mean of every window; a border of zeros counts.

    Args:
        x: (n, c, h, w), or (c, h, w) for one image.
        kernel_size, stride, padding: as for `max_pool2d`.

    Returns:
        (n, c, oh, ow)

    Raises:
        ShapeError: the window does not fit into the image.
    """
    if x.ndim == 3:
        return squeeze(avg_pool2d(unsqueeze(x, 0), kernel_size, stride, padding), 0)
    return apply(
        ops.avg_pool2d,
        x,
        kernel_size=pair(kernel_size, "kernel_size"),
        stride=pair(kernel_size if stride is None else stride, "stride"),
        padding=pair(padding, "padding"),
    )


def adaptive_avg_pool2d(x: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Means of windows that split the image into `output_size` parts, whatever its size.

    Window i of n covers positions floor(i * size / n) to ceil((i + 1) * size / n), the last one
    excluded; so windows may overlap by one.

    Args:
        x: (..., h, w)
        output_size: one number or (height, width); None keeps a size.

    Returns:
        (..., oh, ow)

    Raises:
        ShapeError: x has fewer than three dimensions, or an empty image.
        ValueError: a size is below 1.

    >>> import tinytorch
    >>> adaptive_avg_pool2d(tinytorch.ones(2, 3, 7, 5), (2, None)).shape
    (2, 3, 2, 5)
    """
    if x.ndim < 3 or 0 in x.shape[-2:]:
        raise ShapeError(f"adaptive_avg_pool2d: the input must be (..., h, w), not {x.shape}")
    wanted = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    if len(wanted) != 2 or any(size is not None and size < 1 for size in wanted):
        raise ValueError(f"output_size must be one or two numbers from 1 on, not {output_size}")
    for dim, size in zip((x.ndim - 2, x.ndim - 1), wanted, strict=True):
        x = _window_means(x, dim, x.shape[dim] if size is None else size)
    return x


def _window_means(x: Tensor, dim: int, count: int) -> Tensor:
    """Dimension `dim` as the means of `count` windows."""
    extent = x.shape[dim]
    if count == extent:
        return x
    if extent % count == 0:
        split = reshape(x, (*x.shape[:dim], count, extent // count, *x.shape[dim + 1 :]))
        return mean(split, dim + 1)
    starts = [i * extent // count for i in range(count)]
    stops = [-(-(i + 1) * extent // count) for i in range(count)]
    windows = [narrow(x, dim, a, b - a) for a, b in zip(starts, stops, strict=True)]
    return stack([mean(window, dim) for window in windows], dim)
