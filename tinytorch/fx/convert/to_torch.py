"""`to_torch`: a traced TinyTorch function as a `torch.fx.GraphModule`.

A student's model then runs on CUDA or MPS, under PyTorch's autograd, and through `torch.compile`;
and everything that works on torch.fx graphs works on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.fx import GraphModule

from tinytorch.errors import TinyTorchError
from tinytorch.fx.convert.exchange import tensor_to_torch
from tinytorch.fx.convert.torch_ops import CREATING, TORCH_OPS
from tinytorch.fx.convert.torch_vocabulary import TorchVocabulary
from tinytorch.graph.bindings import Binding, StateBinding
from tinytorch.graph.compiler.lower import CallingConvention, lower
from tinytorch.graph.ir import Graph, Node, map_arg
from tinytorch.graph.traced import TracedFunction
from tinytorch.op import Op
from tinytorch.scalar import ScalarError, describe


class ConversionError(TinyTorchError, NotImplementedError):
    """A graph that cannot be said in the other framework's ops."""


def to_torch(traced: TracedFunction | Graph, device: str | torch.device = "cpu") -> GraphModule:
    """The same computation in PyTorch.

    Parameters become `nn.Parameter`s and buffers become buffers, under their own names with dots
    replaced; they are copies. Arguments stay inputs, in order; numbers that are read anew at each
    call (seeds, learning rates) become inputs behind them.

    Args:
        traced: what `trace` returned. Of a Graph all placeholders become inputs.
        device: where parameters and new tensors are.

    Returns:
        A module whose results are a tuple: those of the function, then the new values of the state
        that it writes.

    Raises:
        ConversionError: an op has no counterpart.
        TypeError: a model or a function that has not been traced.
    """
    if not isinstance(traced, (TracedFunction, Graph)):
        raise TypeError(
            f"to_torch takes what trace(model, *examples) returns, not {type(traced).__name__}"
        )
    graph = traced.graph if isinstance(traced, TracedFunction) else traced
    bindings: list[Binding | None] = (
        list(traced.signature.inputs)
        if isinstance(traced, TracedFunction)
        else [None] * len(graph.find_nodes(op="placeholder"))
    )
    writer = _Writer(torch.device(device))
    lowered = lower(graph, CallingConvention(), is_kept=lambda node: _name(node) in TORCH_OPS)
    for node, binding in zip(lowered.find_nodes(op="placeholder"), bindings, strict=True):
        writer.add_input(node, binding)
    for node in lowered.nodes:
        writer.add(node, lowered)
    writer.graph.lint()
    return GraphModule(writer.root, writer.graph)


def _name(node: Node) -> str | None:
    return node.target.name if isinstance(node.target, Op) else None


class _Writer:
    """The torch.fx graph as it grows, and the module that holds its state."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.graph = torch.fx.Graph()
        self.root = nn.Module()
        self.values: dict[Node, torch.fx.Node] = {}

    def add_input(self, node: Node, binding: Binding | None) -> None:
        if not isinstance(binding, StateBinding):
            self.values[node] = self.graph.placeholder(node.name)
            return
        tensor = binding.tensor
        value = tensor_to_torch(tensor.detach()).clone().to(self.device)
        if tensor.requires_grad:
            self.root.register_parameter(node.name, nn.Parameter(value))
        else:
            self.root.register_buffer(node.name, value)
        self.values[node] = self.graph.get_attr(node.name)

    def add(self, node: Node, source: Graph) -> None:
        if node.op == "get_attr":
            self._add_constant(node, source.constants[node.target])
        elif node.op == "call_function":
            self._add_op(node)
        elif node.op == "output":
            self.graph.output(map_arg(node.args[0], self.values.__getitem__))

    def _add_constant(self, node: Node, array: Any) -> None:
        value = torch.from_numpy(np.array(array)).to(self.device)
        self.root.register_buffer(node.name, value)
        self.values[node] = self.graph.get_attr(node.name)

    def _add_op(self, node: Node) -> None:
        op = node.target
        args = map_arg(node.args, self.values.__getitem__)

        def call(function: Any, args: Any, kwargs: dict[str, Any]) -> torch.fx.Node:
            new = self.graph.call_function(function, args, kwargs)
            new.meta.update({k: v for k, v in node.meta.items() if k in ("phase", "stack_trace")})
            return new

        if op.name in TORCH_OPS:
            params = dict(node.kwargs)
            if "dtype" in params:  # by name: generated code must be able to print it
                params["dtype"] = node.meta["tensor_meta"].dtype.name
            if op.name in CREATING:
                params["device"] = str(self.device)
            self.values[node] = call(TORCH_OPS[op.name], args, params)
            return
        why = "it has no scalar definition"
        if op.kind == "elementwise" and op.scalar is not None:
            metas = [a.meta["tensor_meta"] if isinstance(a, Node) else type(a) for a in node.args]
            try:
                vocabulary = TorchVocabulary(call, self.device)
                self.values[node] = describe(op, args, metas, vocabulary)
                return
            except ScalarError as error:
                why = str(error)
        raise ConversionError(
            f"op {op.name} (of {node.stack_trace or node.name}) has no counterpart in PyTorch: "
            f"{why}; give it a line in TORCH_OPS of tinytorch/fx/convert/torch_ops.py"
        )
