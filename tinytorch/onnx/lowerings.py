"""How each of our ops is said in ONNX: one entry for each op of the table.

A lowering gets the writer, the node, the names of its operands (already of the dtypes that the op's
rule asks for) and the op's parameters; it returns the name of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.dtypes import DType, Shape, TensorMeta, bool_, int64
from tinytorch.graph.ir import Node

if TYPE_CHECKING:
    from tinytorch.onnx.exporter import OnnxWriter

Lowering = Callable[..., str]
Pair = tuple[int, int]

# ops that ONNX has under another name, without options
SAME = {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "sin": "Sin", "cos": "Cos", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "relu": "Relu",
    "logical_not": "Not", "sub": "Sub", "div": "Div", "pow": "Pow", "eq": "Equal",
    "logical_and": "And", "logical_or": "Or", "matmul": "MatMul", "detach": "Identity",
    "copy": "Identity",
}  # fmt: skip
# ops that ONNX has for numbers, and that are other ones for bool
WITH_BOOL = {
    "add": ("Add", "Or"), "mul": ("Mul", "And"), "maximum": ("Max", "Or"), "minimum": ("Min", "And")
}  # fmt: skip


def _same(op_type: str) -> Lowering:
    return lambda writer, node, *operands: writer.node(op_type, operands)


def _with_bool(numeric: str, logical: str) -> Lowering:
    return lambda writer, node, *operands: writer.node(
        logical if _meta(node).dtype is bool_ else numeric, operands
    )


LOWERINGS: dict[str, Lowering] = {
    **{name: _same(op_type) for name, op_type in SAME.items()},
    **{name: _with_bool(*op_types) for name, op_types in WITH_BOOL.items()},
}


def _lowering(function: Lowering) -> Lowering:
    LOWERINGS[function.__name__.rstrip("_")] = function
    return function


def _meta(node: Any) -> TensorMeta:
    return node.meta["tensor_meta"]  # type: ignore[no-any-return]


def _numbers(w: OnnxWriter, name: str, operand: Any) -> str:
    """The operand; a bool one as integers, where ONNX has the operator for numbers only."""
    is_bool = isinstance(operand, Node) and _meta(operand).dtype is bool_
    return w.cast(name, int64) if is_bool else name


def _shape(node: Any) -> Shape:
    """Of a node; () of a number."""
    return _meta(node).shape if isinstance(node, Node) else ()


def _zeros(w: OnnxWriter, shape: Shape, dtype: DType) -> str:
    return w.constant(np.zeros(shape), dtype)


# -- elementwise -----------------------------------------------------------------------------------


@_lowering
def ne(w: OnnxWriter, node: Node, a: str, b: str) -> str:
    return w.node("Not", [w.node("Equal", [a, b])])


def _ordering(op_type: str) -> Lowering:
    def lowering(w: OnnxWriter, node: Node, a: str, b: str) -> str:
        (tensor, *_) = node.all_input_nodes  # a number beside it has its dtype
        return w.node(op_type, [_numbers(w, a, tensor), _numbers(w, b, tensor)])

    return lowering


LOWERINGS["lt"] = _ordering("Less")
LOWERINGS["le"] = _ordering("LessOrEqual")


def _rounding(op_type: str) -> Lowering:
    return lambda w, node, a: w.node(
        op_type if _meta(node).dtype.is_floating_point else "Identity", [a]
    )


LOWERINGS["floor"] = _rounding("Floor")
LOWERINGS["round"] = _rounding("Round")


@_lowering
def atan2(w: OnnxWriter, node: Node, a: str, b: str) -> str:
    """2 atan(a / (hypot(a, b) + |b|)) for b above 0; pi with a's sign, minus that, below.

    A zero has the sign of what 1 divided by it is.
    """
    dtype = _meta(node).dtype
    zero, pi = w.constant(0, dtype), w.constant(math.pi, dtype)
    one, two = w.constant(1, dtype), w.constant(2, dtype)

    def is_negative(x: str) -> str:
        below_zero = w.node("Less", [w.node("Div", [one, x]), zero])
        return w.node("Or", [w.node("Less", [x, zero]), below_zero])

    squares = w.node("Add", [w.node("Mul", [a, a]), w.node("Mul", [b, b])])
    radius = w.node("Sqrt", [squares])
    total = w.node("Add", [radius, w.node("Abs", [b])])
    at_origin = w.node("Equal", [radius, zero])
    ratio = w.node("Div", [a, w.node("Where", [at_origin, two, total])])
    angle = w.node("Mul", [w.node("Atan", [ratio]), two])
    side = w.node("Where", [is_negative(a), w.node("Neg", [pi]), pi])
    behind = w.node("Sub", [side, angle])
    return w.node("Where", [is_negative(b), behind, angle])


@_lowering
def where(w: OnnxWriter, node: Node, condition: str, a: str, b: str) -> str:
    if _meta(node).dtype is not bool_:
        return w.node("Where", [condition, a, b])
    chosen = w.node("And", [condition, a])
    return w.node("Or", [chosen, w.node("And", [w.node("Not", [condition]), b])])


@_lowering
def expm1(w: OnnxWriter, node: Node, a: str) -> str:
    """2 * sinh(a / 2) * exp(a / 2), which is exact near zero."""
    two = w.constant(2, _meta(node).dtype)
    half = w.node("Div", [a, two])
    return w.node("Mul", [w.node("Mul", [two, w.node("Sinh", [half])]), w.node("Exp", [half])])


@_lowering
def log1p(w: OnnxWriter, node: Node, a: str) -> str:
    """2 * atanh(a / (2 + a)) near zero, log(1 + a) elsewhere."""
    dtype = _meta(node).dtype
    two = w.constant(2, dtype)
    ratio = w.node("Div", [a, w.node("Add", [a, two])])
    near = w.node("Mul", [two, w.node("Atanh", [ratio])])
    far = w.node("Log", [w.node("Add", [a, w.constant(1, dtype)])])
    is_near = w.node("Less", [w.node("Abs", [a]), w.constant(0.5, dtype)])
    return w.node("Where", [is_near, near, far])


@_lowering
def relu_backward(w: OnnxWriter, node: Node, grad: str, y: str) -> str:
    zero = w.constant(0, _meta(node).dtype)
    return w.node("Where", [w.node("LessOrEqual", [y, zero]), zero, grad])


@_lowering
def clip(w: OnnxWriter, node: Node, a: str, low: str, high: str) -> str:
    return w.node("Min", [w.node("Max", [a, low]), high])


def _opposite(w: OnnxWriter, a: str, b: str, zero: str) -> str:
    """Whether the signs differ, for b that is not zero."""
    return w.node("Xor", [w.node("Less", [a, zero]), w.node("Less", [b, zero])])


@_lowering
def floor_divide(w: OnnxWriter, node: Node, a: str, b: str) -> str:
    quotient = w.node("Div", [a, b])
    dtype = _meta(node).dtype
    if dtype.is_floating_point:
        return w.node("Floor", [quotient])
    zero, one = w.constant(0, dtype), w.constant(1, dtype)  # ONNX rounds towards zero
    exact = w.node("Equal", [w.node("Mul", [quotient, b]), a])
    lower = w.node("And", [w.node("Not", [exact]), _opposite(w, a, b, zero)])
    return w.node("Where", [lower, w.node("Sub", [quotient, one]), quotient])


@_lowering
def remainder(w: OnnxWriter, node: Node, a: str, b: str) -> str:
    rest = w.node("Mod", [a, b], fmod=1)  # with the sign of a
    zero = w.constant(0, _meta(node).dtype)
    inexact = w.node("Not", [w.node("Equal", [rest, zero])])
    wrong = w.node("And", [inexact, _opposite(w, rest, b, zero)])
    return w.node("Where", [wrong, w.node("Add", [rest, b]), rest])


# -- reductions and scans --------------------------------------------------------------------------


def _reduce(w: OnnxWriter, op_type: str, a: str, dims: Any, keepdim: bool) -> str:
    return w.node(op_type, [a, w.constant(dims)], keepdims=int(keepdim), noop_with_empty_axes=1)


@_lowering
def sum_(w: OnnxWriter, node: Node, a: str, *, dims: Any, keepdim: bool) -> str:
    return _reduce(w, "ReduceSum", a, dims, keepdim)


def _extreme(op_type: str) -> Lowering:
    def lowering(w: OnnxWriter, node: Node, a: str, *, dims: Any, keepdim: bool) -> str:
        if _meta(node).dtype is not bool_:
            return _reduce(w, op_type, a, dims, keepdim)
        return w.cast(_reduce(w, op_type, w.cast(a, int64), dims, keepdim), bool_)

    return lowering


LOWERINGS["amax"] = _extreme("ReduceMax")
LOWERINGS["amin"] = _extreme("ReduceMin")


@_lowering
def argmax(w: OnnxWriter, node: Node, a: str, *, dim: int, keepdim: bool) -> str:
    a = _numbers(w, a, node.args[0])
    return w.node("ArgMax", [a], axis=dim, keepdims=int(keepdim))


@_lowering
def argmin(w: OnnxWriter, node: Node, a: str, *, dim: int, keepdim: bool) -> str:
    a = _numbers(w, a, node.args[0])
    return w.node("ArgMin", [a], axis=dim, keepdims=int(keepdim))


@_lowering
def argsort(w: OnnxWriter, node: Node, a: str, *, dim: int, descending: bool) -> str:
    count, a = w.constant([_shape(node)[dim]]), _numbers(w, a, node.args[0])
    return w.second("TopK", [a, count], axis=dim, largest=int(descending), sorted=1)


@_lowering
def cumsum(w: OnnxWriter, node: Node, a: str, *, dim: int) -> str:
    return w.node("CumSum", [a, w.constant(dim)])


# -- movement --------------------------------------------------------------------------------------


@_lowering
def reshape(w: OnnxWriter, node: Node, a: str, *, shape: Shape) -> str:
    return w.node("Reshape", [a, w.constant(shape)], allowzero=1)


@_lowering
def permute(w: OnnxWriter, node: Node, a: str, *, dims: Any) -> str:
    return w.node("Transpose", [a], perm=list(dims)) if dims else w.node("Identity", [a])


@_lowering
def expand(w: OnnxWriter, node: Node, a: str, *, shape: Shape) -> str:
    return w.node("Expand", [a, w.constant(shape)])


@_lowering
def slice_(w: OnnxWriter, node: Node, a: str, *, bounds: Any) -> str:
    if not bounds:
        return w.node("Identity", [a])
    extents = _shape(node.args[0])
    # a stop of -1 is before the first element, which ONNX would take for the last
    stops = [s if s >= 0 else -n - 1 for (_, s, _), n in zip(bounds, extents, strict=True)]
    starts, steps = [b[0] for b in bounds], [b[2] for b in bounds]
    parts = [w.constant(part) for part in (starts, stops, range(len(bounds)), steps)]
    return w.node("Slice", [a, *parts])


@_lowering
def unslice(w: OnnxWriter, node: Node, a: str, *, shape: Shape, bounds: Any) -> str:
    if not shape:
        return w.node("Identity", [a])
    places = np.arange(math.prod(shape)).reshape(shape)
    for dim, (start, stop, step) in enumerate(bounds):
        places = places.take(range(start, stop, step), axis=dim)
    meta = _meta(node)
    return _put(w, a, places.reshape(-1), shape, meta.dtype, "none")


def _put(
    w: OnnxWriter, values: str, places: Any, shape: Shape, dtype: DType, reduction: str
) -> str:
    """Zeros of a shape, with values at places of the flattened tensor."""
    flat = w.node("Reshape", [values, w.constant([-1])])
    index = places if isinstance(places, str) else w.constant(places)
    if dtype is bool_:  # ONNX Runtime scatters numbers
        flat = w.cast(flat, int64)
    zeros = _zeros(w, (math.prod(shape),), int64 if dtype is bool_ else dtype)
    filled = w.node("ScatterElements", [zeros, index, flat], axis=0, reduction=reduction)
    result = w.node("Reshape", [filled, w.constant(shape)], allowzero=1)
    return w.cast(result, bool_) if dtype is bool_ else result


def _window_places(length: int, size: int, step: int) -> Any:
    return np.arange((length - size) // step + 1)[:, None] * step + np.arange(size)


@_lowering
def unfold(w: OnnxWriter, node: Node, a: str, *, size: int, step: int) -> str:
    extents = _shape(node.args[0])
    places = _window_places(extents[-1], size, step)
    return w.node("Gather", [a, w.constant(places)], axis=len(extents) - 1)


@_lowering
def fold(w: OnnxWriter, node: Node, a: str, *, length: int, step: int) -> str:
    meta, size = _meta(node), _shape(node.args[0])[-1]
    rows = math.prod(meta.shape[:-1])
    places = np.arange(rows)[:, None, None] * length + _window_places(length, size, step)
    return _put(w, a, places.reshape(-1), meta.shape, meta.dtype, "add")


@_lowering
def cat(w: OnnxWriter, node: Node, *tensors: str, dim: int) -> str:
    return w.node("Concat", tensors, axis=dim)


@_lowering
def cast(w: OnnxWriter, node: Node, a: str, *, dtype: DType) -> str:
    return w.cast(a, _meta(node).dtype)


@_lowering
def full(w: OnnxWriter, node: Node, *, shape: Shape, value: float, dtype: DType) -> str:
    return w.node("Expand", [w.constant(value, _meta(node).dtype), w.constant(shape)])


@_lowering
def arange(
    w: OnnxWriter, node: Node, *, start: float, stop: float, step: float, dtype: DType
) -> str:
    values = np.arange(start, stop, step)[: _shape(node)[0]]
    return w.constant(values, _meta(node).dtype)


# -- indexing --------------------------------------------------------------------------------------


@_lowering
def take(w: OnnxWriter, node: Node, a: str, index: str) -> str:
    return w.node("Gather", [a, index], axis=0)


@_lowering
def scatter_add(w: OnnxWriter, node: Node, a: str, index: str, *, length: int) -> str:
    meta = _meta(node)
    places = w.node("Unsqueeze", [w.cast(index, int64), w.constant([-1])])
    zeros = _zeros(w, meta.shape, meta.dtype)
    return w.node("ScatterND", [zeros, places, a], reduction="add")


# -- convolution and pooling -----------------------------------------------------------------------


@_lowering
def conv2d(w: OnnxWriter, node: Node, *operands: str, groups: int, **windows: Pair) -> str:
    return w.node("Conv", operands, group=groups, **_windows(**windows))


def _windows(*, stride: Pair, padding: Pair, dilation: Pair = (1, 1)) -> dict[str, Any]:
    attributes = {"strides": stride, "pads": (*padding, *padding), "dilations": dilation}
    return {name: list(values) for name, values in attributes.items()}


def _transposed_conv(
    w: OnnxWriter, node: Node, grad: str, weight: str, kernel: Shape, groups: int, *, stride: Pair,
    padding: Pair, dilation: Pair = (1, 1),
) -> str:  # fmt: skip
    """Every gradient spreads the kernel over the window it came from.

    The last rows and columns are cut off, as the first, where they lie in the padding; they are
    zeros where no window reached them.
    """
    positions, extents = _shape(node.args[0])[2:], _shape(node)[2:]
    reached = [(positions[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 for i in (0, 1)]
    surplus = [reached[i] - padding[i] - extents[i] for i in (0, 1)]
    spread = w.node(
        "ConvTranspose", [grad, weight], group=groups, strides=list(stride),
        dilations=list(dilation), pads=[*padding, *(max(s, 0) for s in surplus)],
    )  # fmt: skip
    missed = [max(-s, 0) for s in surplus]
    return w.node("Pad", [spread, w.constant([0] * 6 + missed)]) if any(missed) else spread


@_lowering
def conv2d_input(
    w: OnnxWriter, node: Node, grad: str, weight: str, *, input_size: Pair, groups: int,
    **windows: Pair,
) -> str:  # fmt: skip
    kernel = _shape(node.args[1])[2:]
    return _transposed_conv(w, node, grad, weight, kernel, groups, **windows)


@_lowering
def conv2d_weight(
    w: OnnxWriter, node: Node, x: str, grad: str, *, kernel_size: Pair, groups: int,
    stride: Pair, padding: Pair, dilation: Pair,
) -> str:  # fmt: skip
    """A convolution of the images with the gradients, batch and channels having changed places."""
    swap = [1, 0, 2, 3]
    windows = _windows(stride=dilation, padding=padding, dilation=stride)
    cut = [w.constant(part) for part in ([0, 0], kernel_size, [2, 3])]
    inputs, outputs = _shape(node.args[0])[1] // groups, _shape(node.args[1])[1] // groups
    parts = []
    for group in range(groups):
        x_part, g_part = (
            w.node("Slice", [
                name, w.constant([group * size]), w.constant([(group + 1) * size]), w.constant([1])
            ])
            for name, size in ((x, inputs), (grad, outputs))
        )  # fmt: skip
        x_part, g_part = (w.node("Transpose", [part], perm=swap) for part in (x_part, g_part))
        product = w.node("Conv", [x_part, g_part], **windows)
        parts.append(w.node("Transpose", [w.node("Slice", [product, *cut])], perm=swap))
    return parts[0] if groups == 1 else w.node("Concat", parts, axis=0)


@_lowering
def max_pool2d(w: OnnxWriter, node: Node, x: str, *, kernel_size: Pair, **windows: Pair) -> str:
    return w.node("MaxPool", [x], kernel_shape=list(kernel_size), **_windows(**windows))


def _places_of_maxima(w: OnnxWriter, x: str, kernel_size: Pair, windows: dict[str, Pair]) -> str:
    """For each window the position of its largest element in the flattened tensor."""
    places = w.second("MaxPool", [x], kernel_shape=list(kernel_size), **_windows(**windows))
    return w.node("Reshape", [places, w.constant([-1])])


@_lowering
def max_pool2d_backward(
    w: OnnxWriter, node: Node, grad: str, x: str, *, kernel_size: Pair, **windows: Pair
) -> str:
    meta = _meta(node)
    places = _places_of_maxima(w, x, kernel_size, windows)
    return _put(w, grad, places, meta.shape, meta.dtype, "add")


@_lowering
def max_pool2d_select(
    w: OnnxWriter, node: Node, values: str, x: str, *, kernel_size: Pair, **windows: Pair
) -> str:
    places = _places_of_maxima(w, x, kernel_size, windows)
    flat = w.node("Reshape", [values, w.constant([-1])])
    picked = w.node("Gather", [flat, places], axis=0)
    return w.node("Reshape", [picked, w.constant(_shape(node))], allowzero=1)


@_lowering
def avg_pool2d(w: OnnxWriter, node: Node, x: str, *, kernel_size: Pair, **windows: Pair) -> str:
    attributes = _windows(**windows)
    del attributes["dilations"]
    return w.node(
        "AveragePool", [x], kernel_shape=list(kernel_size), count_include_pad=1, **attributes
    )


@_lowering
def avg_pool2d_backward(
    w: OnnxWriter, node: Node, grad: str, *, kernel_size: Pair, input_size: Pair, **windows: Pair
) -> str:
    """Every gradient is spread evenly over its window: a transposed convolution by a constant."""
    channels = _shape(node)[1]
    share = np.full((channels, 1, *kernel_size), 1 / math.prod(kernel_size))
    weight = w.constant(share, _meta(node).dtype)
    return _transposed_conv(w, node, grad, weight, kernel_size, channels, **windows)
