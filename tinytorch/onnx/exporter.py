"""`export_onnx`: a traced function or a graph as an ONNX model.

Parameters and buffers become initializers, arguments become inputs, state that the function writes
becomes further outputs. Fused ops are written as their decompositions, elementwise ones as their
scalar definitions; each of the others has its line in `lowerings.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.dtypes import Array, DType, TensorMeta
from tinytorch.files import atomic_write
from tinytorch.graph.bindings import StateBinding
from tinytorch.graph.compiler.lower import CallingConvention, lower
from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.traced import TracedFunction
from tinytorch.onnx import quantized
from tinytorch.onnx.dynamic import Axes, export_dynamic
from tinytorch.onnx.errors import UnsupportedOnnxError
from tinytorch.onnx.library import code_of, onnx_package
from tinytorch.onnx.lowerings import LOWERINGS
from tinytorch.onnx.vocabulary import OnnxVocabulary
from tinytorch.scalar import ScalarError, describe

OPSET = 18
IR_VERSION = 8


class OnnxWriter:
    """Collects the nodes and initializers of a model; what lowerings write to."""

    def __init__(self, shares: bool = True) -> None:
        self._onnx = onnx_package()
        self._shares = shares  # one constant of each value
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._state: dict[str, Array] = {}
        self._constants: dict[Any, str] = {}
        self._constant_count = 0
        self._count = 0

    def node(
        self, op_type: str, inputs: Sequence[str], output: str | None = None, **attributes: Any
    ) -> str:
        """Add a node with one result; returns the result's name."""
        if output is None:
            self._count += 1
            output = f"value_{self._count}"
        self.nodes.append(self._onnx.helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def second(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node with two results; returns the second one's name."""
        self._count += 1
        unused, wanted = f"unused_{self._count}", f"value_{self._count}"
        node = self._onnx.helper.make_node(op_type, inputs, [unused, wanted], **attributes)
        self.nodes.append(node)
        return wanted

    def constant(self, values: Any, dtype: DType | None = None) -> str:
        """A constant by value, written down once; without a dtype int64, as shapes are."""
        array = np.asarray(values, np.int64 if dtype is None else dtype.dtype)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants or not self._shares:
            self._constants[key] = self.initializer(f"constant_{self._constant_count}", array)
            self._constant_count += 1
        return self._constants[key]

    def initializer(self, name: str, array: Any) -> str:
        """A value that is stored in the model."""
        contiguous = np.array(array, order="C")
        self.initializers.append(self._onnx.numpy_helper.from_array(contiguous, name))
        return name

    def state(self, name: str, array: Array) -> None:
        """A parameter or buffer: an initializer whose values lowerings may ask for."""
        self._state[name] = array
        self.initializer(name, array)

    def state_of(self, name: str) -> Array:
        """The values of a parameter or buffer.

        Raises:
            UnsupportedOnnxError: it is computed, or an argument.
        """
        if name not in self._state:
            raise UnsupportedOnnxError(
                f"{name} must be a buffer of the model: the exported model stores its codes"
            )
        return self._state[name]

    def replace_state(self, name: str, tensor: Any) -> str:
        """Store a parameter or buffer in another form, an `onnx.TensorProto`; its name."""
        if all(known.name != tensor.name for known in self.initializers):
            self.initializers = [known for known in self.initializers if known.name != name]
            self.initializers.append(tensor)
        return str(tensor.name)

    def cast(self, name: str, dtype: DType) -> str:
        """The value in another dtype."""
        return self.node("Cast", [name], to=code_of(dtype))


def _operands(writer: OnnxWriter, node: Node, names: dict[Node, str]) -> list[str]:
    """Names of a node's operands, numbers as constants of the dtype of the tensors beside them."""
    (*_, dtype) = [n.meta["tensor_meta"].dtype for n in node.all_input_nodes] or [None]
    return [names[a] if isinstance(a, Node) else writer.constant(a, dtype) for a in node.args]


def _write_op(writer: OnnxWriter, node: Node, names: dict[Node, str]) -> str:
    op, why = node.target, "it has no scalar definition"
    if op.name in LOWERINGS:
        return LOWERINGS[op.name](writer, node, *_operands(writer, node, names), **node.kwargs)
    if op.name in quantized.LOWERINGS:
        operands = _operands(writer, node, names)
        return quantized.LOWERINGS[op.name](writer, node, *operands, **node.kwargs)
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
) -> Any:
    """Write a traced function, or a graph, as an ONNX model.

    Args:
        traced: what `trace` returned. Of a Graph all placeholders become inputs.
        path: where to; None to write no file.
        name: of the model's graph.
        dynamic_axes: for arguments their dimensions that are known only when the model runs, by
            name: {"x": {0: "batch"}}. Dimensions of one name are equal. The function is traced
            again at other sizes.

    Returns:
        The `onnx.ModelProto`, checked by onnx itself. Inputs have the names of the arguments,
        outputs are `output_0`, `output_1`, ...

    Raises:
        UnsupportedOnnxError: an op has no counterpart in ONNX (a generator of random numbers), or
            something depends on a dynamic size in a way that ONNX cannot be told.
        ValueError: a dynamic axis that there is not.
        MissingExtraError: onnx is not installed.
    """
    onnx = onnx_package()
    if dynamic_axes:
        if not isinstance(traced, TracedFunction):
            raise ValueError("dynamic_axes: a Graph has one size; give what trace() returned")
        model = export_dynamic(traced, dynamic_axes, lambda t: _model(t, name, shares=False))
    else:
        model = _model(traced, name)
    onnx.checker.check_model(model, full_check=True)
    if path is not None:
        with atomic_write(Path(path)) as stream:
            stream.write(model.SerializeToString())
    return model


def _model(traced: TracedFunction | Graph, name: str, shares: bool = True) -> Any:
    onnx = onnx_package()
    given = traced.graph if isinstance(traced, TracedFunction) else traced
    graph = lower(given, CallingConvention(), is_kept=quantized.is_kept)
    writer = OnnxWriter(shares)
    names: dict[Node, str] = {}
    inputs = []
    bindings = traced.signature.inputs if isinstance(traced, TracedFunction) else ()
    own = [n.name for n in given.find_nodes(op="placeholder")]
    for i, node in enumerate(graph.find_nodes(op="placeholder")):
        input_name = names[node] = own[i]
        binding = bindings[i] if bindings else None
        if isinstance(binding, StateBinding):
            writer.state(input_name, binding.tensor.detach().numpy())
        else:
            inputs.append(_value_info(input_name, node.meta["tensor_meta"]))
    results = _write_graph(writer, graph, names)
    outputs = []
    for i, (value, node) in enumerate(zip(results, graph.output_node().args[0], strict=True)):
        writer.node("Identity", [value], f"output_{i}")
        outputs.append(_value_info(f"output_{i}", node.meta["tensor_meta"]))
    has_codes = any(map(quantized.is_kept, graph.find_nodes(op="call_function")))
    opset, version = (quantized.OPSET, quantized.IR_VERSION) if has_codes else (OPSET, IR_VERSION)
    return onnx.helper.make_model(
        onnx.helper.make_graph(writer.nodes, name, inputs, outputs, writer.initializers),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=version,
        producer_name="tinytorch",
    )
