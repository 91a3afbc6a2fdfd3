"""How our ops are said in ONNX.

Elementwise ops are not here, but for those of which ONNX has a better one than their definition
says: the others are described by `tinytorch.scalar` in the words of `vocabulary.py`.

A lowering gets the writer, the node, the names of its operands (already of the dtypes that the op's
rule asks for) and the op's parameters; it returns the name of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.dtypes import DType, Shape, TensorMeta, bool_, int64
from tinytorch.graph.ir import Node
from tinytorch.onnx.writer import OnnxWriter

Lowering = Callable[..., str]
Pair = tuple[int, int]

# ops that ONNX has under another name, without options
SAME = {"sigmoid": "Sigmoid", "relu": "Relu", "matmul": "MatMul"}


def _same(op_type: str) -> Lowering:
    return lambda writer, node, *operands: writer.node(op_type, operands)


LOWERINGS: dict[str, Lowering] = {name: _same(op_type) for name, op_type in SAME.items()}


def _lowering(function: Lowering) -> Lowering:
    LOWERINGS[function.__name__.rstrip("_")] = function
    return function


@_lowering
def detach(w: OnnxWriter, node: Node, a: str) -> str:
    """The value itself. ONNX Runtime 1.31 loses an Identity that is multiplied by 1 / c."""
    return a


@_lowering
def copy(w: OnnxWriter, node: Node, a: str) -> str:
    return a


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
    indices = np.arange(math.prod(shape)).reshape(shape)
    for dim, (start, stop, step) in enumerate(bounds):
        indices = indices.take(range(start, stop, step), axis=dim)
    meta = _meta(node)
    return _put(w, a, indices.reshape(-1), shape, meta.dtype, "none")


def _put(
    w: OnnxWriter, values: str, indices: Any, shape: Shape, dtype: DType, reduction: str
) -> str:
    """Zeros of a shape, with values at indices of the flattened tensor."""
    flat = w.node("Reshape", [values, w.constant([-1])])
    index = indices if isinstance(indices, str) else w.constant(indices)
    if dtype is bool_:  # ONNX Runtime scatters numbers
        flat = w.cast(flat, int64)
    zeros = _zeros(w, (math.prod(shape),), int64 if dtype is bool_ else dtype)
    filled = w.node("ScatterElements", [zeros, index, flat], axis=0, reduction=reduction)
    result = w.node("Reshape", [filled, w.constant(shape)], allowzero=1)
    return w.cast(result, bool_) if dtype is bool_ else result


def _window_indices(length: int, size: int, step: int) -> Any:
    return np.arange((length - size) // step + 1)[:, None] * step + np.arange(size)


@_lowering
def unfold(w: OnnxWriter, node: Node, a: str, *, size: int, step: int) -> str:
    extents = _shape(node.args[0])
    indices = _window_indices(extents[-1], size, step)
    return w.node("Gather", [a, w.constant(indices)], axis=len(extents) - 1)


@_lowering
def fold(w: OnnxWriter, node: Node, a: str, *, length: int, step: int) -> str:
    meta, size = _meta(node), _shape(node.args[0])[-1]
    rows = math.prod(meta.shape[:-1])
    indices = np.arange(rows)[:, None, None] * length + _window_indices(length, size, step)
    return _put(w, a, indices.reshape(-1), meta.shape, meta.dtype, "add")


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
    indices = w.node("Unsqueeze", [w.cast(index, int64), w.constant([-1])])
    zeros = _zeros(w, meta.shape, meta.dtype)
    return w.node("ScatterND", [zeros, indices, a], reduction="add")


# -- convolution and pooling -----------------------------------------------------------------------


@_lowering
def conv2d(w: OnnxWriter, node: Node, *operands: str, groups: int, **windows: Pair) -> str:
    return w.node("Conv", operands, group=groups, **_windows(**windows))


def _windows(*, stride: Pair, padding: Pair, dilation: Pair = (1, 1)) -> dict[str, Any]:
    attributes = {"strides": stride, "pads": (*padding, *padding), "dilations": dilation}
    return {name: list(values) for name, values in attributes.items()}


def _transposed_conv(
    w: OnnxWriter,
    node: Node,
    grad: str,
    weight: str,
    kernel: Shape,
    groups: int,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair = (1, 1),
) -> str:
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
    w: OnnxWriter,
    node: Node,
    grad: str,
    weight: str,
    *,
    input_size: Pair,
    groups: int,
    **windows: Pair,
) -> str:
    kernel = _shape(node.args[1])[2:]
    return _transposed_conv(w, node, grad, weight, kernel, groups, **windows)


@_lowering
def conv2d_weight(
    w: OnnxWriter,
    node: Node,
    x: str,
    grad: str,
    *,
    kernel_size: Pair,
    groups: int,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> str:
    """A convolution of the images with the gradients, batch and channels exchanged."""
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


def _indices_of_maxima(w: OnnxWriter, x: str, kernel_size: Pair, windows: dict[str, Pair]) -> str:
    """For each window the position of its largest element in the flattened tensor."""
    indices = w.second("MaxPool", [x], kernel_shape=list(kernel_size), **_windows(**windows))
    return w.node("Reshape", [indices, w.constant([-1])])


@_lowering
def max_pool2d_backward(
    w: OnnxWriter, node: Node, grad: str, x: str, *, kernel_size: Pair, **windows: Pair
) -> str:
    meta = _meta(node)
    indices = _indices_of_maxima(w, x, kernel_size, windows)
    return _put(w, grad, indices, meta.shape, meta.dtype, "add")


@_lowering
def max_pool2d_select(
    w: OnnxWriter, node: Node, values: str, x: str, *, kernel_size: Pair, **windows: Pair
) -> str:
    indices = _indices_of_maxima(w, x, kernel_size, windows)
    flat = w.node("Reshape", [values, w.constant([-1])])
    picked = w.node("Gather", [flat, indices], axis=0)
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
