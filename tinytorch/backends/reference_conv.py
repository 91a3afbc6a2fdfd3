"""Convolution and pooling in NumPy. Pairs are (height, width)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.shapes_conv import window_positions

Pair = tuple[int, int]


def pad2d(x: Array, padding: Pair, value: float = 0) -> Array:
    """`x` (n, c, h, w) with a border of `value`."""
    (ph, pw) = padding
    if not ph and not pw:
        return x
    return np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=value)


def windows2d(x: Array, kernel: Pair, stride: Pair, dilation: Pair) -> Array:
    """Every window of `x`, as a view: overlapping windows share their elements in memory.

    windows2d(x, ...)[n, c, i, j, k, l] = x[n, c, i * stride + k * dilation, j * ... + l * ...]

    Args:
        x: (n, c, h, w), with its border already there.
        kernel: size of a window.
        stride: from a window to the next.
        dilation: from an element of a window to the next.

    Returns:
        (n, c, oh, ow, kh, kw). It can be written to if `x` can.
    """
    n, c, h, w = x.shape
    oh = window_positions(h, kernel[0], stride[0], 0, dilation[0])
    ow = window_positions(w, kernel[1], stride[1], 0, dilation[1])
    sn, sc, sh, sw = x.strides
    return np.lib.stride_tricks.as_strided(
        x,
        (n, c, oh, ow, *kernel),
        (sn, sc, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1]),
    )


def fold2d(windows: Array, size: Pair, stride: Pair, dilation: Pair) -> Array:
    """The adjoint of `windows2d`: every element of every window is added to where it came from.

    Args:
        windows: (..., oh, ow, kh, kw)
        size: (h, w) of the images.
        stride, dilation: as for `windows2d`.

    Returns:
        (..., h, w); an element that no window saw is 0.
    """
    oh, ow, kh, kw = windows.shape[-4:]
    out = np.zeros((*windows.shape[:-4], *size), windows.dtype)
    for i in range(kh):
        for j in range(kw):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + (oh - 1) * stride[0] + 1, stride[0])
            cols = slice(left, left + (ow - 1) * stride[1] + 1, stride[1])
            out[..., rows, cols] += windows[..., i, j]
    return out


def _columns(
    x: Array, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Array:
    """im2col: each window of `x` as a row of numbers.

    Args:
        x: (n, c, h, w); it is padded first.
        groups: into how many parts the channels are divided; each part has rows of its own.

    Returns:
        (groups, n * oh * ow, c / groups * kh * kw): rows by image, then by position; in a row the
        channels one after the other, each with the rows of its window. All windows, as (n, c, oh,
        ow, kh, kw), are `windows2d(pad2d(x, padding), kernel, stride, dilation)`.
    """
    windows = windows2d(pad2d(x, padding), kernel, stride, dilation)
    n, c, oh, ow, kh, kw = windows.shape
    split = windows.reshape(n, groups, c // groups, oh, ow, kh, kw)
    rows = split.transpose(1, 0, 3, 4, 2, 5, 6)
    return rows.reshape(groups, n * oh * ow, c // groups * kh * kw)


def _positions(g: Array, groups: int) -> Array:
    """A gradient (n, o, oh, ow) as (groups, n * oh * ow, o / groups): rows as in `_columns`."""
    n, o, oh, ow = g.shape
    split = g.reshape(n, groups, o // groups, oh, ow)
    return split.transpose(1, 0, 3, 4, 2).reshape(groups, n * oh * ow, o // groups)


@np.errstate(all="ignore")
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
    """Cross-correlation as im2col and a matrix product: of each group, rows @ weights.T.

    Args:
        x: (n, c, h, w).
        w: (o, c / groups, kh, kw); the first o / groups filters see the first group of channels.
        b: (o,), added to every position; None: no bias.

    Returns:
        A new array (n, o, oh, ow) in C order.

    Source: K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural networks for
    document processing", 2006.
    """
    n, o = x.shape[0], w.shape[0]
    oh, ow = (
        window_positions(x.shape[i + 2], w.shape[i + 2], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    columns = _columns(x, w.shape[2:], stride, padding, dilation, groups)
    out = columns @ w.reshape(groups, o // groups, columns.shape[2]).transpose(0, 2, 1)
    out = out.reshape(groups, n, oh, ow, o // groups).transpose(1, 0, 4, 2, 3)
    out = np.ascontiguousarray(out.reshape(n, o, oh, ow))
    if b is not None:
        out += b[:, None, None]
    return out


@np.errstate(all="ignore")
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
    """Gradient of `conv2d` for its input: every output element spreads over its window.

    For each group the product `_positions(g) @ weights` (o / groups, c / groups * kh * kw) has the
    rows of all windows; each number goes back to where im2col took it from, and there they add up.

    Args:
        g: (n, o, oh, ow).
        w: (o, c / groups, kh, kw).
        input_size: (h, w) of the input, without padding.

    Returns:
        (n, c, h, w) in C order.
    """
    n, o, oh, ow = g.shape
    _, cg, kh, kw = w.shape
    columns = _positions(g, groups) @ w.reshape(groups, o // groups, cg * kh * kw)
    spread = columns.reshape(groups, n, oh, ow, cg, kh, kw).transpose(1, 0, 4, 2, 3, 5, 6)
    h, wd = (s + 2 * p for s, p in zip(input_size, padding, strict=True))
    out = fold2d(spread, (h, wd), stride, dilation)
    return _unpad(out.reshape(n, groups * cg, h, wd), padding)


def _unpad(x: Array, padding: Pair) -> Array:
    ph, pw = padding
    return np.ascontiguousarray(x[:, :, ph : x.shape[2] - ph, pw : x.shape[3] - pw])


@np.errstate(all="ignore")
def conv2d_weight(
    x: Array,
    g: Array,
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """Gradient of `conv2d` for its weight: inputs times gradients, summed over all positions.

    Args:
        x: (n, c, h, w).
        g: (n, o, oh, ow).

    Returns:
        (o, c / groups, kh, kw).
    """
    o, cg = g.shape[1], x.shape[1] // groups
    columns = _columns(x, kernel_size, stride, padding, dilation, groups)
    out = _positions(g, groups).transpose(0, 2, 1) @ columns
    return out.reshape(o, cg, *kernel_size)


# -- the two gradients of conv2d, by any conv2d ----------------------------------------------------


def conv2d_input_by(
    convolve: Callable[..., Array],
    g: Array,
    w: Array,
    *,
    input_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """`conv2d_input` as a convolution: of the gradient, spaced out by the stride, with the weight
    flipped and its channels exchanged.

    Source: Dumoulin and Visin 2016, section 4 ("Transposed convolution arithmetic").
    """
    n, o = g.shape[:2]
    _, cg, kh, kw = w.shape
    reach = (dilation[0] * (kh - 1), dilation[1] * (kw - 1))
    size = tuple(s + 2 * p + r for s, p, r in zip(input_size, padding, reach, strict=True))
    spaced = np.zeros((n, o, *size), g.dtype)
    spaced[
        :,
        :,
        reach[0] : reach[0] + (g.shape[2] - 1) * stride[0] + 1 : stride[0],
        reach[1] : reach[1] + (g.shape[3] - 1) * stride[1] + 1 : stride[1],
    ] = g
    flipped = w[:, :, ::-1, ::-1].reshape(groups, o // groups, cg, kh, kw)
    flipped = flipped.transpose(0, 2, 1, 3, 4).reshape(groups * cg, o // groups, kh, kw)
    full = convolve(
        spaced,
        np.ascontiguousarray(flipped),
        stride=(1, 1),
        padding=(0, 0),
        dilation=dilation,
        groups=groups,
    )
    return _unpad(full, padding)


def conv2d_weight_by(
    convolve: Callable[..., Array],
    x: Array,
    g: Array,
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """`conv2d_weight` as a convolution: of the input with the gradient as a kernel, the batch in
    the place of the channels, stride and dilation exchanged."""
    o, cg = g.shape[1], x.shape[1] // groups
    padded = pad2d(x, padding)
    swapped = g.transpose(1, 0, 2, 3)
    parts = []
    for i in range(groups):
        images = padded[:, i * cg : (i + 1) * cg].transpose(1, 0, 2, 3)
        kernels = swapped[i * (o // groups) : (i + 1) * (o // groups)]
        out = convolve(
            np.ascontiguousarray(images),
            np.ascontiguousarray(kernels),
            stride=dilation,
            padding=(0, 0),
            dilation=stride,
            groups=1,
        )
        kh, kw = kernel_size  # columns that the stride never reached may add positions: cut them
        parts.append(out[:, :, :kh, :kw].transpose(1, 0, 2, 3))
    return np.ascontiguousarray(np.concatenate(parts))


# -- pooling ---------------------------------------------------------------------------------------


def _max_positions(x: Array, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Array:
    """Flat position in (h, w) of the first maximum of every window: (n, c, oh, ow)."""
    h, w = x.shape[2:]
    windows = windows2d(pad2d(x, padding, -np.inf), kernel, stride, dilation)
    best = windows.reshape(*windows.shape[:4], kernel[0] * kernel[1]).argmax(-1)
    # where all is -inf the border would win; the first element inside wins instead
    inside = windows2d(pad2d(np.ones((1, 1, h, w), bool), padding), kernel, stride, dilation)
    inside = inside.reshape(*inside.shape[2:4], -1)
    won = np.take_along_axis(
        np.broadcast_to(inside, (*best.shape, inside.shape[-1])), best[..., None], -1
    )[..., 0]
    best = np.where(won, best, inside.argmax(-1))
    i, j = np.divmod(best, kernel[1])
    rows = np.arange(best.shape[2])[:, None] * stride[0] - padding[0] + i * dilation[0]
    cols = np.arange(best.shape[3])[None, :] * stride[1] - padding[1] + j * dilation[1]
    return np.asarray(rows * w + cols)


def max_pool2d(
    x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    windows = windows2d(pad2d(x, padding, -np.inf), kernel_size, stride, dilation)
    return windows.max((-2, -1))


@np.errstate(all="ignore")
def max_pool2d_backward(g: Array, x: Array, **params: Any) -> Array:
    """The gradient goes to the first maximum of each window."""
    n, c, h, w = x.shape
    positions = _max_positions(x, *_pool_params(params))
    out = np.zeros((n * c, h * w), g.dtype)
    planes = (n * c, g.shape[2] * g.shape[3])
    np.add.at(out, (np.arange(n * c)[:, None], positions.reshape(planes)), g.reshape(planes))
    return out.reshape(x.shape)


def max_pool2d_select(v: Array, x: Array, **params: Any) -> Array:
    """The elements of `v` where `x` has the first maximum of each window."""
    n, c, h, w = x.shape
    positions = _max_positions(x, *_pool_params(params))
    planes = (n * c, positions.shape[2] * positions.shape[3])
    flat = np.take_along_axis(v.reshape(n * c, h * w), positions.reshape(planes), 1)
    return flat.reshape(positions.shape)


def _pool_params(params: dict[str, Any]) -> tuple[Pair, Pair, Pair, Pair]:
    return params["kernel_size"], params["stride"], params["padding"], params["dilation"]


@np.errstate(all="ignore")
def avg_pool2d(x: Array, *, kernel_size: Pair, stride: Pair, padding: Pair) -> Array:
    """Means of windows; the zero border counts."""
    windows = windows2d(pad2d(x, padding), kernel_size, stride, (1, 1))
    return np.asarray(windows.mean((-2, -1)))


@np.errstate(all="ignore")
def avg_pool2d_backward(
    g: Array, *, input_size: Pair, kernel_size: Pair, stride: Pair, padding: Pair
) -> Array:
    """Spread every output element evenly over its window."""
    height, width = (s + 2 * p for s, p in zip(input_size, padding, strict=True))
    share = (g / (kernel_size[0] * kernel_size[1]))[..., None, None]
    windows = np.broadcast_to(share, (*g.shape, *kernel_size))
    return _unpad(fold2d(windows, (height, width), stride, (1, 1)), padding)
