"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

SPATIAL = """
def _spatial(name, extents, kernel, params):
    dilation = params.get("dilation", (1, 1))
    sizes = []
    for i in range(2):
        size = window_positions(
            extents[i], kernel[i], params["stride"][i], params["padding"][i], dilation[i]
        )
        if size < 1:
            raise ShapeError(f"{name}: a window of {tuple(kernel)} does not fit into {extents}")
        sizes.append(size)
    return sizes[0], sizes[1]
"""

PIXELS = """
def _pixel_gradient(gradients, filters, taps, count):
    elements = list(zip(*filters, strict=True))
    spread = [0.0] * count
    for channels, window in zip(gradients, taps, strict=True):
        for i, weights in zip(window, elements, strict=True):
            spread[i] += sum(map(mul, channels, weights))
    return spread
"""

FILTERS = """
def _filter_gradient(gradients, images, taps):
    met = [
        [pixels[window[i]] for pixels in images for window in taps] for i in range(len(taps[0]))
    ]
    return [[sum(map(mul, channel, values)) for values in met] for channel in gradients]
"""

TAPS = """
def _taps(size, w_shape, stride, dilation):
    height, width = size
    _, channels, kh, kw = w_shape
    oh = window_positions(height, kh, stride[0], 0, dilation[0])
    ow = window_positions(width, kw, stride[1], 0, dilation[1])
    first = [
        (c * height + i * dilation[0]) * width + j * dilation[1]
        for c in range(channels)
        for i in range(kh)
        for j in range(kw)
    ]
    corners = [i * stride[0] * width + j * stride[1] for i in range(oh) for j in range(ow)]
    return (oh, ow), [[corner + tap for tap in first] for corner in corners]
"""

WINDOWS = """
def windows2d(x, kernel, stride, dilation):
    n, c, h, w = x.shape
    oh = window_positions(h, kernel[0], stride[0], 0, dilation[0])
    ow = window_positions(w, kernel[1], stride[1], 0, dilation[1])
    sn, sc, sh, sw = x.strides
    return np.lib.stride_tricks.as_strided(
        x,
        (n, c, oh, ow, *kernel),
        (sn, sc, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1]),
    )
"""

FOLD = """
def fold2d(windows, size, stride, dilation):
    oh, ow, kh, kw = windows.shape[-4:]
    out = np.zeros((*windows.shape[:-4], *size), windows.dtype)
    for i in range(kh):
        for j in range(kw):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + (oh - 1) * stride[0] + 1, stride[0])
            cols = slice(left, left + (ow - 1) * stride[1] + 1, stride[1])
            out[..., rows, cols] += windows[..., i, j]
    return out
"""

POOL_WINDOWS = """
def _windows(size, kernel_size, stride, padding, dilation=(1, 1)):
    height, width = size
    oh, ow = (
        window_positions(size[d], kernel_size[d], stride[d], padding[d], dilation[d])
        for d in range(2)
    )
    top, left = ([i * stride[d] - padding[d] for i in range(n)] for d, n in enumerate((oh, ow)))
    rows = [_inside(height, start, kernel_size[0], dilation[0]) for start in top]
    cols = [_inside(width, start, kernel_size[1], dilation[1]) for start in left]
    return (oh, ow), [[r * width + c for r in row for c in col] for row in rows for col in cols]
"""

ROUTED = """
def _routed(gradients, plane, windows):
    spread = [0.0] * len(plane)
    for gradient, window in zip(gradients, windows, strict=True):
        spread[_winner(plane, window)] += gradient
    return spread
"""

STANDARDIZED = """
def _standardized(x, dims, eps):
    centred = x - x.mean(dims, keepdim=True)
    scale = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    return centred * scale, scale
"""

RUNNING = """
def _update_running(x, running_mean, running_var, momentum):
    dims = tuple(i for i in range(x.ndim) if i != 1)
    count = math.prod(x.shape[i] for i in dims)
    with no_grad():
        centre = mean(x, dims, keepdim=True)
        deviation = x - centre
        var = mean(deviation * deviation, dims) * (count / (count - 1))
        running_mean.mul_(1 - momentum).add_(reshape(centre, running_mean.shape) * momentum)
        running_var.mul_(1 - momentum).add_(var * momentum)
"""

NORMALIZE = """
def _normalize_by(x, running_mean, running_var, weight, bias, eps):
    scale = rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    return x * _per_channel(scale, x) + _per_channel(shift, x)
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
    return text.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="where-a-window-fits",
        name="forgets that there is a first position",
        source="""
def window_positions(extent, kernel, stride, padding, dilation):
    return (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride
""",
        loses={
            "positions": 2,
            "sizes": 2,
            "sizes-refused": 2,
            "taps": 3,
            "loops-details": 3,
            "view-values": 2,
            "view-memory": 2,
            "view-details": 2,
            "places": 2,
            "pooling-details": 2,
        },
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="pads on one side",
        source="""
def window_positions(extent, kernel, stride, padding, dilation):
    return (extent + padding - dilation * (kernel - 1) - 1) // stride + 1
""",
        loses={"positions": 2, "sizes": 2, "sizes-refused": 2},
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="lets a dilated window reach over k d pixels",
        source="""
def window_positions(extent, kernel, stride, padding, dilation):
    return (extent + 2 * padding - dilation * kernel) // stride + 1
""",
        loses={
            "positions": 2,
            "sizes": 2,
            "sizes-refused": 2,
            "loops-details": 3,
            "view-values": 2,
            "view-details": 2,
            "pooling-details": 2,
        },
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="rounds towards 0",
        source="""
def window_positions(extent, kernel, stride, padding, dilation):
    return int((extent + 2 * padding - dilation * (kernel - 1) - 1) / stride) + 1
""",
        loses={"sizes-refused": 2},
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="exchanges height and width",
        source=changed(SPATIAL, "return sizes[0], sizes[1]", "return sizes[1], sizes[0]"),
        loses={"sizes": 2, "sizes-refused": 2},
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="asks a pooling for its dilation",
        source=changed(SPATIAL, 'params.get("dilation", (1, 1))', 'params["dilation"]'),
        loses={"sizes": 2},
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="refuses only what is negative",
        source=changed(SPATIAL, "if size < 1:", "if size < 0:"),
        loses={"sizes-refused": 2},
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="does not name the image",
        source=changed(SPATIAL, " does not fit into {extents}", " does not fit"),
        loses={"sizes-refused": 2},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="walks over columns first",
        source=changed(
            TAPS, "for i in range(oh) for j in range(ow)]", "for j in range(ow) for i in range(oh)]"
        ),
        loses={"taps": 3, "loops-details": 3},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="puts the channels last in a window",
        source=changed(
            TAPS,
            """        for c in range(channels)
        for i in range(kh)
        for j in range(kw)
""",
            """        for i in range(kh)
        for j in range(kw)
        for c in range(channels)
""",
        ),
        loses={"taps": 3},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="forgets the stride of the rows",
        source=changed(TAPS, "i * stride[0] * width", "i * width"),
        loses={"loops-details": 3},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="forgets the dilation",
        source=changed(
            TAPS,
            "(c * height + i * dilation[0]) * width + j * dilation[1]",
            "(c * height + i) * width + j",
        ),
        loses={"loops-details": 3},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="takes the width for the height",
        source=changed(TAPS, "(c * height + i", "(c * width + i"),
        loses={"taps": 3},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="forgets the bias",
        source="""
def _filtered(pixels, filters, biases, taps):
    windows = [[pixels[i] for i in window] for window in taps]
    return [[sum(map(mul, window, weights)) for window in windows] for weights in filters]
""",
        loses={"filtered": 2, "loops-details": 3},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="turns the filter around",
        source="""
def _filtered(pixels, filters, biases, taps):
    windows = [[pixels[i] for i in window] for window in taps]
    return [
        [sum(map(mul, window, weights[::-1]), bias) for window in windows]
        for weights, bias in zip(filters, biases)
    ]
""",
        loses={"filtered": 2},
    ),
    Mistake(
        exercise="conv-by-loops",
        name="gives the positions first",
        source="""
def _filtered(pixels, filters, biases, taps):
    return [
        [sum(pixels[i] * w for i, w in zip(window, weights)) + bias
         for weights, bias in zip(filters, biases)]
        for window in taps
    ]
""",
        loses={"filtered": 2, "loops-details": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="replaces in place of adding",
        source=changed(PIXELS, "spread[i] +=", "spread[i] ="),
        loses={"pixel-gradient": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="numbers the pixels by their place in the window",
        source=changed(PIXELS, "zip(window, elements, strict=True)", "enumerate(elements)"),
        loses={"pixel-gradient": 3, "loop-gradients-details": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="takes the first filter for all",
        source=changed(
            PIXELS, "list(zip(*filters, strict=True))", "[filters[0]] * len(filters[0])"
        ),
        loses={"pixel-gradient": 3, "loop-gradients-details": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="turns the filter around, as for a true convolution",
        source=changed(
            PIXELS, "list(zip(*filters, strict=True))", "list(zip(*filters, strict=True))[::-1]"
        ),
        loses={"pixel-gradient": 3, "loop-gradients-details": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="walks over the images inside a position",
        source=changed(
            FILTERS,
            "for pixels in images for window in taps]",
            "for window in taps for pixels in images]",
        ),
        loses={"filter-gradient": 3, "loop-gradients-details": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="divides by the number of images",
        source=changed(
            FILTERS,
            "sum(map(mul, channel, values))",
            "sum(map(mul, channel, values)) / len(images)",
        ),
        loses={"filter-gradient": 3, "loop-gradients-details": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="sees the first image only",
        source=changed(
            FILTERS,
            "for pixels in images for window in taps]",
            "for pixels in images[:1] for window in taps]",
        ),
        loses={"filter-gradient": 3, "loop-gradients-details": 3},
    ),
    Mistake(
        exercise="gradients-by-loops",
        name="gives the window elements first",
        source="""
def _filter_gradient(gradients, images, taps):
    out = []
    for i in range(len(taps[0])):
        values = [pixels[window[i]] for pixels in images for window in taps]
        out.append([sum(map(mul, channel, values)) for channel in gradients])
    return out
""",
        loses={"filter-gradient": 3, "loop-gradients-details": 3},
    ),
    Mistake(
        exercise="windows-as-a-view",
        name="copies the windows",
        source="""
def windows2d(x, kernel, stride, dilation):
    n, c, h, w = x.shape
    oh = window_positions(h, kernel[0], stride[0], 0, dilation[0])
    ow = window_positions(w, kernel[1], stride[1], 0, dilation[1])
    out = np.zeros((n, c, oh, ow, *kernel), x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            out[..., i, j] = x[
                :,
                :,
                top : top + oh * stride[0] : stride[0],
                left : left + ow * stride[1] : stride[1],
            ]
    return out
""",
        loses={"view-memory": 2, "view-details": 2},
    ),
    Mistake(
        exercise="windows-as-a-view",
        name="exchanges stride and dilation",
        source=changed(
            WINDOWS,
            "sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1]",
            "sh * dilation[0], sw * dilation[1], sh * stride[0], sw * stride[1]",
        ),
        loses={"view-values": 2, "view-details": 2},
    ),
    Mistake(
        exercise="windows-as-a-view",
        name="forgets the dilation",
        source=changed(WINDOWS, "sh * dilation[0], sw * dilation[1]", "sh, sw"),
        loses={"view-values": 2, "view-details": 2},
    ),
    Mistake(
        exercise="windows-as-a-view",
        name="computes the distances from the shape",
        source=changed(
            WINDOWS,
            "sn, sc, sh, sw = x.strides",
            "sn, sc, sh, sw = (size * x.itemsize for size in (c * h * w, h * w, w, 1))",
        ),
        loses={"view-memory": 2},
    ),
    Mistake(
        exercise="windows-as-a-view",
        name="forbids to write",
        source=changed(
            WINDOWS, "dilation[1]),\n    )", "dilation[1]),\n        writeable=False,\n    )"
        ),
        loses={"view-details": 2},
    ),
    Mistake(
        exercise="fold",
        name="replaces in place of adding",
        source=changed(FOLD, "cols] += windows", "cols] = windows"),
        loses={"fold-overlaps": 2, "fold-details": 2},
    ),
    Mistake(
        exercise="fold",
        name="forgets the stride",
        source=changed(
            changed(FOLD, "(oh - 1) * stride[0] + 1, stride[0])", "oh)"),
            "(ow - 1) * stride[1] + 1, stride[1])",
            "ow)",
        ),
        loses={"fold-overlaps": 2, "fold-steps": 1, "fold-details": 2},
    ),
    Mistake(
        exercise="fold",
        name="forgets the dilation",
        source=changed(FOLD, "i * dilation[0], j * dilation[1]", "i, j"),
        loses={"fold-steps": 1},
    ),
    Mistake(
        exercise="fold",
        name="exchanges the strides of height and width",
        source=changed(
            changed(
                FOLD, "(oh - 1) * stride[0] + 1, stride[0])", "(oh - 1) * stride[1] + 1, stride[1])"
            ),
            "left + (ow - 1) * stride[1] + 1, stride[1])",
            "left + (ow - 1) * stride[0] + 1, stride[0])",
        ),
        loses={"fold-steps": 1, "fold-details": 2},
    ),
    Mistake(
        exercise="fold",
        name="always gives float64",
        source=changed(FOLD, "*size), windows.dtype)", "*size))"),
        loses={"fold-details": 2},
    ),
    Mistake(
        exercise="fold",
        name="knows images with n and c only",
        source=changed(
            changed(FOLD, "(*windows.shape[:-4], *size)", "(*windows.shape[:2], *size)"),
            "oh, ow, kh, kw = windows.shape[-4:]",
            "n, c, oh, ow, kh, kw = windows.shape",
        ),
        loses={"fold-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="keeps what is on the border",
        source="""
def _inside(extent, start, kernel, dilation):
    return list(range(start, start + kernel * dilation, dilation))
""",
        loses={"places": 2, "pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="moves a window that reaches over the edge back inside",
        source="""
def _inside(extent, start, kernel, dilation):
    return [min(max(p, 0), extent - 1) for p in range(start, start + kernel * dilation, dilation)]
""",
        loses={"places": 2, "pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="forgets the border when it places the windows",
        source=changed(POOL_WINDOWS, "i * stride[d] - padding[d] for", "i * stride[d] for"),
        loses={"places": 2, "pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="walks over columns first",
        source=changed(
            POOL_WINDOWS, "for row in rows for col in cols]", "for col in cols for row in rows]"
        ),
        loses={"places": 2, "pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="gives the place inside the window",
        source="""
def _winner(plane, window):
    return first_best([plane[i] for i in window], gt)
""",
        loses={"winners": 2, "pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="takes the last of those that are equal, and no NaN",
        source="""
def _winner(plane, window):
    best = window[0]
    for i in window:
        if plane[i] >= plane[best]:
            best = i
    return best
""",
        loses={"pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="lets max find the winner, which passes NaN over",
        source="""
def _winner(plane, window):
    return max(window, key=lambda i: plane[i])
""",
        loses={"pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="gives the largest of the plane itself",
        source="""
def _selected(values, plane, windows):
    return [max(plane[i] for i in window) for window in windows]
""",
        loses={"winners": 2, "pooling-details": 2},
    ),
    Mistake(
        exercise="pooling",
        name="replaces the gradient of who wins twice",
        source=changed(ROUTED, "+= gradient", "= gradient"),
        loses={"winners": 2},
    ),
    Mistake(
        exercise="pooling",
        name="spreads the gradient over the whole window",
        source=changed(
            ROUTED,
            "        spread[_winner(plane, window)] += gradient",
            "        for i in window:\n            spread[i] += gradient / len(window)",
        ),
        loses={"winners": 2, "pooling-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="adds eps to the root",
        source=changed(
            STANDARDIZED,
            "((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()",
            "1 / ((centred * centred).mean(dims, keepdim=True).sqrt() + eps)",
        ),
        loses={"standardized": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="divides by the variance",
        source=changed(STANDARDIZED, ".rsqrt()", " ** -1"),
        loses={"standardized": 2, "batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="takes the mean out of the history",
        source=changed(
            STANDARDIZED,
            "x - x.mean(dims, keepdim=True)",
            "x - x.mean(dims, keepdim=True).detach()",
        ),
        loses={"batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="keeps the variance with its bias",
        source=changed(RUNNING, " * (count / (count - 1))", ""),
        loses={"running": 2, "batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="forgets what it saw",
        source=changed(
            RUNNING,
            "running_mean.mul_(1 - momentum).add_(",
            "running_mean = running_mean * (1 - momentum) + (",
        ),
        loses={"running": 2, "batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="counts the momentum the other way",
        source=RUNNING.replace("1 - momentum", "MOMENTUM")
        .replace("* momentum", "* (1 - momentum)")
        .replace("MOMENTUM", "momentum"),
        loses={"running": 2, "batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="records the running statistics",
        source=changed(RUNNING, "    with no_grad():\n", "    if True:\n"),
        loses={"batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="forgets the running mean",
        source=changed(NORMALIZE, "-running_mean * scale", "running_mean * 0.0"),
        loses={"evaluation": 1, "batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="scales the bias too",
        source=changed(NORMALIZE, "shift + bias", "shift + bias * scale"),
        loses={"evaluation": 1, "batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="lets the vectors meet the last dimension",
        source=changed(
            NORMALIZE, "x * _per_channel(scale, x) + _per_channel(shift, x)", "x * scale + shift"
        ),
        loses={"batch-norm-details": 2},
    ),
    Mistake(
        exercise="where-a-window-fits",
        name="compares the window with the image without its border",
        source="""
def _spatial(name, extents, kernel, params):
    dilation = params.get("dilation", (1, 1))
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    if reach[0] > extents[0] or reach[1] > extents[1]:
        raise ShapeError(f"{name}: a window of {kernel} does not fit into {extents}")
    stride, padding = params["stride"], params["padding"]
    oh, ow = (
        window_positions(extents[i], kernel[i], stride[i], padding[i], dilation[i])
        for i in range(2)
    )
    return oh, ow
""",
        loses={"sizes-refused": 2},
    ),
    Mistake(
        exercise="windows-as-a-view",
        name="brings the image into order first, which may copy it",
        source="""
def windows2d(x, kernel, stride, dilation):
    x = np.ascontiguousarray(x)
    n, c, h, w = x.shape
    oh = window_positions(h, kernel[0], stride[0], 0, dilation[0])
    ow = window_positions(w, kernel[1], stride[1], 0, dilation[1])
    sn, sc, sh, sw = x.strides
    steps = (sn, sc, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1])
    return np.lib.stride_tricks.as_strided(x, (n, c, oh, ow, *kernel), steps)
""",
        loses={"view-memory": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="takes the variance for the mean of squares less the square of the mean",
        source="""
def _standardized(x, dims, eps):
    centre = x.mean(dims, keepdim=True)
    var = (x * x).mean(dims, keepdim=True) - centre * centre
    scale = (var + eps).rsqrt()
    return (x - centre) * scale, scale
""",
        loses={"standardized": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="takes the variance out of the history",
        source="""
def _standardized(x, dims, eps):
    centred = x - x.mean(dims, keepdim=True)
    scale = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt().detach()
    return centred * scale, scale
""",
        loses={"batch-norm-details": 2},
    ),
    Mistake(
        exercise="batch-norm",
        name="evaluates under no_grad, weight and bias included",
        source="""
def _normalize_by(x, running_mean, running_var, weight, bias, eps):
    with no_grad():
        scale = rsqrt(running_var + eps)
        scale = scale if weight is None else scale * weight
        shift = -running_mean * scale
        shift = shift if bias is None else shift + bias
    return x * _per_channel(scale, x) + _per_channel(shift, x)
""",
        loses={"batch-norm-details": 2},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="where-a-window-fits",
        name="counts the starts, and zips the pairs",
        source="""
def window_positions(extent, kernel, stride, padding, dilation):
    reach = (kernel - 1) * dilation + 1
    room = extent + padding + padding - reach
    return room // stride + 1

def _spatial(name, extents, kernel, params):
    pairs = zip(
        extents, kernel, params["stride"], params["padding"], params.get("dilation", (1, 1))
    )
    height, width = (window_positions(*each) for each in pairs)
    if min(height, width) < 1:
        raise ShapeError(
            f"the windows {tuple(kernel)} of {name} are too large for images of {tuple(extents)}"
        )
    return height, width
""",
    ),
    Alternative(
        exercise="conv-by-loops",
        name="walks over positions and then over elements, and adds up in a loop",
        source="""
def _taps(size, w_shape, stride, dilation):
    _, channels, kh, kw = w_shape
    oh, ow = (
        window_positions(size[d], w_shape[2 + d], stride[d], 0, dilation[d]) for d in (0, 1)
    )
    taps = []
    for i in range(oh):
        for j in range(ow):
            window = []
            for c in range(channels):
                for k in range(kh):
                    row = c * size[0] + i * stride[0] + k * dilation[0]
                    start = row * size[1] + j * stride[1]
                    window.extend(range(start, start + kw * dilation[1], dilation[1]))
            taps.append(window)
    return (oh, ow), taps

def _filtered(pixels, filters, biases, taps):
    out = []
    for weights, bias in zip(filters, biases):
        row = []
        for window in taps:
            total = bias
            for place, weight in zip(window, weights):
                total += pixels[place] * weight
            row.append(total)
        out.append(row)
    return out
""",
    ),
    Alternative(
        exercise="gradients-by-loops",
        name="adds one product after the other",
        source="""
def _pixel_gradient(gradients, filters, taps, count):
    got = dict.fromkeys(range(count), 0.0)
    for position, window in enumerate(taps):
        for channel, weights in enumerate(filters):
            gradient = gradients[position][channel]
            for place, weight in zip(window, weights):
                got[place] += gradient * weight
    return [got[i] for i in range(count)]

def _filter_gradient(gradients, images, taps):
    out = []
    for channel in gradients:
        totals = [0.0] * len(taps[0])
        arrived = iter(channel)
        for pixels in images:
            for window in taps:
                gradient = next(arrived)
                for i, place in enumerate(window):
                    totals[i] += gradient * pixels[place]
        out.append(totals)
    return out
""",
    ),
    Alternative(
        exercise="windows-as-a-view",
        name="slices a sliding window view",
        source="""
def windows2d(x, kernel, stride, dilation):
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    all_of = np.lib.stride_tricks.sliding_window_view(
        x, reach, axis=(2, 3), writeable=x.flags.writeable
    )
    return all_of[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
""",
    ),
    Alternative(
        exercise="fold",
        name="adds window after window",
        source="""
def fold2d(windows, size, stride, dilation):
    *front, oh, ow, kh, kw = windows.shape
    out = np.zeros((*front, *size), windows.dtype)
    for i in range(oh):
        for j in range(ow):
            rows = [i * stride[0] + k * dilation[0] for k in range(kh)]
            cols = [j * stride[1] + k * dilation[1] for k in range(kw)]
            out[(..., *np.ix_(rows, cols))] += windows[..., i, j, :, :]
    return out
""",
    ),
    Alternative(
        exercise="pooling",
        name="loops and compares itself",
        source="""
def _inside(extent, start, kernel, dilation):
    places = []
    for i in range(kernel):
        place = start + i * dilation
        if place >= 0 and place < extent:
            places.append(place)
    return places

def _windows(size, kernel_size, stride, padding, dilation=(1, 1)):
    counts, starts = [], []
    for d in (0, 1):
        count = window_positions(size[d], kernel_size[d], stride[d], padding[d], dilation[d])
        counts.append(count)
        starts.append(range(-padding[d], count * stride[d] - padding[d], stride[d]))
    windows = []
    for top in starts[0]:
        for left in starts[1]:
            rows = _inside(size[0], top, kernel_size[0], dilation[0])
            cols = _inside(size[1], left, kernel_size[1], dilation[1])
            windows.append([size[1] * r + c for r in rows for c in cols])
    return tuple(counts), windows

def _winner(plane, window):
    best, *others = window
    for place in others:
        if plane[best] != plane[best]:
            return best
        if plane[place] != plane[place] or plane[place] > plane[best]:
            best = place
    return best

def _selected(values, plane, windows):
    winners = (_winner(plane, window) for window in windows)
    return [values[winner] for winner in winners]

def _routed(gradients, plane, windows):
    got = dict.fromkeys(range(len(plane)), 0.0)
    for number, window in enumerate(windows):
        got[_winner(plane, window)] += gradients[number]
    return list(got.values())
""",
    ),
    Alternative(
        exercise="batch-norm",
        name="subtracts and divides, and moves by a difference",
        source="""
def _standardized(x, dims, eps):
    deviation = x - mean(x, dims, keepdim=True)
    scale = 1.0 / (mean(deviation * deviation, dims, keepdim=True) + eps).sqrt()
    return scale * deviation, scale

def _update_running(x, running_mean, running_var, momentum):
    values = x.detach().transpose(0, 1).reshape(x.shape[1], -1)
    centre = mean(values, 1)
    squares = (values - centre.reshape(-1, 1)) * (values - centre.reshape(-1, 1))
    var = squares.sum(1) / (values.shape[1] - 1)
    running_mean.add_((centre - running_mean) * momentum)
    running_var.add_((var - running_var) * momentum)

def _normalize_by(x, running_mean, running_var, weight, bias, eps):
    deviation = x - _per_channel(running_mean, x)
    out = deviation * _per_channel(rsqrt(running_var + eps), x)
    if weight is not None:
        out = out * _per_channel(weight, x)
    return out if bias is None else out + _per_channel(bias, x)
""",
    ),
]

EQUIVALENT = [
    Equivalent(
        "gradients-by-loops",
        "_filter_gradient: taps[0] -> taps[-1]",
        "all windows have the same number of elements",
    ),
    Equivalent(
        "batch-norm", "_update_running: x - centre -> centre - x", "the deviation is only squared"
    ),
]
