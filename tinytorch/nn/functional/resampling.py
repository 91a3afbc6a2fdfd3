"""Images and signals in another size: interpolation, and channels exchanged for pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tinytorch import ops
from tinytorch.creation import from_numpy
from tinytorch.dispatch import apply
from tinytorch.dtypes import Array, Shape
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.indexing import index_select
from tinytorch.functions.movement import expand, permute, reshape, unsqueeze
from tinytorch.nn.functional.grid import Grid, grid_of, select
from tinytorch.nn.functional.pooling import window_means
from tinytorch.tensor import Tensor

Sizes = int | Sequence[int]
Scales = float | Sequence[float]
LINEAR = {3: ("linear",), 4: ("bilinear", "bicubic"), 5: ("trilinear",)}
CUBIC = -0.75  # the slope parameter of bicubic interpolation, as in PyTorch


def interpolate(
    input: Tensor,
    size: Sizes | None = None,
    scale_factor: Scales | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The tensor resized in its last dimensions, by copying or mixing neighbours.

    Args:
        input: (n, channels, length), (n, channels, h, w) or (n, channels, d, h, w).
        size: of the result, one number or one for each dimension; or
        scale_factor: what the size is multiplied by (and rounded down).
        mode: "nearest", "nearest-exact", "area" (means); "linear", "bilinear", "trilinear" by the
            number of dimensions; "bicubic".
        align_corners: the first and last elements keep their positions; else the outer edges do.
        recompute_scale_factor: take the scale from the rounded sizes, and not scale_factor.
        antialias: not supported.

    Raises:
        ValueError: neither or both of size and scale_factor; a mode that does not fit.
        ShapeError: the input has another number of dimensions.
        DTypeError: integers are to be mixed.

    Source: R. Keys, "Cubic convolution interpolation for digital image processing", 1981.

    >>> import tinytorch
    >>> interpolate(tinytorch.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    if input.ndim not in LINEAR:
        raise ShapeError(f"interpolate: the input must be (n, channels, ...), not {input.shape}")
    mixing = LINEAR[input.ndim]
    if mode not in ("nearest", "nearest-exact", "area", *mixing):
        raise ValueError(f"interpolate: mode {mode!r} is not for input of shape {input.shape}")
    if align_corners is not None and mode not in mixing:
        raise ValueError(f"interpolate: align_corners is not for mode {mode!r}")
    if mode in mixing and not input.dtype.is_floating_point:
        name = input.dtype.name
        raise DTypeError(f"interpolate: mode {mode!r} mixes floats, not {name}; use x.float()")
    if antialias:
        raise ValueError("interpolate: antialias=True is not supported; blur with avg_pool2d first")
    sizes, scales = _sizes(input.shape[2:], size, scale_factor, bool(recompute_scale_factor))
    out = input
    if mode in ("nearest", "nearest-exact") and not _is_repeated(input.shape[2:], sizes, scales):
        out = select(input, _nearest(input.shape[2:], tuple(sizes), tuple(scales), mode))
    else:
        for i, (count, scale) in enumerate(zip(sizes, scales, strict=True)):
            out = _resample(out, i + 2, count, scale, mode, bool(align_corners))
    return input.clone() if out is input else out


def _is_repeated(shape: Shape, sizes: list[int], scales: list[float]) -> bool:
    """Whether the nearest of each new element is every old one, as often as all others."""
    places = zip(shape, sizes, scales, strict=True)
    return all(count % n == 0 and scale * count == n for n, count, scale in places)


@lru_cache(maxsize=16)  # of large images they are large themselves
def _nearest(shape: Shape, sizes: Shape, scales: tuple[float, ...], mode: str) -> Grid:
    """Where the elements of the last dimensions, of this shape, are read."""
    added = np.float32(0.5 * (mode != "nearest"))
    positions = []
    for extent, count, scale in zip(shape, sizes, scales, strict=True):
        source = (np.arange(count, dtype=np.float32) + added) * np.float32(scale)
        positions.append(np.minimum(np.floor(source).astype(np.int64), extent - 1))
    return grid_of(positions, shape)


def _sizes(
    shape: Sequence[int], size: Sizes | None, factor: Scales | None, recompute: bool
) -> tuple[list[int], list[float]]:
    """The new sizes, and for each how many old elements there are for a new one."""
    if (size is None) == (factor is None):
        raise ValueError("interpolate: give either size or scale_factor")
    if size is not None:
        sizes = [int(size)] * len(shape) if isinstance(size, int) else [int(s) for s in size]
        factors = [0.0] * len(shape)
    else:
        assert factor is not None
        factors = (
            [float(f) for f in factor] if isinstance(factor, Sequence) else [factor] * len(shape)
        )
        sizes = [math.floor(n * f) for n, f in zip(shape, factors, strict=False)]
    if len(sizes) != len(shape) or min(sizes) < 1:
        raise ValueError(f"interpolate: the input's {tuple(shape)} cannot become {tuple(sizes)}")
    if recompute:
        factors = [0.0] * len(shape)
    scales = [1 / f if f else n / s for n, s, f in zip(shape, sizes, factors, strict=True)]
    return sizes, scales


def _resample(x: Tensor, dim: int, count: int, scale: float, mode: str, corners: bool) -> Tensor:
    """Dimension `dim` with `count` elements."""
    extent = x.shape[dim]
    if mode == "area":
        return window_means(x, dim, count)
    if count == extent and scale == 1:
        return x
    if mode in ("nearest", "nearest-exact"):  # each as often as the others
        spread = expand(unsqueeze(x, dim + 1), *_at(x, dim + 1, count // extent))
        spread = spread.clone() if extent == 1 else spread  # else a view of x
        return reshape(spread, (*x.shape[:dim], count, *x.shape[dim + 1 :]))
    positions = np.arange(count, dtype=np.float64)
    if corners:
        source = positions * ((extent - 1) / (count - 1) if count > 1 else 0)
    else:
        source = (positions + 0.5) * scale - 0.5
        source = source if mode == "bicubic" else np.maximum(source, 0)
    start = np.floor(source)
    taps = _cubic(source - start) if mode == "bicubic" else _linear(source - start)
    total: Tensor | None = None
    for offset, weight in taps:
        index = np.clip(start + offset, 0, extent - 1).astype(np.int64)
        shape = (-1, *(1,) * (x.ndim - dim - 1))
        part = index_select(x, dim, from_numpy(index)) * from_numpy(
            weight.reshape(shape).astype(x.dtype.dtype)
        )
        total = part if total is None else total + part
    assert total is not None
    return total


def _at(x: Tensor, dim: int, size: int) -> tuple[int, ...]:
    return (*x.shape[:dim], size, *x.shape[dim:])


def _linear(t: Array) -> list[tuple[int, Array]]:
    return [(0, 1 - t), (1, t)]


def _cubic(t: Array) -> list[tuple[int, Array]]:
    """Keys' kernel at distances t + 1, t, 1 - t and 2 - t."""

    def near(d: Array) -> Array:
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1

    def far(d: Array) -> Array:
        return ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC

    return [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., c * r * r, h, w) as (..., c, h * r, w * r): channels become an r by r square.

    Raises:
        ShapeError: the channels are no multiple of r * r.

    Source: W. Shi et al., "Real-time single image and video super-resolution using an efficient
    sub-pixel convolutional neural network", 2016.
    """
    r = upscale_factor
    if r < 1 or input.ndim < 3 or input.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: the channels of {input.shape} are no multiple of {r}^2")
    *batch, c, h, w = input.shape
    b = len(batch)
    split = reshape(input, (*batch, c // (r * r), r, r, h, w))
    turned = permute(split, *range(b), b, b + 3, b + 1, b + 4, b + 2)
    return reshape(apply(ops.copy, turned), (*batch, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of `pixel_shuffle`.

    Raises:
        ShapeError: height or width is no multiple of the factor.
    """
    r = downscale_factor
    if r < 1 or input.ndim < 3 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle: the size of {input.shape} is no multiple of {r}")
    *batch, c, h, w = input.shape
    b = len(batch)
    split = reshape(input, (*batch, c, h // r, r, w // r, r))
    turned = permute(split, *range(b), b, b + 2, b + 4, b + 1, b + 3)
    return reshape(apply(ops.copy, turned), (*batch, c * r * r, h // r, w // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (n, c, ...) so that each group gives one in turn.

    Raises:
        ShapeError: the channels do not split into the groups.

    Source: X. Zhang et al., "ShuffleNet", 2017.
    """
    if groups < 1 or input.ndim < 2 or input.shape[1] % groups:
        raise ShapeError(f"channel_shuffle: {input.shape} does not split into {groups} groups")
    split = input.unflatten(1, (groups, input.shape[1] // groups))
    return reshape(apply(ops.copy, split.transpose(1, 2)), input.shape)
