"""Convolution and its gradients, on images in C order.

How an image is laid out with its padding and where its taps are, say the plans of
`optimized.conv`, in tables of int64. `record` is the address of the sizes and of those tables, as
int64, in the order in which the functions here take them apart.

`scratch` holds what the record's `first` says (packed weights, or sums), and after it `room` bytes,
of which the first `zeroed` must be zero: an image with its padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized.conv.conv2d import MAKERS, loops_for
from tinytorch.backends.optimized.conv.conv2d_weight import entries
from tinytorch.backends.optimized.conv.geometry import ProductsGeometry
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


def _weights_kernel(real: Any, by: str) -> Callable[..., Any]:
    """How the loops `by` have the weights: a kernel from their address to an array."""
    of_dtype, size = loops_for(by, np.dtype(real).itemsize), np.dtype(real).itemsize

    @kernel(force_inline=True)
    def as_they_are(w, rows, groups, own, area, order, taps, scratch):  # type: ignore[no-untyped-def]
        return strided(real, w, (rows, own * area), (own * area * size, size))

    if by == "vectors":
        return as_they_are

    # of an input's gradient (`order` is not 0) the weights come as (o, own, area), o their rows
    if by == "batch":
        arrange = of_dtype.kernel("arrange")

        @kernel(force_inline=True)
        def arranged(w, rows, groups, own, area, order, taps, scratch):  # type: ignore[no-untyped-def]
            packed = strided(real, scratch, (rows, own * area), (own * area * size, size))
            if order:  # channels exchanged, and turned around
                last = w + (area - 1) * size
                given = (area * size, rows * area * size, -size)
                arrange(strided(real, last, (rows, own, area), given), packed)
            else:
                given = (own * area * size, area * size, size)
                arrange(strided(real, w, (rows, own, area), given), packed)
            return packed

        return arranged

    pack_weights, pack_transposed = map(of_dtype.kernel, ("pack_weights", "pack_transposed"))

    @kernel(force_inline=True)
    def packed_in_panels(w, rows, groups, own, area, order, taps, scratch):  # type: ignore[no-untyped-def]
        depth = own * area
        packed = strided(real, scratch, (rows, depth), (depth * size, size))
        if order:
            each = rows // groups
            grouped = strided(
                real, w, (groups, own, each, area),
                (own * each * area * size, each * area * size, area * size, size),
            )  # fmt: skip
            by_group = strided(real, scratch, (groups, each * depth), (each * depth * size, size))
            pack_transposed(grouped, _table(order, taps), by_group)
        else:
            pack_weights(strided(real, w, (rows, depth), (depth * size, size)), groups, packed)
        return packed

    return packed_in_panels


def _declare_forward(real: Any, by: str, of_dtype: Any) -> None:
    """A sum over taps by the loops `by`."""
    weights_of, items = _weights_kernel(real, by), of_dtype.kernel("items")

    @declare(f"conv2d_by_{by}", real, "record x w bias y scratch")
    def conv2d(record: int, x: int, w: int, bias: int, y: int, scratch: int) -> None:
        (
            n, c, h, width, o, oh, ow, groups, in_place, first, room, zeroed,
            table, taps, walk, rows, columns, geometry, numbers, order, own, area,
        ) = words(record, 22)  # fmt: skip
        images, result = view(real, x, (n, c, h, width)), view(real, y, (n, o, oh, ow))
        weights = weights_of(w, o, groups, own, area, order, taps, scratch)
        items(
            images, weights, view(real, bias, o if bias else 0), result, _table(table, taps),
            _walk(walk, rows, columns), _table(geometry, numbers), in_place, groups,
            _buffer(scratch + first, room, zeroed),
        )  # fmt: skip


def _declare_weight(real: Any) -> None:
    """The gradient to the weights."""
    of_dtype = entries(np.dtype(real).itemsize)
    products, dots, arrange = map(of_dtype.kernel, ("products", "dots", "arrange"))

    @kernel
    def by_products(record: int, x: int, g: int, dw: int, scratch: int) -> None:
        (
            n, c, h, width, o, oh, ow, groups, kh, kw, first, room, zeroed,
            runs, many, vectors, geometry,
        ) = words(record, 17)  # fmt: skip
        sums = view(real, scratch, (1, o, many, vectors))
        sums[:] = 0
        products(
            view(real, x, (n, c, h, width)), view(real, g, (n, o, oh, ow)), sums,
            _table(runs, many), _table(geometry, GEOMETRY), groups,
            _buffer(scratch + first, room, zeroed),
        )  # fmt: skip
        arrange(sums[0], view(real, dw, (o, c // groups, kh, kw)))

    @declare("conv2d_weight_by_products", real, "record x g dw scratch")
    def conv2d_weight(record: int, x: int, g: int, dw: int, scratch: int) -> None:
        by_products(record, x, g, dw, scratch)

    @declare("conv2d_weight_by_dots", real, "record dots x g dw scratch")
    def conv2d_weight_by_dots(
        record: int, dots_record: int, x: int, g: int, dw: int, scratch: int
    ) -> None:
        """As `conv2d_weight`: infinities and NaN are left to the other way."""
        n, c, h, width, o, oh, ow, groups, kh, kw = words(record, 10)
        table, taps, geometry, numbers, length, together, room = words(dots_record, 7)
        result = view(real, dw, (o, c // groups * kh * kw))
        dots(
            view(real, x, (n, c, h, width)), view(real, g, (n, o, oh, ow)), result,
            _table(table, taps), _table(geometry, numbers), groups, length, together,
            _buffer(scratch, room, room),
        )  # fmt: skip
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
