"""How products with quantized weights are said in ONNX: codes, with QuantizeLinear before and
DequantizeLinear behind them (Q/DQ), which runtimes replace by products of integers.

Codes of 4 bits and scales of groups need ONNX's opset 21.
"""

from __future__ import annotations

import numpy as np

from tinytorch.backends.reference_quantized import unpacked
from tinytorch.dtypes import Array, float32, uint8
from tinytorch.graph.ir import Node
from tinytorch.onnx.errors import UnsupportedOnnxError
from tinytorch.onnx.library import onnx_package
from tinytorch.onnx.writer import OnnxWriter
from tinytorch.shapes_quantized import DYNAMIC_STEPS, LEAST

OPSET = 21


def quantized_linear(
    w: OnnxWriter,
    node: Node,
    x: str,
    weight: str,
    scale: str,
    bias: str | None = None,
    range_: str | None = None,
    *,
    bits: int,
    group_size: int,
    activation: str,
) -> str:
    """MatMul of the dequantized weight and of the input, which may be rounded before."""
    meta = node.args[0].meta["tensor_meta"]
    if meta.dtype is not float32:
        raise UnsupportedOnnxError(f"quantized_linear of {meta.dtype.name}: use model.float()")
    columns, front = meta.shape[-1], meta.shape[:-1]
    if activation == "dynamic":
        x = _rounded_rows(w, x, columns)
    elif range_ is not None:
        x = _rounded(w, x, w.state_of(range_))
    out = w.node("MatMul", [x, _transposed(w, weight, scale, columns, bits, group_size)])
    if bias is not None:
        out = w.node("Add", [out, bias])
    if activation == "dynamic" and len(front) != 1:
        out = w.node("Reshape", [out, w.constant((*front, node.meta["tensor_meta"].shape[-1]))])
    return out


def _rounded_rows(w: OnnxWriter, x: str, columns: int) -> str:
    """(..., columns) as (rows, columns), each row by a scale of its own."""
    x = w.node("Reshape", [x, w.constant((-1, columns))])
    ends = []
    for values in (x, w.node("Neg", [x])):
        most = w.node("ReduceMax", [values, w.constant((1,))], keepdims=0)
        most = w.node("Max", [most, w.constant(0, float32)])
        ends.append(w.node("Div", [most, w.constant(DYNAMIC_STEPS, float32)]))
    scale = w.node("Max", [w.node("Add", ends), w.constant(LEAST, float32)])
    signed = onnx_package().TensorProto.INT8
    codes = w.node("QuantizeLinear", [x, scale], axis=0, output_dtype=signed)
    return w.node("DequantizeLinear", [codes, scale], axis=0)


def _rounded(w: OnnxWriter, x: str, range_: Array) -> str:
    """By the scale and zero point that were calibrated."""
    parameters = [w.constant(range_[0], float32), w.constant(range_[1], uint8)]
    codes = w.node("QuantizeLinear", [x, *parameters])
    return w.node("DequantizeLinear", [codes, *parameters])


def _transposed(
    w: OnnxWriter, weight: str, scale: str, columns: int, bits: int, group_size: int
) -> str:
    """The floats that the codes stand for, (columns, out)."""
    codes, scales = w.state_of(weight), w.state_of(scale)
    stored = codes.shape[1] * (2 if bits == 4 else 1)
    if bits == 4:
        weight = _nibbles(w, weight, codes)
    if bits == 16:
        floats = w.node("Mul", [w.cast(weight, float32), scale])
    elif scales.shape[1] == 1:
        flat = w.constant(scales[:, 0], float32)
        floats = w.node("DequantizeLinear", [weight, flat], axis=0)
    else:
        floats = w.node("DequantizeLinear", [weight, scale], axis=1, block_size=group_size)
    if stored > columns:
        parts = [w.constant((number,)) for number in (0, columns, 1)]
        floats = w.node("Slice", [floats, *parts])
    return w.node("Transpose", [floats], perm=[1, 0])


def _nibbles(w: OnnxWriter, name: str, packed: Array) -> str:
    """Our bytes (codes j and j + 16 of a block of 32) as ONNX's INT4 (codes 2 j and 2 j + 1)."""
    onnx = onnx_package()
    codes = unpacked(packed).view(np.uint8) & 15
    data = (codes[:, ::2] | (codes[:, 1::2] << 4)).tobytes()
    kind = onnx.TensorProto.INT4
    tensor = onnx.helper.make_tensor(f"{name}_int4", kind, codes.shape, data, raw=True)
    return w.replace_state(name, tensor)


LOWERINGS = {"quantized_linear": quantized_linear}


def is_kept(node: Node) -> bool:
    """Whether a fused op is written as a whole."""
    return getattr(node.target, "name", None) in LOWERINGS
