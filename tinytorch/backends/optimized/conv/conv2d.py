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
    positions_cost,
    vectors_cost,
    whole_vectors,
)
from tinytorch.backends.optimized.gemm.packing import pack_f32, pack_f64
from tinytorch.dtypes import Array
from tinytorch.jit import threads
from tinytorch.jit.buffers import empty, workspace
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.jit.entries import Entries

MAKERS = {
    "positions": (make_positions, chain_tile_f32, chain_tile_f64),
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
    together, results = None, Images(out_channels, output)
    if groups == 1 and dilation == (1, 1) and x[0] * height * width:
        together = batch(itemsize, x[0], images, results, windows)
    as_rows = positions_cost(itemsize, images, results, windows)
    as_vectors = vectors_cost(vectors, height * width, windows)
    walk = cheapest(as_rows, as_vectors, vectors, together)
    if walk is not None:
        return _Plan(output, walk, False)
    return _Plan(output, forward_positions(itemsize, images, windows), False)


def is_product(lanes: int, image: Pair, windows: Windows) -> bool:
    """Whether a convolution is a matrix product of whole vectors: images serve as they are."""
    is_pointwise = windows.size == windows.stride == (1, 1) and windows.padding == (0, 0)
    return is_pointwise and image[0] * image[1] % lanes == 0


def cheapest(
    as_rows: float, as_vectors: float, vectors: Correlation, together: Batch | None
) -> Correlation | Batch | None:
    """The walk that takes the fewest FMAs of a vector for each element of the output.

    Args:
        as_rows, as_vectors: what it takes with positions as rows, and as vectors.
        vectors, together: two walks, if there is the second.

    Returns:
        The better walk, or None: with positions as rows it is better still.
    """
    if together is not None and together.cost < min(as_rows, as_vectors):
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
    if isinstance(plan.walk, Positions):
        by_group = w.reshape(groups, out_channels // groups, own, -1)
        w = packed_weights(plan.walk, by_group.transpose(0, 2, 1, 3))
    elif isinstance(plan.walk, Batch):
        packed = workspace(w.shape, w.dtype)
        loops_for("batch", x.itemsize).arrange(w.reshape(out_channels, own, -1), packed)
        w = packed
    sum_over_taps(plan.walk, x, w, bias, y, groups, plan.in_place and x.flags.c_contiguous)
    return y


def packed_weights(walk: Positions, w: Array) -> Array:
    """Weights (groups, channels of x, of y, taps) as the loops over positions read them."""
    groups, depth, channels, taps = w.shape
    packed = workspace((groups, depth * taps * whole_vectors(channels, w.itemsize)), w.dtype)
    loops_for(walk.kernels, w.itemsize).pack_weights(w, walk.table, packed)
    return packed


def sum_over_taps(
    walk: Walk, x: Array, w: Array, bias: Array, y: Array, groups: int, in_place: bool
) -> None:
    """y = bias + the sums of x over the taps, weighted by w as the loops of the walk have it."""
    count = threads.threads_for(y.size * walk.taps)
    loops_for(walk.kernels, x.itemsize).run(
        "items", count, x, w, bias, y, walk.table, walk.walk, walk.geometry, in_place, groups,
        scratch(count, *walk.scratch(x.shape, y.shape, in_place)),
    )  # fmt: skip
