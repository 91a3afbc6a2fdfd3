"""Which nodes of a PyTorch graph TinyTorch can run, found out by trying each on shapes alone."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupport

from tinytorch.dispatch import wrap
from tinytorch.errors import TinyTorchError
from tinytorch.fx.convert.aten import ATEN
from tinytorch.fx.convert.aten_module import aten_name, call_node
from tinytorch.fx.convert.exchange import meta_from_torch
from tinytorch.graph.trace import trace


def unsupported_reason(node: Node) -> str | None:
    """Why TinyTorch cannot run a call_function node; None if it can.

    The node is traced by itself, on tensors of the shapes and dtypes that its meta "val" says; what
    it makes must have the shapes and dtypes that PyTorch says.
    """
    if node.op != "call_function":
        return f"it is a {node.op} node"
    if node.target is not operator.getitem:
        name = aten_name(node.target)
        if name is None:
            return f"{node.target} is no operator"
        if name not in ATEN:
            return f"{name if '::' in name else f'aten::{name}'} is not in our table"
    try:
        return _try(node)
    except (TinyTorchError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        return f"{type(error).__name__}: {error}"


def _try(node: Node) -> str | None:
    """Trace one node; what is wrong with what it makes."""
    inputs = node.all_input_nodes
    for value in (*inputs, node):
        problem = _unusable(value.meta.get("val"))
        if problem:
            return f"{value.name} {problem}"
    if node.target is operator.getitem:
        return None  # of a tuple that another node was tried on
    if node.target is torch.ops.aten.as_strided.default:
        source = inputs[0].meta["val"]
        if not source.is_contiguous() or source.storage_offset():
            return f"{inputs[0].name} has strides {source.stride()}, and ours are in order"
    examples = [empty_example(value.meta["val"]) for value in inputs]

    def call(*tensors: Any) -> Any:
        env = dict(zip(inputs, tensors, strict=True))
        args = torch.fx.node.map_arg(node.args, env.__getitem__)
        kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
        return call_node(node, args, kwargs)

    # what comes out is in the graph's output, one node for each tensor
    results = trace(call, *examples).graph.output_node().args[0]
    expected = [v for v in _leaves(node.meta.get("val")) if v is not None]
    for result, wanted in zip(results, expected, strict=False):
        if result.meta["tensor_meta"] is not meta_from_torch(wanted):
            return f"it gives {result.meta['tensor_meta']}, not {meta_from_torch(wanted)}"
    return None


def _leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _unusable(value: Any) -> str | None:
    """Why a value cannot be ours; None if it can."""
    for leaf in _leaves(value):
        if leaf is None or isinstance(leaf, (int, float, bool)):
            continue
        if not isinstance(leaf, torch.Tensor):
            return f"is a {type(leaf).__name__} and no tensor of known shape"
        if not all(isinstance(n, int) for n in leaf.shape):
            return f"has the open shape {tuple(leaf.shape)}"
        if leaf.device.type != "cpu" or leaf.layout is not torch.strided:
            return f"is on {leaf.device} in layout {leaf.layout}"
        meta_from_torch(leaf)
    return None


def empty_example(value: Any) -> Any:
    """A tensor of a fake one's shape and dtype, which takes no memory; a number as it is."""
    if isinstance(value, (tuple, list)):
        return type(value)(empty_example(v) for v in value)
    if not isinstance(value, torch.Tensor):
        return value
    meta = meta_from_torch(value)
    return wrap(np.broadcast_to(np.zeros((), meta.dtype.dtype), meta.shape), meta)


class Support(OperatorSupport):
    """`unsupported_reason` in the form that PyTorch's partitioner asks.

    Attributes:
        reasons: for each node that was asked for, why it is not supported; None if it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[Node, str | None] = {}
        self._known: dict[Any, str | None] = {}

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node not in self.reasons:
            self.reasons[node] = self._reason(node)
        return self.reasons[node] is None

    def _reason(self, node: Node) -> str | None:
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            taken_from = node.args[0]
            supported = self.is_node_supported({}, taken_from)
            return None if supported else f"{taken_from.name} is not supported"
        key = self._key(node)
        if key not in self._known:
            self._known[key] = unsupported_reason(node)
        return self._known[key]

    @staticmethod
    def _key(node: Node) -> Any:
        """Nodes of one key are alike: the target, its arguments, and shapes in place of tensors."""

        def describe(used: Node) -> str:
            value = used.meta.get("val")
            if isinstance(value, torch.Tensor):
                return f"{value.dtype}{tuple(value.shape)}{value.device}"
            return used.name

        args = torch.fx.node.map_arg((node.args, node.kwargs), describe)
        return (node.target, repr(args))
