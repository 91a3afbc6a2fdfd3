"""Convolution and its gradients, on images in C order.

How an image is laid out with its padding and where its taps are, say the plans of `conv` and
`conv_backward`, in tables of int64. `record` is the address of the sizes and of those tables, as
int64, in the order in which the functions here take them apart.

`scratch` holds what the record's `first` says (packed weights, or sums), and after it, for each
thread, `room` bytes, of which the first `zeroed` must be zero: an image with its padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.backends.optimized import conv, conv_backward
from tinytorch.backends.optimized.library import kernel
from tinytorch.backends.optimized.symbols import REALS, declare
from tinytorch.backends.optimized.symbols.views import strided, view, words

Forward = Callable[..., None]


@kernel(force_inline=True)
def _table(address: int, size: int) -> Any:
    return strided(np.int64, address, (size,), (8,))


@kernel(force_inline=True)
def _walk(address: int, rows: int, columns: int) -> Any:
    return strided(np.int64, address, (rows, columns), (8 * columns, 8))


@kernel(force_inline=True)
def _buffer(address: int, threads: int, room: int, zeroed: int) -> Any:
    """Scratch for each thread, with zeros where the padding of an image will be."""
    for t in range(threads):
        start = view(np.uint8, address + t * room, zeroed)
        start[:] = 0
    return strided(np.uint8, address, (threads, room), (room, 1))


def _weights_kernel(real: Any, by: str) -> Callable[..., Any]:
    """How the loops `by` have the weights: a kernel from their address to an array."""
    of_dtype, size = conv.loops(by, np.dtype(real).itemsize), np.dtype(real).itemsize

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


def _forward(real: Any, by: str, items: Forward) -> Forward:
    """A sum over taps by the loops `items`, called as items(threads, x, w, ...)."""
    weights_of = _weights_kernel(real, by)

    @kernel
    def run(threads: int, record: int, x: int, w: int, bias: int, y: int, scratch: int) -> None:
        (
            n, c, h, width, o, oh, ow, groups, in_place, first, room, zeroed,
            table, taps, walk, rows, columns, geometry, numbers, order, own, area,
        ) = words(record, 22)  # fmt: skip
        images, result = view(real, x, (n, c, h, width)), view(real, y, (n, o, oh, ow))
        weights = weights_of(w, o, groups, own, area, order, taps, scratch)
        biases = view(real, bias, o if bias else 0)
        items(
            threads, images, weights, biases, result, _table(table, taps),
            _walk(walk, rows, columns), _table(geometry, numbers), in_place, groups,
            _buffer(scratch + first, threads, room, zeroed),
        )  # fmt: skip

    return run


def _declare_forward(real: Any, by: str, of_dtype: Any) -> None:
    serial, parallel = of_dtype.kernel("items"), of_dtype.kernel("items_parallel")

    @kernel(force_inline=True)
    def alone(threads, x, w, bias, y, table, walk, geometry, in_place, groups, buffer):  # type: ignore[no-untyped-def]
        serial(x, w, bias, y, table, walk, geometry, in_place, groups, buffer)

    @kernel(force_inline=True)
    def together(threads, x, w, bias, y, table, walk, geometry, in_place, groups, buffer):  # type: ignore[no-untyped-def]
        if threads <= 1:
            serial(x, w, bias, y, table, walk, geometry, in_place, groups, buffer)
        else:
            parallel(threads, x, w, bias, y, table, walk, geometry, in_place, groups, buffer)

    run_alone, run_together = _forward(real, by, alone), _forward(real, by, together)

    @declare(f"conv2d_by_{by}", real, "record x w bias y scratch")
    def conv2d(record: int, x: int, w: int, bias: int, y: int, scratch: int) -> None:
        run_alone(1, record, x, w, bias, y, scratch)

    @declare(f"conv2d_by_{by}_parallel", real, "threads record x w bias y scratch")
    def conv2d_parallel(
        threads: int, record: int, x: int, w: int, bias: int, y: int, scratch: int
    ) -> None:
        run_together(threads, record, x, w, bias, y, scratch)


def _weight(real: Any, products: Callable[..., None]) -> Callable[..., None]:
    """The gradient to the weights, by the kernel `products(threads, x, g, sums, ...)`."""
    size = np.dtype(real).itemsize
    arrange = conv_backward._entries(size).kernel("arrange")

    @kernel
    def run(threads: int, record: int, x: int, g: int, dw: int, scratch: int) -> None:
        """Each thread adds up its own images; `scratch` has sums and room for each."""
        (
            n, c, h, width, o, oh, ow, groups, kh, kw, first, room, zeroed,
            runs, many, vectors, geometry,
        ) = words(record, 17)  # fmt: skip
        length = o * many * vectors
        view(real, scratch, threads * length)[:] = 0
        products(
            threads, view(real, x, (n, c, h, width)), view(real, g, (n, o, oh, ow)),
            view(real, scratch, (threads, o, many, vectors)), _table(runs, many),
            _table(geometry, 8), groups,
            _buffer(scratch + first * threads, threads, room, zeroed),
        )  # fmt: skip
        total = view(real, scratch, length)
        for t in range(1, threads):
            part = view(real, scratch + t * length * size, length)
            for i in range(length):
                total[i] += part[i]
        sums = view(real, scratch, (o, many, vectors))
        arrange(sums, view(real, dw, (o, c // groups, kh, kw)))

    return run


def _declare_weight(real: Any) -> None:
    size = np.dtype(real).itemsize
    of_dtype = conv_backward._entries(size)
    serial, parallel = map(of_dtype.kernel, ("products", "products_parallel"))
    dots = of_dtype.kernel("dots")

    @kernel(force_inline=True)
    def alone(threads, x, g, sums, runs, geometry, groups, buffer):  # type: ignore[no-untyped-def]
        serial(x, g, sums, runs, geometry, groups, buffer)

    @kernel(force_inline=True)
    def together(threads, x, g, sums, runs, geometry, groups, buffer):  # type: ignore[no-untyped-def]
        if threads <= 1:
            serial(x, g, sums, runs, geometry, groups, buffer)
        else:
            parallel(threads, x, g, sums, runs, geometry, groups, buffer)

    run_alone, run_together = _weight(real, alone), _weight(real, together)

    @declare("conv2d_weight_by_products", real, "record x g dw scratch")
    def conv2d_weight(record: int, x: int, g: int, dw: int, scratch: int) -> None:
        run_alone(1, record, x, g, dw, scratch)

    @declare("conv2d_weight_by_products_parallel", real, "threads record x g dw scratch")
    def conv2d_weight_parallel(
        threads: int, record: int, x: int, g: int, dw: int, scratch: int
    ) -> None:
        run_together(threads, record, x, g, dw, scratch)

    @declare("conv2d_weight_by_dots", real, "record dots x g dw scratch")
    def conv2d_weight_by_dots(
        record: int, dots_record: int, x: int, g: int, dw: int, scratch: int
    ) -> None:
        """As `conv_backward.conv2d_weight`: infinities and NaN are left to the other way."""
        n, c, h, width, o, oh, ow, groups, kh, kw = words(record, 10)
        table, taps, geometry, numbers, length, together, room = words(dots_record, 7)
        result = view(real, dw, (o, c // groups * kh * kw))
        dots(
            view(real, x, (n, c, h, width)), view(real, g, (n, o, oh, ow)), result,
            _table(table, taps), _table(geometry, numbers), groups, length, together,
            _buffer(scratch, 1, room, room),
        )  # fmt: skip
        flat, finite = view(real, dw, result.size), True
        for i in range(flat.size):
            finite &= flat[i] - flat[i] == 0
        if not finite:
            run_alone(1, record, x, g, dw, scratch)


for _real in REALS:
    _size = np.dtype(_real).itemsize
    for _by in conv.MAKERS:
        _declare_forward(_real, _by, conv.loops(_by, _size))
    _declare_weight(_real)
