"""Convolution, forward: which way to go, and the entry point on arrays.

Three loops do the sums. `loops` takes image by image, with vectors over output channels or over
positions; `batch` takes many small images at a time, with vectors over images. A plan chooses by an
estimate of the cost, and is kept for each shape.

A 1x1 convolution *is* a matrix product.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numba import types

from tinytorch.backends.optimized.conv.batch import make_batch
from tinytorch.backends.optimized.conv.chain_kernel import chain_tile_f32, chain_tile_f64
from tinytorch.backends.optimized.conv.loops import make_positions, make_vectors
from tinytorch.backends.optimized.conv.micro_kernel import conv_tile_f32, conv_tile_f64
from tinytorch.backends.optimized.conv.plan import (
    SLACK,
    Batch,
    Correlation,
    Images,
    Pair,
    Positions,
    Shape,
    Walk,
    Windows,
    batch,
    correlation,
    forward_positions,
    forward_taps,
)
from tinytorch.backends.optimized.gemm.micro_kernel import indirect_tile_f32, indirect_tile_f64
from tinytorch.backends.optimized.gemm.packing import pack_f32, pack_f64
from tinytorch.backends.optimized.gemm.panels import TILE_VECTORS
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.buffers import empty, workspace
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.entries import Entries

MAKERS = {
    "positions": (make_positions, indirect_tile_f32, indirect_tile_f64),
    "vectors": (make_vectors, conv_tile_f32, conv_tile_f64),
    "batch": (make_batch, chain_tile_f32, chain_tile_f64),
}


@cache
def loops_for(name: str, itemsize: int) -> Entries:
    """The loops of a walk, for float32 (itemsize 4) or float64."""
    make, tile_f32, tile_f64 = MAKERS[name]
    if itemsize == 4:
        return make(types.float32, tile_f32, pack_f32)
    return make(types.float64, tile_f64, pack_f64)


def zeroed(count: int, nbytes: int) -> Array:
    """Zeroed scratch memory for `count` threads, in parts that begin on cache lines."""
    return scratch(count, nbytes, nbytes + SLACK)


def scratch(count: int, zero: int, nbytes: int) -> Array:
    """Scratch memory for `count` threads, in parts that begin on cache lines and with zeros."""
    buffer = workspace((count, -(-nbytes // 64) * 64), np.dtype(np.uint8))
    buffer[:, :zero] = 0
    return buffer


class _Plan(NamedTuple):
    """What `conv2d` must know of a shape; made once."""

    output: Pair
    walk: Walk
    in_place: bool  # no padding: read the image where it is, if it is contiguous


@lru_cache(maxsize=256)
def plan_conv2d(
    itemsize: int, x: Shape, w: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> _Plan:
    """Lay out a convolution of images and weights of these shapes."""
    windows = Windows((w[2], w[3]), stride, padding, dilation, groups)
    images, out_channels = Images(w[1], (x[2], x[3])), w[0] // groups
    output = height, width = windows.output(images.size)
    lanes = host_vector_unit().register_bytes // itemsize
    rows, columns = (forward_taps(*axis) for axis in windows.axes)
    vectors = correlation(itemsize, images, output, stride, rows, columns)
    if is_product(lanes, images.size, windows):
        return _Plan(output, vectors, True)
    together = None
    if groups == 1 and dilation == (1, 1) and x[0] * height * width:
        together = batch(itemsize, x[0], images, Images(out_channels, output), windows)
    walk = cheapest(lanes, out_channels, height * width, vectors, together)
    if walk is not None:
        return _Plan(output, walk, False)
    return _Plan(output, forward_positions(itemsize, images, windows), padding == (0, 0))


def is_product(lanes: int, image: Pair, windows: Windows) -> bool:
    """Whether a convolution is a matrix product of whole vectors: images serve as they are."""
    is_pointwise = windows.size == windows.stride == (1, 1) and windows.padding == (0, 0)
    return is_pointwise and image[0] * image[1] % lanes == 0


def cheapest(
    lanes: int, channels: int, area: int, vectors: Correlation, together: Batch | None
) -> Correlation | Batch | None:
    """The walk that takes the fewest FMAs of a vector for each element of the output.

    Args:
        lanes: elements of a vector.
        channels, area: of the output.
        vectors, together: two walks, if there is the second.

    Returns:
        The better walk, or None: with positions as rows it is better still.
    """
    taps = vectors.taps
    needed = -(-channels // lanes)
    as_rows = taps * needed / channels * (1 + 0.12 / min(needed, TILE_VECTORS)) + 0.5
    as_vectors = vectors.stores.shape[0] / area * (taps * 1.05 + vectors.stores.shape[1] - 1)
    # measured: these two leave out a seventh, what an image costs before and after its sums
    if together is not None and together.cost < 1.15 * min(as_rows, as_vectors):
        return together
    return None if as_rows < as_vectors else vectors


def conv2d(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """y[n, o] = b[o] + the sum over channels c of x[n, c] correlated with w[o, c].

    Args:
        x: (N, C, H, W), float32 or float64.
        w: (O, C / groups, kh, kw).
        b: (O,) or None.
        stride, padding, dilation: (vertical, horizontal).
        groups: output channels see only the input channels of their group.

    Returns:
        (N, O, OH, OW), OH = (H + 2 * padding - dilation * (kh - 1) - 1) // stride + 1.
    """
    out_channels, own = w.shape[:2]
    plan = plan_conv2d(x.itemsize, x.shape, w.shape, stride, padding, dilation, groups)
    y = empty((x.shape[0], out_channels, *plan.output), x.dtype)
    bias = np.empty(0, x.dtype) if b is None else np.ascontiguousarray(b)
    w = np.ascontiguousarray(w).reshape(out_channels, -1)
    of_dtype = loops_for(plan.walk.kernels, x.itemsize)
    if not isinstance(plan.walk, Correlation):
        packed = workspace(w.shape, w.dtype)
        if isinstance(plan.walk, Positions):
            of_dtype.pack_weights(w, groups, packed)
        else:
            of_dtype.arrange(w.reshape(out_channels, own, -1), packed)
        w = packed
    sum_over_taps(plan.walk, x, w, bias, y, groups, plan.in_place and x.flags.c_contiguous)
    return y


def sum_over_taps(
    walk: Walk, x: Array, w: Array, bias: Array, y: Array, groups: int, in_place: bool
) -> None:
    """y = bias + the sums of x over the taps, weighted by w as the loops of the walk have it."""
    count = threads.threads_for(y.size * walk.taps)
    loops_for(walk.kernels, x.itemsize).run(
        "items", count, x, w, bias, y, walk.table, walk.walk, walk.geometry, in_place, groups,
        scratch(count, *walk.scratch(x.shape, y.shape, in_place)),
    )  # fmt: skip
