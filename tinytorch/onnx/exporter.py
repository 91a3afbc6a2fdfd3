"""`export_onnx`: a traced function or a graph as an ONNX model.

Parameters and buffers become initializers, arguments become inputs, state that the function writes
becomes further outputs. Fused ops are written as their decompositions, elementwise ones as their
scalar definitions; each of the others has its line in `lowerings.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tinytorch.dtypes import TensorMeta
from tinytorch.files import atomic_write
from tinytorch.graph.bindings import StateBinding
from tinytorch.graph.compiler.lower import CallingConvention, lower
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.traced import TracedFunction
from tinytorch.onnx import attention, quantized
from tinytorch.onnx.dynamic import Axes, export_dynamic
from tinytorch.onnx.errors import UnsupportedOnnxError
from tinytorch.onnx.library import code_of, onnx_package
from tinytorch.onnx.lowerings import LOWERINGS, Lowering
from tinytorch.onnx.vocabulary import OnnxVocabulary
from tinytorch.onnx.writer import OnnxWriter
from tinytorch.scalar import ScalarError, describe

OPSET = 18
FUSED: dict[str, Lowering] = {
    **attention.LOWERINGS,
    **quantized.LOWERINGS,
}  # of fused ops that are written as a whole


def _operands(writer: OnnxWriter, node: Node, names: dict[Node, str]) -> list[str]:
    """Names of a node's operands, numbers as constants of the dtype of the tensors beside them."""
    (*_, dtype) = [n.meta["tensor_meta"].dtype for n in node.all_input_nodes] or [None]
    given = [a for a in node.args if a is not None]
    return [names[a] if isinstance(a, Node) else writer.constant(a, dtype) for a in given]


def _write_op(writer: OnnxWriter, node: Node, names: dict[Node, str]) -> str:
    op, why = node.target, "it has no scalar definition"
    if op.name in LOWERINGS:
        return LOWERINGS[op.name](writer, node, *_operands(writer, node, names), **node.kwargs)
    if op.name in FUSED:
        return FUSED[op.name](writer, node, *_operands(writer, node, names), **node.kwargs)
    if op.kind == "elementwise" and op.scalar is not None:
        given = [names[a] if isinstance(a, Node) else a for a in node.args]
        metas = [a.meta["tensor_meta"] if isinstance(a, Node) else type(a) for a in node.args]
        try:
            name: str = describe(op, given, metas, OnnxVocabulary(writer))
            return name
        except ScalarError as error:
            why = str(error)
    raise UnsupportedOnnxError(
        f"op {op.name} (of {node.stack_trace or node.name}) cannot be said in ONNX: {why}; give it "
        f"a function in tinytorch/onnx/lowerings.py, if ONNX has operators for it"
    )


def _write_graph(writer: OnnxWriter, graph: Graph, names: dict[Node, str]) -> list[str]:
    """Write the nodes of a graph whose placeholders are in `names`; returns its results' names."""
    for node in graph.nodes:
        if node.op == "get_attr":
            names[node] = writer.constant(
                graph.constants[node.target], node.meta["tensor_meta"].dtype
            )
        elif node.op == "call_function":
            names[node] = _write_op(writer, node, names)
    return [names[value] for value in graph.output_node().args[0]]


def _value_info(name: str, meta: TensorMeta) -> Any:
    return onnx_package().helper.make_tensor_value_info(name, code_of(meta.dtype), meta.shape)


def export_onnx(
    traced: TracedFunction | Graph,
    path: str | Path | None = None,
    name: str = "tinytorch",
    dynamic_axes: Axes | None = None,
    opset: int | None = None,
) -> Any:
    """Write a traced function, or a graph, as an ONNX model.

    Args:
        traced: what `trace` returned. Of a Graph all placeholders become inputs. What the trace
            takes to be true of values, that no label of a cross entropy is to be ignored, must be
            true where the model runs.
        path: where to; None to write no file.
        name: of the model's graph.
        dynamic_axes: for arguments their dimensions that are known only when the model runs, by
            name: {"x": {0: "batch"}}. Dimensions of one name are equal. The function is traced
            again at other sizes.
        opset: version of the operator set; by default 18, or what the ops need. From 23 on
            attention is the operator `Attention`, where the trace has it as a whole:
            `trace(..., decompose=False)`.

    Returns:
        The `onnx.ModelProto`, checked by onnx itself. Inputs have the names of the arguments,
        outputs are `output_0`, `output_1`, ...

    Raises:
        UnsupportedOnnxError: an op has no counterpart in ONNX (a generator of random numbers), or
            something depends on a dynamic size in a way that ONNX cannot be told.
        ValueError: a dynamic axis that there is not, or an operator set that is older than what is
            written, or unknown to the installed onnx.
        MissingExtraError: onnx is not installed.
        TypeError: a model or a function that has not been traced.
    """
    if not isinstance(traced, (TracedFunction, Graph)):
        raise TypeError(
            f"export_onnx takes what trace(model, *examples) returns, not {type(traced).__name__}"
        )
    onnx = onnx_package()
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not OPSET <= opset <= newest:
        raise ValueError(f"opset must be from {OPSET} to {newest}, which onnx knows, not {opset}")
    if dynamic_axes:
        if not isinstance(traced, TracedFunction):
            raise ValueError("dynamic_axes: a Graph has one size; give what trace() returned")
        model = export_dynamic(traced, dynamic_axes, lambda t: _model(t, name, opset, shares=False))
    else:
        model = _model(traced, name, opset)
    onnx.checker.check_model(model, full_check=True)
    if path is not None:
        with atomic_write(Path(path)) as stream:
            stream.write(model.SerializeToString())
    return model


def _model(
    traced: TracedFunction | Graph, name: str, opset: int | None, shares: bool = True
) -> Any:
    onnx = onnx_package()
    given = traced.graph if isinstance(traced, TracedFunction) else traced
    has_attention = opset is not None and opset >= attention.OPSET

    def is_kept(node: Node) -> bool:
        return quantized.is_kept(node) or (has_attention and attention.is_kept(node))

    graph = lower(given, CallingConvention(), is_kept=is_kept)
    writer = OnnxWriter(shares)
    names: dict[Node, str] = {}
    inputs = []
    bindings = traced.signature.inputs if isinstance(traced, TracedFunction) else ()
    own = [n.name for n in given.find_nodes(op="placeholder")]
    for i, node in enumerate(graph.find_nodes(op="placeholder")):
        input_name = names[node] = own[i]
        binding = bindings[i] if bindings else None
        if isinstance(binding, StateBinding):
            values = binding.tensor.detach()._concrete("export_onnx")
            writer.state(input_name, values, binding.tensor.dtype)
        else:
            inputs.append(_value_info(input_name, node.meta["tensor_meta"]))
    results = _write_graph(writer, graph, names)
    outputs = []
    for i, (value, node) in enumerate(zip(results, graph.output_node().args[0], strict=True)):
        writer.node("Identity", [value], f"output_{i}")
        outputs.append(_value_info(f"output_{i}", node.meta["tensor_meta"]))
    has_codes = any(map(quantized.is_kept, graph.find_nodes(op="call_function")))
    needed = quantized.OPSET if has_codes else OPSET
    if opset is not None and opset < needed:
        raise ValueError(f"quantized layers need opset {needed}, not {opset}")
    imports = [onnx.helper.make_opsetid("", opset or needed)]
    return onnx.helper.make_model(
        onnx.helper.make_graph(writer.nodes, name, inputs, outputs, writer.stored()),
        opset_imports=imports,
        ir_version=onnx.helper.find_min_ir_version_for(imports),
        producer_name="tinytorch",
    )
