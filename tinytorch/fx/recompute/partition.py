"""A joint graph as two: a forward that also returns what it keeps, and a backward that takes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import Node
from torch.fx.graph import CodeGen

from tinytorch.fx.capture.joint import JointGraph
from tinytorch.fx.capture.slots import (
    BATCH,
    BUFFER,
    GRADIENT,
    INPUT_GRADIENT,
    OUTPUT,
    PARAMETER,
    TANGENT,
    Slot,
)
from tinytorch.fx.semantics.semantics import results
from tinytorch.graph.recompute.problem import is_forward


@dataclass
class Partition:
    """The two graphs. Both take one list, which they empty, and return a list.

    Attributes:
        forward: from all inputs but tangents to outputs, new buffers, and what is kept.
        backward: from what is kept, `kept_slots` and tangents to gradients.
        inputs: of the forward.
        outputs: of the forward, without what is kept; those of the model first.
        tangents: for which outputs, by position, the backward takes a gradient.
        kept_outputs: for each kept value its position among the outputs, if it is one; else None.
        kept_inputs: positions of the inputs that the backward reads.
        written: positions of the buffers that the forward gives new values for.
        gradients: for each gradient that the backward returns the position of its input.
        sources: for each of them the outputs, by position, from which it comes.
    """

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule
    inputs: list[Slot]
    outputs: list[Slot]
    tangents: list[int]
    kept_outputs: list[int | None]
    kept_inputs: list[int]
    written: list[int]
    gradients: list[int]
    sources: list[set[int]]
    _without: dict[frozenset[int], torch.fx.GraphModule] = field(default_factory=dict)

    def backward_without(self, unused: frozenset[int]) -> torch.fx.GraphModule:
        """The backward where nothing is computed from some outputs, by position; it is kept.

        It does not read their gradients. As zeros they would go through derivatives that may be
        infinite, and 0 times infinity is no 0. What comes from them alone is left out, and is None
        among the results.
        """
        if not unused:
            return self.backward
        if unused not in self._without:
            nodes = self.backward.graph.find_nodes(op="placeholder")
            last = nodes[len(nodes) - len(self.tangents) :]
            tangents = dict(zip(last, self.tangents, strict=True))
            self._without[unused] = _without(self.backward, tangents, unused)
        return self._without[unused]


class BoxedCodeGen(CodeGen):
    """Code for a function of one list, which is emptied: each argument dies after its last use."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **_: Any) -> str:
        names = [v.split("=")[0].split(":")[0].strip() for v in free_vars if v != "self"]
        taken = "".join(f"\n    {name} = arguments.pop(0)" for name in names)
        return f"def {self._func_name}(self, arguments){maybe_return_annotation}:{taken}"


def partition(joint: JointGraph) -> Partition:
    """Partition a joint graph between its phases, unchanged: what crosses is kept."""
    module = joint.module
    inputs = [s for s in joint.inputs if s.role != TANGENT]
    outputs = [s for role in (OUTPUT, BUFFER) for s in joint.outputs if s.role == role]
    gradients = [s for s in joint.outputs if s.role in (GRADIENT, INPUT_GRADIENT)]
    result = dict(zip(joint.outputs, results(module.graph), strict=True))
    placeholders = dict(zip(joint.inputs, module.graph.find_nodes(op="placeholder"), strict=True))
    crossing = _crossing(module.graph, [result[s] for s in gradients])
    kept = [n for n in crossing if n.op != "placeholder"]
    given = {placeholders[s]: i for i, s in enumerate(inputs)}
    kept_inputs = [n for n in crossing if n in given]
    tangents = [placeholders[s] for s in joint.inputs if s.role == TANGENT]
    produced = [result[s] for s in outputs]
    names = [Slot(OUTPUT, s.name) for s in joint.inputs if s.role == TANGENT]
    differentiated = [outputs.index(name) for name in names]
    sources = _sources(module.graph, dict(zip(tangents, differentiated, strict=True)))
    return Partition(
        _part(module, list(given), True, [*produced, *kept]),
        _part(module, [*kept, *kept_inputs, *tangents], False, [result[s] for s in gradients]),
        inputs,
        outputs,
        differentiated,
        [produced.index(n) if n in produced else None for n in kept],
        [given[n] for n in kept_inputs],
        [inputs.index(s) for s in outputs if s.role == BUFFER],
        [inputs.index(_differentiated(s)) for s in gradients],
        [sources[result[s]] for s in gradients],
    )


def _sources(graph: torch.fx.Graph, tangents: dict[Node, int]) -> dict[Node, set[int]]:
    """For each node the outputs from whose gradients it is computed."""
    found: dict[Node, set[int]] = {}
    for node in graph.nodes:
        found[node] = {tangents[node]} if node in tangents else set()
        found[node].update(*(found[n] for n in node.all_input_nodes))
    return found


def _without(
    backward: torch.fx.GraphModule, tangents: dict[Node, int], unused: frozenset[int]
) -> torch.fx.GraphModule:
    """A backward without what comes from some tangents alone; where that meets others it is 0."""
    sources = _sources(backward.graph, tangents)
    zero = {node for node, found in sources.items() if found and found <= unused}
    graph = torch.fx.Graph()
    graph.set_codegen(BoxedCodeGen())
    copies: dict[Node, Node] = {}

    def copied(node: Node) -> Node:
        if node not in zero:
            return copies[node]
        like: Tensor = node.meta["val"]
        return graph.call_function(
            _zeros, (tuple(like.shape), like.stride(), like.dtype, like.device)
        )

    for node in backward.graph.nodes:
        if node.op == "placeholder" or (node not in zero and node.op != "output"):
            copies[node] = graph.node_copy(node, copied)
    graph.output([None if n in zero else copies[n] for n in results(backward.graph)])
    return torch.fx.GraphModule(backward, graph)


def _zeros(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()


def _differentiated(gradient: Slot) -> Slot:
    """The input that a gradient is of."""
    return Slot(PARAMETER if gradient.role == GRADIENT else BATCH, gradient.name)


def _crossing(graph: torch.fx.Graph, gradients: list[Node]) -> list[Node]:
    """What the backward reads and does not compute."""
    read: dict[Node, None] = {}
    for node in graph.nodes:
        if node.op == "call_function" and not is_forward(node):
            read.update(dict.fromkeys(node.all_input_nodes))
    read.update(dict.fromkeys(gradients))
    return [n for n in graph.nodes if n in read and _comes_from_forward(n)]


def _comes_from_forward(node: Node) -> bool:
    return is_forward(node) or (node.op == "placeholder" and node.meta.get("role") != TANGENT)


def _part(
    module: torch.fx.GraphModule, inputs: list[Node], forward: bool, returned: list[Node]
) -> torch.fx.GraphModule:
    """The calls of one phase as a graph of their own."""
    graph = torch.fx.Graph()
    graph.set_codegen(BoxedCodeGen())
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in module.graph.nodes:
        if node.op == "get_attr" or (node.op == "call_function" and is_forward(node) == forward):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[n] for n in returned])
    return torch.fx.GraphModule(module, graph)
