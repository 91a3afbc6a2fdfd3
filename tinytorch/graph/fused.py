"""An op whose meaning is a graph: what fusion makes of a group of nodes."""

from __future__ import annotations

import hashlib
from typing import Any

from tinytorch.dtypes import DType, Shape, TensorMeta
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.graph.interpret import Interpreter
from tinytorch.graph.ir import Graph, Node
from tinytorch.op import Op, Operand, Params
from tinytorch.tensor import Tensor


class GraphDecomposition:
    """Runs the graph of a fused op, as the decomposition of any fused op runs.

    Attributes:
        graph: one placeholder for each input of the op, one value as its output.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, *inputs: Tensor) -> Any:
        return Interpreter(self.graph).run(*inputs)


def fused_op(graph: Graph) -> Op:
    """A row (outside of the op table) for an op that means `graph`.

    It takes tensors of the shapes and dtypes of the placeholders, and nothing else. A backend or
    compiler that has no kernel for it runs the graph.
    """
    inputs: list[TensorMeta] = [n.meta["tensor_meta"] for n in graph.find_nodes(op="placeholder")]
    out: TensorMeta = graph.output_node().args[0].meta["tensor_meta"]
    nodes = graph.find_nodes(op="call_function")
    # ops of different meaning must not have one name: it ends with a digest of the graph's text
    digest = hashlib.sha256(str(graph).encode()).hexdigest()[:6]
    name = "_".join(["fused", *(node.target.name for node in nodes[:4]), digest])

    def shape_rule(name: str, shapes: list[Shape], params: Params) -> Shape:
        if shapes != [meta.shape for meta in inputs]:
            raise ShapeError(f"{name}: made for {inputs}, not for inputs of shapes {shapes}")
        return out.shape

    def dtype_rule(name: str, operands: list[Operand], params: Params) -> tuple[list[DType], DType]:
        given = [o for o in operands if isinstance(o, TensorMeta)]
        if [o.dtype for o in given] != [meta.dtype for meta in inputs]:
            raise DTypeError(f"{name}: made for {inputs}, not for {operands}")
        return [meta.dtype for meta in inputs], out.dtype

    def flops(shapes: list[Shape], out: Shape, params: Params) -> int:
        total = 0
        for node in nodes:
            operands = [
                a.meta["tensor_meta"].shape if isinstance(a, Node) else () for a in node.args
            ]
            total += node.target.flops(operands, node.meta["tensor_meta"].shape, node.kwargs)
        return total

    names = " ".join(f"in{i}" for i in range(len(inputs)))
    op = Op(name, names, "fused", shape_rule, dtype_rule, flops)
    op.decomposition = GraphDecomposition(graph)
    return op
