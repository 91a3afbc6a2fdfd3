"""Convolution and its gradients, on images in C order.

How an image is laid out with its padding and where its taps are, say the plans of
`optimized.conv`, in tables of int64. `record` is the address of a `ConvRecord` or another record of
`records`, with the sizes and the addresses of those tables.

`scratch` holds packed weights or sums, and after them `room` bytes for an image with its padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.conv.conv2d import MAKERS, loops_for
from tinytorch.backends.optimized.conv.conv2d_weight import entries
from tinytorch.backends.optimized.conv.geometry import ProductsGeometry
from tinytorch.backends.optimized.gemm.panels import REGISTER_BYTES
from tinytorch.backends.optimized.symbols.records import (
    CONV_DOTS_WORDS,
    CONV_WEIGHT_WORDS,
    CONV_WORDS,
    ConvDotsRecord,
    ConvRecord,
    ConvWeightRecord,
)
from tinytorch.backends.optimized.symbols.table import REALS, declare
from tinytorch.jit.library import kernel
from tinytorch.jit.views import strided, view, words

GEOMETRY = len(ProductsGeometry._fields)


@kernel(force_inline=True)
def _table(address: int, size: int) -> Any:
    return strided(np.int64, address, (size,), (8,))


@kernel(force_inline=True)
def _walk(address: int, rows: int, columns: int) -> Any:
    return strided(np.int64, address, (rows, columns), (8 * columns, 8))


@kernel(force_inline=True)
def _buffer(address: int, room: int, zeroed: int) -> Any:
    """Scratch for one thread, with zeros where the padding of an image will be."""
    start = view(np.uint8, address, zeroed)
    start[:] = 0
    return strided(np.uint8, address, (1, room), (room, 1))


@kernel(force_inline=True)
def _images(real: Any, address: int, r: Any) -> Any:
    return view(real, address, (r.images, r.channels, r.height, r.width))


@kernel(force_inline=True)
def _outputs(real: Any, address: int, r: Any) -> Any:
    return view(real, address, (r.images, r.out_channels, r.out_height, r.out_width))


def _weights_kernel(real: Any, by: str) -> Callable[..., Any]:
    """How the loops `by` have the weights: a kernel from their address to an array."""
    of_dtype, size = loops_for(by, np.dtype(real).itemsize), np.dtype(real).itemsize
    lanes = REGISTER_BYTES // size

    @kernel(force_inline=True)
    def as_they_are(w, rows, groups, own, area, is_gradient, table, scratch):  # type: ignore[no-untyped-def]
        return strided(real, w, (rows, own * area), (own * area * size, size))

    if by == "vectors":
        return as_they_are

    # of an input's gradient the weights come as (o, own, area), o their rows
    if by == "batch":
        arrange = of_dtype.kernel("arrange")

        @kernel(force_inline=True)
        def arranged(w, rows, groups, own, area, is_gradient, table, scratch):  # type: ignore[no-untyped-def]
            packed = strided(real, scratch, (rows, own * area), (own * area * size, size))
            if is_gradient:  # channels exchanged, and turned around
                last = w + (area - 1) * size
                given = (area * size, rows * area * size, -size)
                arrange(strided(real, last, (rows, own, area), given), packed)
            else:
                given = (own * area * size, area * size, size)
                arrange(strided(real, w, (rows, own, area), given), packed)
            return packed

        return arranged

    pack_weights = of_dtype.kernel("pack_weights")

    @kernel(force_inline=True)
    def packed_in_panels(w, rows, groups, own, area, is_gradient, table, scratch):  # type: ignore[no-untyped-def]
        each, depth = rows // groups, own * area
        columns = (each + lanes - 1) // lanes * lanes
        packed = strided(real, scratch, (groups, depth * columns), (depth * columns * size, size))
        across, along = (each * area, area) if is_gradient else (area, depth)
        steps = (each * depth * size, across * size, along * size, size)
        pack_weights(strided(real, w, (groups, own, each, area), steps), table, packed)
        return packed

    return packed_in_panels


def _declare_forward(real: Any, by: str, of_dtype: Any) -> None:
    """A sum over taps by the loops `by`."""
    weights_of, items = _weights_kernel(real, by), of_dtype.kernel("items")

    @declare(f"conv2d_by_{by}", real, "record x w bias y scratch")
    def conv2d(record: int, x: int, w: int, bias: int, y: int, scratch: int) -> None:
        r = ConvRecord(*words(record, CONV_WORDS))
        table = _table(r.table, r.taps)
        items(
            _images(real, x, r),
            weights_of(
                *(
                    w,
                    r.out_channels,
                    r.groups,
                    r.group_channels,
                    r.area,
                    r.is_gradient,
                    table,
                    scratch,
                )
            ),
            view(real, bias, r.out_channels if bias else 0),
            _outputs(real, y, r),
            table,
            _walk(r.walk, r.walk_rows, r.walk_columns),
            _table(r.geometry, r.geometry_size),
            r.in_place,
            r.groups,
            _buffer(scratch + r.packed, r.room, r.zeroed),
        )


def _declare_weight(real: Any) -> None:
    """The gradient to the weights."""
    of_dtype = entries(np.dtype(real).itemsize)
    products, dots, arrange = map(of_dtype.kernel, ("products", "dots", "arrange"))

    @kernel
    def by_products(record: int, x: int, g: int, dw: int, scratch: int) -> None:
        r = ConvWeightRecord(*words(record, CONV_WEIGHT_WORDS))
        sums = view(real, scratch, (1, r.out_channels, r.runs_size, r.vectors))
        sums[:] = 0
        products(
            _images(real, x, r),
            _outputs(real, g, r),
            sums,
            _table(r.runs, r.runs_size),
            _table(r.geometry, GEOMETRY),
            r.groups,
            _buffer(scratch + r.sums, r.room, r.zeroed),
        )
        own = r.channels // r.groups
        arrange(sums[0], view(real, dw, (r.out_channels, own, r.kernel_height, r.kernel_width)))

    @declare("conv2d_weight_by_products", real, "record x g dw scratch")
    def conv2d_weight(record: int, x: int, g: int, dw: int, scratch: int) -> None:
        by_products(record, x, g, dw, scratch)

    @declare("conv2d_weight_by_dots", real, "record dots x g dw scratch")
    def conv2d_weight_by_dots(
        record: int, dots_record: int, x: int, g: int, dw: int, scratch: int
    ) -> None:
        """As `conv2d_weight`: infinities and NaN are left to the other way."""
        r = ConvWeightRecord(*words(record, CONV_WEIGHT_WORDS))
        d = ConvDotsRecord(*words(dots_record, CONV_DOTS_WORDS))
        terms = r.channels // r.groups * r.kernel_height * r.kernel_width
        result = view(real, dw, (r.out_channels, terms))
        dots(
            _images(real, x, r),
            _outputs(real, g, r),
            result,
            _table(d.table, d.taps),
            _table(d.geometry, d.geometry_size),
            r.groups,
            d.length,
            d.together,
            _buffer(scratch, d.room, d.room),
        )
        flat, finite = view(real, dw, result.size), True
        for i in range(flat.size):
            finite &= flat[i] - flat[i] == 0
        if not finite:
            by_products(record, x, g, dw, scratch)


for _real in REALS:
    _size = np.dtype(_real).itemsize
    for _by in MAKERS:
        _declare_forward(_real, _by, loops_for(_by, _size))
    _declare_weight(_real)
