"""ATen's convolution and pooling of volumes [N, C, D, H, W], made of what there is for images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinytorch import creation
from tinytorch.dtypes import int64
from tinytorch.functions import elementwise as e, movement as m, reductions as r
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.nn.functional.pooling import window_means
from tinytorch.tensor import Tensor

Ints = Sequence[int]


def three(values: Ints) -> tuple[int, int, int]:
    """One number for each dimension; a single one counts for all."""
    depth, height, width = values if len(values) == 3 else (*values,) * 3
    return depth, height, width


def over_planes(
    x: Tensor,
    w: Tensor,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    convolution: Callable[..., Tensor],
) -> Tensor:
    """A convolution of volumes: the sum, over the planes of the kernel w [O, C, D, H, W], of
    convolutions of those planes of x that the plane of the kernel meets.

    Args:
        convolution: of images.
    """
    (step, *steps), (border, *borders), (gap, *gaps) = map(three, (stride, padding, dilation))
    x = m.pad(x, (0, 0, 0, 0, border, border)) if border else x
    images, channels, depth, *size = x.shape
    count = (depth - gap * (w.shape[2] - 1) - 1) // step + 1
    total: Tensor | None = None
    for plane in range(w.shape[2]):
        first = plane * gap
        met = x[:, :, first : first + (count - 1) * step + 1 : step]
        rows = m.reshape(m.transpose(met, 1, 2), (images * count, channels, *size))
        part = convolution(
            rows, w[:, :, plane], None, steps, borders, gaps, False, (0, 0), groups
        )  # fmt: skip
        total = part if total is None else total + part
    assert total is not None  # a kernel has a plane
    return m.transpose(m.reshape(total, (images, count, *total.shape[1:])), 1, 2)


def _windows(x: Tensor, kernel: Ints, stride: Ints) -> Tensor:
    """[N, C, D, H, W] as [N, C, d, h, w, windows' elements]."""
    for i in range(3):
        x = m.unfold(x, 2 + i, kernel[i], stride[i])
    return m.reshape(x, (*x.shape[:5], math.prod(kernel)))


def _bordered(x: Tensor, padding: Ints, value: float) -> Tensor:
    depth, height, width = padding
    border = (width, width, height, height, depth, depth)
    return m.pad(x, border, value=value) if any(padding) else x


@aten("avg_pool3d")
def avg_pool3d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0, 0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    kernel, border = three(kernel_size), three(padding)
    if x.ndim != 5 or ceil_mode or divisor_override or (any(border) and not count_include_pad):
        raise NotImplementedError("avg_pool3d with windows of several sizes, or of one volume")
    step = three(stride or kernel_size)
    return r.mean(_windows(_bordered(x, border, 0.0), kernel, step), -1)


@aten("max_pool3d_with_indices")
def max_pool3d_with_indices(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0, 0, 0),
    dilation: Ints = (1, 1, 1),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest elements, and the index of each in its volume."""
    if x.ndim != 5 or ceil_mode or any(gap != 1 for gap in dilation):
        raise NotImplementedError("max_pool3d with dilation or ceil_mode, or of one volume")
    kernel, border, step = three(kernel_size), three(padding), three(stride or kernel_size)
    windows = _windows(_bordered(x, border, -math.inf), kernel, step)
    values, inside = r.max(windows, -1)
    index = creation.zeros((), dtype=int64)
    left = kernel[0] * kernel[1] * kernel[2]
    for i in range(3):  # the position in the window, then in the volume
        left //= kernel[i]
        within = e.remainder(e.floor_divide(inside, left), kernel[i])
        count = values.shape[2 + i]
        first = m.reshape(creation.arange(count) * step[i] - border[i], (count, *(1,) * (2 - i)))
        index = index * x.shape[2 + i] + within + first
    return values, index


@aten("_adaptive_avg_pool3d", "adaptive_avg_pool3d")
def adaptive_avg_pool3d(x: Tensor, output_size: Ints) -> Tensor:
    for dim, count in zip(range(x.ndim - 3, x.ndim), output_size, strict=True):
        x = window_means(x, dim, count)
    return x
