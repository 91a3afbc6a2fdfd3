"""Pooling: one value for each window of an image or a signal."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.autograd import no_grad
from tinytorch.autograd.function import Function
from tinytorch.creation import arange, from_numpy, zeros
from tinytorch.dispatch import apply
from tinytorch.dtypes import Array, Shape
from tinytorch.errors import ShapeError
from tinytorch.functions import movement
from tinytorch.functions.indexing import are_known, gather, index_select
from tinytorch.functions.movement import narrow, reshape, squeeze, stack, unsqueeze
from tinytorch.functions.reductions import amax, argmax, mean
from tinytorch.nn.functional.arguments import Pair, Size, pair, single
from tinytorch.nn.functional.windows import windows
from tinytorch.replay import holds, keep
from tinytorch.state import is_recording
from tinytorch.tensor import Tensor

MaybeIndices = Any  # a Tensor, or with return_indices two


def max_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> MaybeIndices:
    """The largest element of every window; of equal ones the first takes the gradient.

    Args:
        x: (n, c, h, w), or (c, h, w) for one image.
        kernel_size: of the window: one number, or (height, width), as for those below.
        stride: step of the window; by default its size.
        padding: a border of minus infinity on each side, at most half the window.
        dilation: distance between the elements that a window takes.
        ceil_mode: windows that begin in the image may reach over its border.
        return_indices: also return where in its image, as i * w + j, each element comes from.

    Returns:
        (n, c, oh, ow)

    Raises:
        ShapeError: the window does not fit into the image.
    """
    if x.ndim == 3:
        batch = max_pool2d(
            unsqueeze(x, 0), kernel_size, stride, padding, dilation, ceil_mode, return_indices
        )
        if return_indices:
            return squeeze(batch[0], 0), squeeze(batch[1], 0)
        return squeeze(batch, 0)
    kernel, border = pair(kernel_size, "kernel_size"), pair(padding, "padding")
    step, spread = _step(kernel, stride), pair(dilation, "dilation")
    more = overhang(x, kernel, step, border, spread) if ceil_mode else (0, 0)
    is_padded = any(more) and x.dtype.is_floating_point  # the op refuses others
    padded = movement.pad(x, (0, more[1], 0, more[0]), value=-math.inf) if is_padded else x
    out = apply(
        ops.max_pool2d, padded, kernel_size=kernel, stride=step, padding=border, dilation=spread
    )
    if not return_indices:
        return out
    return out, _places(x.detach(), kernel, step, border, spread, more)


def _step(kernel: Pair, stride: Size | None) -> Pair:
    """The stride; None and an empty sequence, as in PyTorch, mean the window's size."""
    return kernel if stride is None or stride == () else pair(stride, "stride")


def overhang(x: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    """How far the last windows of `ceil_mode` reach beyond the padded image."""
    more = []
    for n, k, s, p, d in zip(x.shape[-2:], kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        count = -(-(n + 2 * p - reach) // s) + 1
        if (count - 1) * s >= n + p:  # a window must begin within the image or before it
            count -= 1
        more.append(builtins.max((count - 1) * s + reach - n - 2 * p, 0))
    return more[0], more[1]


def _places(
    x: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, more: Pair
) -> Tensor:
    """Where the largest element of every window is, as a position in its image."""
    (top, left), (down, right) = padding, more
    border = (left, left + right, top, top + down)
    every = windows(movement.pad(x, border, value=-math.inf), kernel, stride, dilation)
    *batch, oh, ow, kh, kw = every.shape
    chosen = argmax(reshape(every, (*batch, oh, ow, kh * kw)), -1)
    row = chosen // kw * dilation[0] + unsqueeze(arange(oh) * stride[0] - top, 1)
    column = chosen % kw * dilation[1] + (arange(ow) * stride[1] - left)
    return row * x.shape[-1] + column


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The elements at the positions that `max_pool2d` took them from, and 0 elsewhere.

    Args:
        input, indices: (n, c, oh, ow), as `max_pool2d(..., return_indices=True)` gives them.
        output_size: of the images, if it is not (oh - 1) * stride - 2 * padding + kernel_size.

    Raises:
        ShapeError: the indices have another shape than the input.
    """
    if indices.shape != input.shape:
        raise ShapeError(f"max_unpool2d: indices {indices.shape} for input {input.shape}")
    kernel, border = pair(kernel_size, "kernel_size"), pair(padding, "padding")
    step = _step(kernel, stride)
    usual = [(input.shape[i - 2] - 1) * step[i] - 2 * border[i] + kernel[i] for i in range(2)]
    size = usual if output_size is None else [int(n) for n in output_size][-2:]
    flat = (*input.shape[:-2], math.prod(input.shape[-2:]))
    out = _Placed.apply(reshape(input, flat), reshape(indices, flat), size[0] * size[1])
    return reshape(out, (*input.shape[:-2], *size))


class _Placed(Function):
    """Values at places in zeros. A place that several have has the last one, and all its gradient:
    of `scatter` only the value that wins has one."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        zero = zeros((), dtype=values.dtype)  # `scatter` writes it everywhere
        return zero.expand(*values.shape[:-1], size).scatter(-1, index, values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return g.gather(-1, ctx.saved_tensors[0]), None, None


def avg_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window; a border of zeros counts, unless it is not to.

    Args:
        x: (n, c, h, w), or (c, h, w) for one image.
        kernel_size, stride, padding, ceil_mode: as for `max_pool2d`.
        count_include_pad: whether the border's zeros count in the mean.
        divisor_override: what the sum is divided by, instead of the number of elements.

    Returns:
        (n, c, oh, ow)

    Raises:
        ShapeError: the window does not fit into the image.
        ValueError: divisor_override is 0.
    """
    if x.ndim == 3:
        return squeeze(
            avg_pool2d(
                unsqueeze(x, 0), kernel_size, stride, padding, ceil_mode, count_include_pad,
                divisor_override,
            ), 0,
        )  # fmt: skip
    if divisor_override == 0:
        raise ValueError("avg_pool2d: divisor_override must not be 0")
    kernel, border = pair(kernel_size, "kernel_size"), pair(padding, "padding")
    step = _step(kernel, stride)
    more = overhang(x, kernel, step, border, (1, 1)) if ceil_mode else (0, 0)
    padded = movement.pad(x, (0, more[1], 0, more[0])) if any(more) else x
    out = apply(ops.avg_pool2d, padded, kernel_size=kernel, stride=step, padding=border)
    if divisor_override is not None:
        return out * (kernel[0] * kernel[1] / operator.index(divisor_override))
    if not any(more) and (count_include_pad or not any(border)):
        return out
    rows, columns = (
        _counts(out.shape[2 + i], x.shape[2 + i], kernel[i], step[i], border[i], count_include_pad)
        for i in range(2)
    )
    share = kernel[0] * kernel[1] / (rows[:, None] * columns)
    return out * from_numpy(share.astype(x.dtype.dtype))


def _counts(
    positions: int, extent: int, kernel: int, stride: int, padding: int, with_padding: bool
) -> Array:
    """How many elements of each window count."""
    start = np.arange(positions) * stride - padding
    low, high = (-padding, extent + padding) if with_padding else (0, extent)
    return np.minimum(start + kernel, high) - np.maximum(start, low)


def _on_rows(name: str, function: Callable[..., Any], x: Tensor, *args: Any, **options: Any) -> Any:
    """A function of images on signals (n, c, length) or (c, length): images one pixel high."""
    if x.ndim not in (2, 3):
        raise ShapeError(f"{name}: the input must be (n, channels, length), not {x.shape}")
    out = function(unsqueeze(x, -2), *args, **options)
    return tuple(squeeze(o, -2) for o in out) if isinstance(out, tuple) else squeeze(out, -2)


def _row(size: Size | None, what: str, rest: int = 1) -> Pair | None:
    return None if size is None or size == () else (rest, single(size, what))


def max_pool1d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> MaybeIndices:
    """`max_pool2d` of signals (n, c, length) or (c, length), with one number for each pair."""
    return _on_rows(
        "max_pool1d", max_pool2d, x, _row(kernel_size, "kernel_size"), _row(stride, "stride"),
        _row(padding, "padding", 0), _row(dilation, "dilation"), ceil_mode, return_indices,
    )  # fmt: skip


def avg_pool1d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """`avg_pool2d` of signals (n, c, length) or (c, length), with one number for each pair."""
    out: Tensor = _on_rows(
        "avg_pool1d", avg_pool2d, x, _row(kernel_size, "kernel_size"), _row(stride, "stride"),
        _row(padding, "padding", 0), ceil_mode, count_include_pad,
    )  # fmt: skip
    return out


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
    sizes = _adaptive_sizes("adaptive_avg_pool2d", x, output_size, 2)
    if all(size == 1 for _, size in sizes):  # in one sum, not in one of rows and one of their sums
        return mean(x, (-2, -1), keepdim=True)
    for dim, size in sizes:
        x = window_means(x, dim, size)
    return x


def adaptive_avg_pool1d(x: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """`adaptive_avg_pool2d` of the last dimension only: (..., length) gives (..., output_size)."""
    ((dim, size),) = _adaptive_sizes("adaptive_avg_pool1d", x, output_size, 1)
    return window_means(x, dim, size)


def adaptive_max_pool2d(
    x: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> MaybeIndices:
    """The largest element of each of the windows of `adaptive_avg_pool2d`; of equal ones the first
    takes the gradient.

    Args:
        x, output_size: as there.
        return_indices: also return where in its image, as i * w + j, each element comes from.
    """
    sizes = _adaptive_sizes("adaptive_max_pool2d", x, output_size, 2)
    return _adaptive_max(x, tuple([size for _, size in sizes]), return_indices)


def adaptive_max_pool1d(
    x: Tensor, output_size: int | Sequence[int], return_indices: bool = False
) -> MaybeIndices:
    """`adaptive_max_pool2d` of the last dimension only: (..., length) gives (..., output_size)."""
    ((_, size),) = _adaptive_sizes("adaptive_max_pool1d", x, output_size, 1)
    return _adaptive_max(x, (size,), return_indices)


def _adaptive_max(x: Tensor, sizes: Shape, return_indices: bool) -> MaybeIndices:
    """The maxima over the last dimensions, of which there are as many as sizes."""
    front, extents = x.shape[: -len(sizes)], x.shape[-len(sizes) :]
    flat = reshape(x, (*front, math.prod(extents)))
    places = _adaptive_places(extents, sizes)
    count, length = places.shape
    all_places = from_numpy(places.reshape(-1))

    def taken() -> Tensor:
        return reshape(index_select(flat, -1, all_places), (*front, count, length))

    if not (return_indices or _has_gradient(x)):
        return reshape(amax(taken(), -1), (*front, *sizes))
    with no_grad():
        first = from_numpy(np.arange(count) * length)
        index = keep(apply(ops.take, all_places, argmax(taken(), -1) + first))
    values = reshape(gather(flat, -1, index), (*front, *sizes))
    return (values, reshape(index, (*front, *sizes))) if return_indices else values


def _adaptive_places(extents: Shape, sizes: Shape) -> Array:
    """Where in the flattened image the elements of each window are, (windows, elements).

    A window that is shorter than others has its last elements several times: a maximum is that of
    each element once, and the first of equal ones is the same.
    """
    places = np.zeros((1, 1), np.int64)
    for extent, count in zip(extents, sizes, strict=True):
        starts, ends = np.array(_window_bounds(extent, count)).T
        steps = np.arange((ends - starts).max())
        along = np.minimum(starts[:, None] + steps, ends[:, None] - 1)
        grid = places[:, None, :, None] * extent + along[:, None]
        places = grid.reshape(len(places) * count, -1)
    return places


def _has_gradient(x: Tensor) -> bool:
    """Whether one is recorded, or, in a trace, may be."""
    is_recorded = x.requires_grad and is_recording()
    return is_recorded or not holds(x, are_known, traced=False)


def _adaptive_sizes(
    name: str, x: Tensor, output_size: int | Sequence[int | None], dims: int
) -> list[tuple[int, int]]:
    """The last dimensions, each with the size that it is to get."""
    if x.ndim <= dims or 0 in x.shape[-dims:]:
        axes = "..., h, w" if dims == 2 else "..., length"
        raise ShapeError(f"{name}: the input must be ({axes}), not {x.shape}")
    wanted = [output_size] * dims if isinstance(output_size, int) else list(output_size)
    if len(wanted) != dims or any(size is not None and size < 1 for size in wanted):
        raise ValueError(
            f"output_size must be one {'or two ' if dims == 2 else ''}numbers from 1 on, not "
            f"{output_size}"
        )
    positions = range(x.ndim - dims, x.ndim)
    return [(d, x.shape[d] if n is None else n) for d, n in zip(positions, wanted, strict=True)]


def window_means(x: Tensor, dim: int, count: int) -> Tensor:
    """Dimension `dim` as the means of `count` windows."""
    return _over_windows(x, dim, count, mean)


def _over_windows(
    x: Tensor, dim: int, count: int, reduce: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Dimension `dim` as `count` windows, each of them reduced."""
    extent = x.shape[dim]
    if count == extent:
        return apply(ops.copy, x)  # the result may be written to, as any other
    if extent % count == 0:
        split = reshape(x, (*x.shape[:dim], count, extent // count, *x.shape[dim + 1 :]))
        return reduce(split, dim + 1)
    bounds = _window_bounds(extent, count)
    return stack([reduce(narrow(x, dim, a, b - a), dim) for a, b in bounds], dim)


def _window_bounds(extent: int, count: int) -> list[tuple[int, int]]:
    """Where each of `count` windows begins and ends, as `adaptive_avg_pool2d` says."""
    return [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]
