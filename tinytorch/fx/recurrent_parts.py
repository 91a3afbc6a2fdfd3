"""Recurrent layers in a graph of Dynamo's: they stay whole, and what is around them is compiled.

PyTorch would unroll them over the sequence, into thousands of operators; its own kernels for them
are better than what a compiler makes of that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

RECURRENT: tuple[Any, ...] = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
RECURRENT_REASON = "recurrent layers stay whole, on PyTorch's kernels"
Compile = Callable[[GraphModule, tuple[Any, ...]], Callable[..., Any]]


def is_recurrent(node: Node) -> bool:
    """The node is a whole recurrent layer, over the sequence."""
    return node.op == "call_function" and node.target in RECURRENT


def compile_around_recurrent(module: GraphModule, compile_part: Compile) -> GraphModule:
    """The module with its parts between recurrent layers compiled, each when it is first called."""
    numbers: dict[Node, int] = {}
    number = 0
    for node in module.graph.nodes:
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and is_recurrent(source):  # a layer's results, one by one
            numbers[node] = numbers[source]
            continue
        number += is_recurrent(node)
        numbers[node] = number
        number += is_recurrent(node)
    split: GraphModule = split_module(module, None, numbers.__getitem__)  # type: ignore[arg-type]
    for name, part in list(split.named_children()):
        if isinstance(part, GraphModule) and _can_be_compiled(part):
            setattr(split, name, _Part(part, compile_part))
    return split


def _can_be_compiled(part: GraphModule) -> bool:
    """It computes something, and no recurrent layer."""
    calls = [n for n in part.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    work = [n for n in calls if n.target is not operator.getitem]
    return bool(work) and not any(map(is_recurrent, work))


class _Part(nn.Module):
    """A part of a graph, compiled for the inputs that it gets; for others it is compiled anew."""

    def __init__(self, part: GraphModule, compile_part: Compile) -> None:
        super().__init__()
        self.part, self.compile_part = part, compile_part
        output = part.graph.find_nodes(op="output")[0]
        self.is_single = not isinstance(output.args[0], tuple)
        if self.is_single:  # AOTAutograd takes tuples
            output.args = ((output.args[0],),)
            part.recompile()
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def forward(self, *inputs: Any) -> Any:
        """What the part computes."""
        key = tuple(map(_kind, inputs))
        if key not in self._compiled:
            examples = tuple(map(_as_leaf, inputs))
            self._compiled[key] = self.compile_part(self.part, examples)
        results = self._compiled[key](*inputs)
        return results[0] if self.is_single else results


def _kind(value: Any) -> Any:
    """What a part is compiled for: a number itself, of a tensor all but its values."""
    if not isinstance(value, Tensor):
        return value
    return value.dtype, value.shape, value.stride(), value.requires_grad


def _as_leaf(value: Any) -> Any:
    """A tensor as an input of a graph of its own."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)
