"""Shape rules of convolution and pooling, and the cost. Pairs are (height, width)."""

from __future__ import annotations

import math

from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError
from tinytorch.op import FlopCount, Params

Pair = tuple[int, int]


def window_positions(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many positions a window has along one dimension; at most 0 if it does not fit.

    Args:
        extent: of the image.
        kernel: elements of the window.
        stride: from a window to the next.
        padding: border on each side.
        dilation: from an element of the window to the next.

    >>> window_positions(7, 3, stride=2, padding=0, dilation=1)
    3

    Source: V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016,
    relationship 15 (with dilation).
    """
    return (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _spatial(name: str, extents: Shape, kernel: Shape, params: Params) -> Pair:
    """Height and width of the result of windows that walk over images.

    Args:
        name: of the op, for the message.
        extents: (height, width) of the images.
        kernel: (height, width) of a window.
        params: pairs "stride" and "padding", and "dilation" if the op has one (else 1).

    Raises:
        ShapeError: a window does not fit even once; the message has name, window and extents.
    """
    dilation = params.get("dilation", (1, 1))
    sizes = []
    for i in range(2):
        size = window_positions(
            extents[i], kernel[i], params["stride"][i], params["padding"][i], dilation[i]
        )
        if size < 1:
            raise ShapeError(
                f"{name}: a window of {tuple(kernel)} (dilation {tuple(dilation)}) does not fit "
                f"into {tuple(extents)} with padding {tuple(params['padding'])}"
            )
        sizes.append(size)
    return sizes[0], sizes[1]


def _positive(name: str, params: Params) -> None:
    for key in ("stride", "dilation", "kernel_size"):
        if key in params and min(params[key]) < 1:
            raise ShapeError(f"{name}: {key} must be at least 1, not {params[key]}")
    if min(params["padding"]) < 0:
        raise ShapeError(f"{name}: padding cannot be negative: {params['padding']}")


def _image(name: str, shape: Shape) -> None:
    if len(shape) != 4:
        raise ShapeError(f"{name}: the input must be (n, channels, height, width), not {shape}")


def conv2d(name: str, shapes: list[Shape], params: Params) -> Shape:
    """x (n, c, h, w), weight (o, c / groups, kh, kw), bias (o,) give (n, o, oh, ow)."""
    x, w, groups = shapes[0], shapes[1], params["groups"]
    _image(name, x)
    _positive(name, params)
    if len(w) == 4 and min(w) < 1:
        raise ShapeError(f"{name}: the weight {w} has no elements")
    if len(w) != 4 or groups < 1 or x[1] != w[1] * groups or w[0] % groups:
        raise ShapeError(
            f"{name}: input {x} and weight {w} do not fit with groups={groups}: the weight must be "
            f"(out_channels, in_channels / groups, height, width), with out_channels a multiple of "
            f"groups"
        )
    if len(shapes) == 3 and shapes[2] != (w[0],):
        raise ShapeError(f"{name}: bias {shapes[2]} must have shape {(w[0],)}")
    return (x[0], w[0], *_spatial(name, x[2:], w[2:], params))


def conv2d_input(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The gradient (n, o, oh, ow) and the weight give the input's shape."""
    g, w = shapes
    x = (g[0], w[1] * params["groups"], *params["input_size"])
    if conv2d(name, [x, w], params) != g:
        raise ShapeError(f"{name}: gradient {g} is not what input {x} and weight {w} give")
    return x


def conv2d_weight(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The input and the gradient give the weight's shape."""
    x, g = shapes
    w = (g[1], x[1] // params["groups"], *params["kernel_size"])
    if conv2d(name, [x, w], params) != g:
        raise ShapeError(f"{name}: gradient {g} is not what input {x} and weight {w} give")
    return w


def pooled(name: str, shapes: list[Shape], params: Params) -> Shape:
    """x (n, c, h, w) gives (n, c, oh, ow)."""
    x, kernel, padding = shapes[-1], params["kernel_size"], params["padding"]
    _image(name, x)
    _positive(name, params)
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise ShapeError(f"{name}: padding {padding} must be at most half the window {kernel}")
    size = _spatial(name, x[2:], kernel, params)
    if any(_misses(x[2 + d], size[d], d, params) for d in range(2)):
        raise ShapeError(f"{name}: a window of {kernel} lies wholly in the padding of input {x}")
    return (*x[:2], *size)


def _misses(extent: int, positions: int, dim: int, params: Params) -> bool:
    """Whether a window, at one of its positions along `dim`, has no element of the input."""
    step = params.get("dilation", (1, 1))[dim]
    starts = [i * params["stride"][dim] - params["padding"][dim] for i in range(positions)]
    reach = params["kernel_size"][dim] * step
    return not all(any(0 <= p < extent for p in range(s, s + reach, step)) for s in starts)


def unpooled(name: str, shapes: list[Shape], params: Params) -> Shape:
    """A gradient shaped as the pool's result, and the pool's input, give the input's shape."""
    g, x = shapes
    if pooled(name, [x], params) != g:
        raise ShapeError(f"{name}: gradient {g} is not what pooling {x} gives")
    return x


def selected(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Values shaped as the pool's input, and that input, give the pool's shape."""
    values, x = shapes
    if values != x:
        raise ShapeError(f"{name}: values {values} must have the shape of the input {x}")
    return pooled(name, [x], params)


def avg_unpooled(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The gradient and `input_size` give the input's shape."""
    g = shapes[0]
    x = (*g[:2], *params["input_size"])
    if pooled(name, [x], params) != g:
        raise ShapeError(f"{name}: gradient {g} is not what pooling {x} gives")
    return x


def flops(output: int, weight: int) -> FlopCount:
    """Two per output element and weight element that meets it; the arguments are their positions.

    -1 is the result.
    """

    def count(shapes_in: list[Shape], out: Shape, params: Params) -> int:
        everything = [*shapes_in, out]
        y, w = everything[output], everything[weight]
        return 2 * math.prod(y) * math.prod(w[1:])

    return count
