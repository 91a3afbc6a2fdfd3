"""How to draw inputs and parameters for ops that move a window: convolution and pooling."""

from __future__ import annotations

from typing import Any

from tinytorch.testing.source import Sample, Source, samples


def _convolution(s: Source) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Parameters, and shapes of input, weight, bias and output."""
    groups = s.pick((1, 1, 2, 3))
    channels, filters = s.integer(1, 2) * groups, s.integer(1, 2) * groups
    if not s.smooth and s.random.random() < 0.1:
        channels, filters = 9 * groups, 17 * groups
    kernel, stride, dilation, padding = s.pair(1, 3), s.pair(1, 2), s.pair(1, 2), s.pair(0, 2)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    size = [
        max(1, r - 2 * p) + s.integer(0, 2 if s.smooth else 9)
        for r, p in zip(reach, padding, strict=True)
    ]
    out = [
        (e + 2 * p - r) // st + 1 for e, p, r, st in zip(size, padding, reach, stride, strict=True)
    ]
    n = s.integer(1, 2) if s.smooth else s.pick((0, 1, 2, 3))
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shapes = {
        "x": (n, channels, *size),
        "w": (filters, channels // groups, *kernel),
        "b": (filters,),
        "g": (n, filters, *out),
    }
    return params, shapes


# An infinite weight, or an infinite element that a zero of the padding meets, gives NaN or not
# depending on whether a kernel multiplies by the padding: values are finite.


@samples("conv2d")
def _conv2d(s: Source) -> Sample:
    params, shapes = _convolution(s)
    inputs = [s.array(shapes[name], finite=True) for name in "xwb"]
    return Sample(tuple(inputs[: s.integer(2, 3)]), params)


@samples("conv2d_input")
def _conv2d_input(s: Source) -> Sample:
    params, shapes = _convolution(s)
    inputs = tuple(s.array(shapes[name], finite=True) for name in "gw")
    return Sample(inputs, {**params, "input_size": shapes["x"][2:]})


@samples("conv2d_weight")
def _conv2d_weight(s: Source) -> Sample:
    params, shapes = _convolution(s)
    inputs = tuple(s.array(shapes[name], finite=True) for name in "xg")
    return Sample(inputs, {**params, "kernel_size": shapes["w"][2:]})


# -- pooling ---------------------------------------------------------------------------------------


def _pooling(s: Source, dilated: bool) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    """Parameters, shape of the input, shape of the result."""
    kernel, stride = s.pair(1, 3), s.pair(1, 3)
    padding = tuple(s.integer(0, k // 2) for k in kernel)
    dilation = s.pair(1, 2) if dilated else (1, 1)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    # as large as the window, so that none lies wholly in the padding
    size = [r + s.integer(0, 2 if s.smooth else 6) for r in reach]
    out = [
        (e + 2 * p - r) // st + 1 for e, p, r, st in zip(size, padding, reach, stride, strict=True)
    ]
    front = s.pick([(1, 2), (2, 1)]) if s.smooth else s.pick([(0, 2), (1, 1), (2, 3), (2, 0)])
    params = {"kernel_size": kernel, "stride": stride, "padding": padding}
    if dilated:
        params["dilation"] = dilation
    return params, (*front, *size), (*front, *out)


@samples("max_pool2d")
def _max_pool2d(s: Source) -> Sample:
    params, x, _ = _pooling(s, dilated=True)
    return Sample((s.array(x),), params)


@samples("max_pool2d_backward")
def _max_pool2d_backward(s: Source) -> Sample:
    params, x, out = _pooling(s, dilated=True)
    return Sample((s.array(out), s.array(x)), params)


@samples("max_pool2d_select")
def _max_pool2d_select(s: Source) -> Sample:
    params, x, _ = _pooling(s, dilated=True)
    return Sample((s.array(x), s.array(x)), params)


@samples("avg_pool2d")
def _avg_pool2d(s: Source) -> Sample:
    params, x, _ = _pooling(s, dilated=False)
    return Sample((s.array(x),), params)


@samples("avg_pool2d_backward")
def _avg_pool2d_backward(s: Source) -> Sample:
    params, x, out = _pooling(s, dilated=False)
    return Sample((s.array(out),), {**params, "input_size": x[2:]})
