"""Planes of images with their border, as pooling sees them: in phases.

A plane is copied with its border, split into one plane for each row and column of the stride (its
*phases*, as `conv.plan` has them). There, element (i, j) of all windows is one range of memory,

    window (y, k) at y * pitch + k       its element (i, j) at that + offset(i, j)

so a plane is pooled by one long loop for each element of the window, which LLVM vectorises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.conv.phases import join_pairs, split_pairs
from tinytorch.backends.optimized.conv.plan import Pair
from tinytorch.dtypes import Array
from tinytorch.jit.library import kernel
from tinytorch.jit.llvm import address
from tinytorch.jit.operands import Rows, Stack


def planes_of(x: Array) -> Array:
    """(n, c, h, w) as a contiguous (n c, h, w)."""
    n, c, h, w = x.shape
    return np.ascontiguousarray(x).reshape(n * c, h, w)


@kernel
def _axis(size: int, windows: int, length: int, stride: int, padding: int, dilation: int) -> Pair:
    """Of an axis in phases: elements before the first one, and length with both borders."""
    before = (padding + stride - 1) // stride
    last = ((length - 1) * dilation - padding) // stride + windows - 1
    return before, before + max((size + stride - 1) // stride, last + 1)


@kernel
def prepare(
    kind: Any,
    border: float,
    image: Pair,
    windows: Pair,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> tuple[Array, Pair, Array]:
    """Phases full of the border's value, where the image begins in each, and the offsets."""
    top, height = _axis(image[0], windows[0], kernel_size[0], stride[0], padding[0], dilation[0])
    left, pitch = _axis(image[1], windows[1], kernel_size[1], stride[1], padding[1], dilation[1])
    phases = np.full((stride[0], stride[1], height, pitch), border, kind)
    offsets = np.empty(kernel_size[0] * kernel_size[1], np.int64)
    for i in range(kernel_size[0]):
        row = i * dilation[0] - padding[0]
        for j in range(kernel_size[1]):
            column = j * dilation[1] - padding[1]
            phase = row % stride[0] * stride[1] + column % stride[1]
            place = (top + row // stride[0]) * pitch + left + column // stride[1]
            offsets[i * kernel_size[1] + j] = phase * height * pitch + place
    return phases, (top, left), offsets


@kernel(force_inline=True)
def _copy_every(source: Array, step: int, target: Array, target_step: int, count: int) -> None:
    for k in range(count):
        target[k * target_step] = source[k * step]


@kernel(force_inline=True)
def _pair_of_phases(phases: Array, begin: Pair) -> Stack:
    """Both phases (2, rows, pitch) of the same rows, from where the image begins."""
    at = address(phases[0, begin[0], begin[1] :])
    return Stack(at, phases.strides[1], phases.strides[0])


@kernel
def split(plane: Array, phases: Array, begin: Pair) -> None:
    """Copy a plane into its phases."""
    (height, width), (down, across) = plane.shape, phases.shape[:2]
    for i in range(min(down, height)):
        rows = (height - i + down - 1) // down
        if across == 2:
            image = Rows(address(plane[i]), down * plane.strides[0])
            split_pairs(plane.dtype.type, width, rows, image, _pair_of_phases(phases[i], begin))
            continue
        for j in range(min(across, width)):
            count = (width - j + across - 1) // across
            for r in range(rows):
                row, target = plane[i + r * down, j:], phases[i, j, begin[0] + r, begin[1] :]
                if across == 1:  # a constant step, for vector code
                    _copy_every(row, 1, target, 1, count)
                else:
                    _copy_every(row, across, target, 1, count)


@kernel
def join(phases: Array, plane: Array, begin: Pair) -> None:
    """The inverse of `split`."""
    (height, width), (down, across) = plane.shape, phases.shape[:2]
    for i in range(min(down, height)):
        rows = (height - i + down - 1) // down
        if across == 2:
            image = Rows(address(plane[i]), down * plane.strides[0])
            join_pairs(plane.dtype.type, width, rows, image, _pair_of_phases(phases[i], begin))
            continue
        for j in range(min(across, width)):
            count = (width - j + across - 1) // across
            for r in range(rows):
                row, source = plane[i + r * down, j:], phases[i, j, begin[0] + r, begin[1] :]
                if across == 1:
                    _copy_every(source, 1, row, 1, count)
                else:
                    _copy_every(source, 1, row, across, count)


@kernel
def windows_and_gaps(windows: Pair, phases: Array) -> int:
    """The length of all rows of windows, one pitch apart."""
    return (windows[0] - 1) * phases.shape[3] + windows[1]
