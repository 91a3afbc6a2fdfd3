"""ATen's operators that read images between their pixels, or beyond their borders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tinytorch.dispatch import wrap
from tinytorch.dtypes import int64, meta_of_array
from tinytorch.functions import elementwise as e, indexing, movement as m
from tinytorch.fx.convert.aten.registry import aten
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

Ints = Sequence[int]
NEAREST, LINEAR_SAMPLES = 1, 0
ZEROS, BORDER = 0, 1

for _mode, _name in (("reflect", "reflection"), ("replicate", "replication")):
    for _dims in (1, 2, 3):
        aten(f"{_name}_pad{_dims}d")(partial(F.pad, mode=_mode))


def _sizes(x: Tensor, size: Ints | None, scales: Sequence[float] | None) -> list[int]:
    if size is not None:
        return list(size)
    return [int(n * s) for n, s in zip(x.shape[2:], scales or (), strict=True)]


def _array(values: Any) -> Tensor:
    array = np.ascontiguousarray(values)
    return wrap(array, meta_of_array(array))


@aten("upsample_nearest1d.vec", "upsample_nearest2d.vec")
def upsample_nearest(x: Tensor, size: Ints | None, scales: Sequence[float] | None = None) -> Tensor:
    for i, n in enumerate(_sizes(x, size, scales)):
        had = x.shape[i + 2]
        step = np.float32(1 / scales[i]) if scales is not None else np.float32(had / n)
        chosen = np.minimum((np.arange(n, dtype=np.float32) * step).astype(np.int64), had - 1)
        x = indexing.index_select(x, i + 2, _array(chosen))
    return x


@aten("upsample_linear1d.vec", "upsample_bilinear2d.vec")
def upsample_linear(
    x: Tensor, size: Ints | None, align_corners: bool, scales: Sequence[float] | None = None
) -> Tensor:
    """Between the two nearest elements in each dimension, one dimension after the other."""
    for i, n in enumerate(_sizes(x, size, scales)):
        had = x.shape[i + 2]
        if align_corners:
            at = np.arange(n) * ((had - 1) / (n - 1) if n > 1 else 0.0)
        else:
            step = 1 / scales[i] if scales is not None else had / n
            at = np.maximum((np.arange(n) + 0.5) * step - 0.5, 0.0)
        low = np.minimum(at.astype(np.int64), had - 1)
        part = (at - low).astype(x.dtype.dtype).reshape(-1, *(1,) * (x.ndim - 3 - i))
        a = indexing.index_select(x, i + 2, _array(low))
        b = indexing.index_select(x, i + 2, _array(np.minimum(low + 1, had - 1)))
        x = a * _array(1 - part) + b * _array(part)
    return x


@aten("grid_sampler_2d")
def grid_sampler_2d(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Read images x [N, C, H, W] at positions grid [N, h, w, 2], from -1 to 1, columns first:
    [N, C, h, w]."""
    if interpolation_mode not in (NEAREST, LINEAR_SAMPLES) or padding_mode not in (ZEROS, BORDER):
        raise NotImplementedError("grid_sampler_2d, bicubic or with a reflected border")
    extents = (x.shape[3], x.shape[2])
    at = [_position(grid[..., i], n, align_corners) for i, n in enumerate(extents)]
    if padding_mode == BORDER:
        at = [e.clip(place, 0, n - 1) for place, n in zip(at, extents, strict=True)]
    if interpolation_mode == NEAREST:
        return _pixels(x, e.round(at[0]), e.round(at[1]))
    (left, right_part), (top, lower_part) = ((e.floor(place), place - e.floor(place))
                                             for place in at)  # fmt: skip
    total: Tensor | None = None
    for column, weight in ((left, 1 - right_part), (left + 1, right_part)):
        for row, share in ((top, 1 - lower_part), (top + 1, lower_part)):
            part = _pixels(x, column, row) * m.unsqueeze(weight * share, 1)
            total = part if total is None else total + part
    assert total is not None
    return total


def _position(place: Tensor, extent: int, align_corners: bool) -> Tensor:
    """Where a coordinate from -1 to 1 is among pixels: the ends are centres, or edges."""
    return (place + 1) * ((extent - 1) / 2) if align_corners else ((place + 1) * extent - 1) / 2


def _pixels(x: Tensor, column: Tensor, row: Tensor) -> Tensor:
    """Pixels of images x [N, C, H, W] at whole numbers [N, h, w]; 0 outside."""
    images, channels, height, width = x.shape
    inside = e.logical_and(
        e.logical_and(e.ge(column, 0), e.le(column, width - 1)),
        e.logical_and(e.ge(row, 0), e.le(row, height - 1)),
    )
    place = e.clip(row, 0, height - 1).to(int64) * width + e.clip(column, 0, width - 1).to(int64)
    flat = m.expand(m.reshape(place, (images, 1, -1)), (images, channels, place.numel() // images))
    found = indexing.gather(m.reshape(x, (images, channels, height * width)), 2, flat)
    shaped = m.reshape(found, (images, channels, *place.shape[1:]))
    return e.where(m.unsqueeze(inside, 1), shaped, 0.0)
