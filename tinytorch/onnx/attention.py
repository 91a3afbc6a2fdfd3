"""How attention is said in ONNX: from opset 23 on by one operator, `Attention`, for which runtimes
have a fused kernel; before that by its parts.
"""

from __future__ import annotations

from tinytorch.dtypes import TensorMeta, float32
from tinytorch.graph.ir import Node
from tinytorch.onnx.writer import OnnxWriter

OPSET = 23


def scaled_dot_product_attention(
    w: OnnxWriter,
    node: Node,
    query: str,
    key: str,
    value: str,
    mask: str | None = None,
    seed: None = None,
    *,
    is_causal: bool,
    scale: float,
    dropout_p: float,
) -> str:
    """Of three dimensions or fewer, with ones in front: the operator takes four."""
    inputs, missing = [query, key, value], 4 - len(_meta(node).shape)
    if missing:
        front = tuple(range(missing))
        inputs = [w.node("Unsqueeze", [each, w.constant(front)]) for each in inputs]
    if mask is not None:
        inputs.append(mask)
    out = w.node("Attention", inputs, is_causal=int(is_causal), scale=float(scale))
    return w.node("Squeeze", [out, w.constant(front)]) if missing else out


def is_kept(node: Node) -> bool:
    """Whether the operator means what this node does: ONNX has no dropout of weights, runtimes have
    it in float32, and a query that sees no key, which a mask may cause, gives NaN."""
    if getattr(node.target, "name", None) not in LOWERINGS or node.kwargs["dropout_p"]:
        return False
    query, key = (_meta(argument) for argument in node.args[:2])
    of_mask = node.args[3] if len(node.args) > 3 else None
    is_same = query.shape[:-3] == key.shape[:-3] and len(query.shape) <= 4
    return query.dtype is float32 and is_same and of_mask is None


def _meta(node: Node) -> TensorMeta:
    meta: TensorMeta = node.meta["tensor_meta"]
    return meta


LOWERINGS = {"scaled_dot_product_attention": scaled_dot_product_attention}
