"""The gradient of a convolution with respect to its input.

It is a convolution of the padded output gradient with the weights, channels exchanged. With stride
s every s-th row and column of the result sees its own subset of taps (a *phase*); the loops of the
forward convolution walk through them one after the other and write each into its place.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tinytorch.backends.optimized.conv.conv2d import (
    cheapest,
    is_product,
    loops_for,
    packed_weights,
    sum_over_taps,
)
from tinytorch.backends.optimized.conv.plan import (
    Correlation,
    Images,
    Pair,
    Positions,
    Shape,
    Walk,
    Windows,
    backward_positions,
    backward_taps,
    batch,
    correlation,
    positions_cost,
    vectors_cost,
)
from tinytorch.dtypes import Array
from tinytorch.jit.buffers import empty, workspace
from tinytorch.jit.cpu import host_vector_unit


class _InputPlan(NamedTuple):
    """What `conv2d_input` must know of a shape; made once."""

    walk: Walk
    in_place: bool


@lru_cache(maxsize=256)
def plan_conv2d_input(
    itemsize: int, x: Shape, w: Shape, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> _InputPlan:
    """Lay out the gradient with respect to inputs of the shape x, with weights of the shape w."""
    windows = Windows((w[2], w[3]), stride, padding, dilation, groups)
    images = Images(w[1], (x[2], x[3]))
    upper = Images(w[0] // groups, windows.output(images.size))
    lanes = host_vector_unit().register_bytes // itemsize
    if stride == (1, 1):
        rows, columns = (backward_taps(*axis, 0) for axis in windows.axes)
        vectors = correlation(itemsize, upper, images.size, stride, rows, columns)
        if is_product(lanes, images.size, windows):
            return _InputPlan(vectors, True)
        together = None
        if groups == 1 and dilation == (1, 1):
            border = (w[2] - 1 - padding[0], w[3] - 1 - padding[1])
            together = batch(itemsize, x[0], upper, images, windows._replace(padding=border))
        as_rows = positions_cost(itemsize, upper, images, windows)
        as_vectors = vectors_cost(vectors, x[2] * x[3], windows)
        walk = cheapest(as_rows, as_vectors, vectors, together)
        if walk is not None:
            return _InputPlan(walk, False)
    return _InputPlan(backward_positions(itemsize, upper, images.size, windows), False)


def conv2d_input(
    g: Array,
    w: Array,
    *,
    input_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """The gradient of `conv2d` with respect to its input.

    Args:
        g: (N, O, OH, OW), the gradient with respect to the output.
        w: (O, C / groups, kh, kw).
        input_size: (H, W).
        stride, padding, dilation, groups: as for `conv2d`.

    Returns:
        (N, C, H, W).
    """
    _, own, height, width = w.shape
    dx = empty((g.shape[0], own * groups, *input_size), g.dtype)
    if g.size == 0 or dx.size == 0:
        dx.fill(0)
        return dx
    plan = plan_conv2d_input(g.itemsize, dx.shape, w.shape, stride, padding, dilation, groups)
    # (group, output channel, channel, tap): the sums run over output channels and taps
    by_group = w.reshape(groups, -1, own, height * width)
    of_dtype = loops_for(plan.walk.kernels, g.itemsize)
    if isinstance(plan.walk, Correlation):
        weights = np.ascontiguousarray(by_group.transpose(0, 2, 1, 3)).reshape(groups * own, -1)
    elif isinstance(plan.walk, Positions):
        weights = packed_weights(plan.walk, by_group)
    else:
        weights = workspace((own, by_group[0, :, 0].size), w.dtype)
        of_dtype.arrange(by_group[0].transpose(1, 0, 2)[:, :, ::-1], weights)
    in_place = plan.in_place and g.flags.c_contiguous
    sum_over_taps(plan.walk, g, weights, np.empty(0, g.dtype), dx, groups, in_place)
    return dx
