"""Pooling of planes (images times channels), with gradients.

`record` is the address of a `PoolRecord`.
"""

from __future__ import annotations

from typing import Any

from tinytorch.backends.optimized.pooling.average import avg_pool, avg_pool_backward
from tinytorch.backends.optimized.pooling.maximum import (
    max_pool,
    max_pool_backward,
    max_pool_select,
)
from tinytorch.backends.optimized.pooling.pairs import max_pool_2x2, max_pool_backward_2x2
from tinytorch.backends.optimized.symbols.records import POOL_WORDS, PoolRecord
from tinytorch.backends.optimized.symbols.table import REALS, declare
from tinytorch.jit.library import kernel
from tinytorch.jit.views import view, words


@kernel(force_inline=True)
def _read(record: int) -> Any:
    return PoolRecord(*words(record, POOL_WORDS))


@kernel(force_inline=True)
def _images(real: Any, address: int, r: Any) -> Any:
    """Planes of full size."""
    return view(real, address, (r.planes, r.height, r.width))


@kernel(force_inline=True)
def _pooled(real: Any, address: int, r: Any) -> Any:
    """Planes with an element for each window."""
    return view(real, address, (r.planes, r.out_height, r.out_width))


@kernel(force_inline=True)
def _windows(r: Any) -> Any:
    """Kernel size, stride and padding."""
    return (
        (r.kernel_height, r.kernel_width),
        (r.stride_height, r.stride_width),
        (r.padding_height, r.padding_width),
    )


@kernel(force_inline=True)
def _dilated(r: Any) -> Any:
    """Kernel size, stride, padding and dilation."""
    return *_windows(r), (r.dilation_height, r.dilation_width)


def _declare(real: Any) -> None:
    @declare("max_pool2d_2x2", real, "record x out")
    def max_pool2d_2x2(record: int, x: int, out: int) -> None:
        r = _read(record)
        max_pool_2x2(_images(real, x, r), _pooled(real, out, r))

    @declare("max_pool2d_backward_2x2", real, "record g x out")
    def max_pool2d_backward_2x2(record: int, g: int, x: int, out: int) -> None:
        r = _read(record)
        max_pool_backward_2x2(_pooled(real, g, r), _images(real, x, r), _images(real, out, r))

    @declare("max_pool2d", real, "record x out")
    def max_pool2d(record: int, x: int, out: int) -> None:
        r = _read(record)
        max_pool(_images(real, x, r), _pooled(real, out, r), *_dilated(r))

    @declare("max_pool2d_backward", real, "record g x out")
    def max_pool2d_backward(record: int, g: int, x: int, out: int) -> None:
        r = _read(record)
        upper, images, result = _pooled(real, g, r), _images(real, x, r), _images(real, out, r)
        max_pool_backward(upper, images, result, *_dilated(r))

    @declare("max_pool2d_select", real, "record v x out")
    def max_pool2d_select(record: int, v: int, x: int, out: int) -> None:
        r = _read(record)
        values, images, result = _images(real, v, r), _images(real, x, r), _pooled(real, out, r)
        max_pool_select(values, images, result, *_dilated(r))

    @declare("avg_pool2d", real, "record x out")
    def avg_pool2d(record: int, x: int, out: int) -> None:
        r = _read(record)
        avg_pool(_images(real, x, r), _pooled(real, out, r), *_windows(r))

    @declare("avg_pool2d_backward", real, "record g out")
    def avg_pool2d_backward(record: int, g: int, out: int) -> None:
        r = _read(record)
        avg_pool_backward(_pooled(real, g, r), _images(real, out, r), *_windows(r))


for _real in REALS:
    _declare(_real)
