"""Buffers whose old values a backward reads, and that the graph has overwritten by then.

`self.center = 0.9 * self.center + ...` gives a model another buffer, and what autograd has kept of
the old one stays as it was. A captured graph has one buffer and writes into it, and autograd
refuses the backward: "modified by an inplace operation". So where an op has autograd keep a buffer
that is written later, it reads a copy.

Which ops do so is known to PyTorch alone: the graph runs once on the example with gradients
recorded, and each tensor that is kept is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
import torch.fx
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from tinytorch.fx.capture.comparison import is_inexact
from tinytorch.fx.capture.stopped_gradients import REGIONS
from tinytorch.fx.optimize.devices import generators_kept
from tinytorch.fx.semantics.effects import effects

aten = torch.ops.aten


def keep_old_values(module: GraphModule, values: Sequence[Any]) -> None:
    """Have ops read a copy of a buffer whose value their gradient needs and the graph overwrites.

    Nothing is copied if gradients are switched off, or none needs an old value.

    Args:
        values: inputs of the graph. Those that are floats are taken to require gradients.
    """
    read, written = _read_and_written(module) if torch.is_grad_enabled() else (set(), set())
    if not any(_is_inexact(module, node) for node in read & written):
        return
    run = _KeptByAutograd(module, {str(node.target) for node in written})
    devices = {v.device for v in values if isinstance(v, Tensor)}
    hooks = torch.autograd.graph.saved_tensors_hooks(run.look_at, lambda kept: kept)
    try:
        with generators_kept(devices), torch.enable_grad(), hooks:
            run.run(*map(_trained_copy, values), enable_io_processing=False)
    except Exception:  # the comparison with the model, which follows, says why
        return
    copies: dict[tuple[Node, int], Node] = {}
    for reader, source, version, buffer in run.kept:
        if buffer._version != version:
            if (source, version) not in copies:
                copies[source, version] = _copy(module.graph, source, reader)
            reader.replace_input_with(source, copies[source, version])
    if copies:
        module.graph.lint()
        module.recompile()


class _Use(NamedTuple):
    """Inputs that a node reads, that it writes, and whose memory its value may share."""

    read: set[Node]
    written: set[Node]
    viewed: set[Node]


def _use(module: GraphModule, node: Node) -> _Use:
    inputs = set(node.all_input_nodes)
    if node.target not in REGIONS:
        found = effects(node)
        written = set(found.writes)
        return _Use(inputs - written, written, set(found.views) - written)
    position = next(i for i, x in enumerate(node.args) if isinstance(x, Node))
    region = attrgetter(str(node.args[position].target))(module)  # type: ignore[union-attr]
    inside = dict(zip(region.graph.find_nodes(op="placeholder"), node.args[position + 1 :],
                      strict=True))  # fmt: skip
    read, written = (
        {inside[each] for each in found if each in inside} for found in _read_and_written(region)
    )
    return _Use(read, written, set())


def _read_and_written(module: GraphModule) -> tuple[set[Node], set[Node]]:
    """The inputs and the state of a graph that it reads, and those that it writes."""
    roots: dict[Node, Node] = {}
    read, written = set[Node](), set[Node]()
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            first = effects(node).views  # of the same name
            roots[node] = roots[first[0]] if first else node
            continue
        use = _use(module, node)
        read |= {roots[each] for each in use.read if each in roots}
        written |= {roots[each] for each in use.written if each in roots}
        if shared := [each for each in use.viewed if each in roots]:
            roots[node] = roots[shared[0]]
    return read, written


def _is_inexact(module: GraphModule, node: Node) -> bool:
    value = attrgetter(str(node.target))(module) if node.op == "get_attr" else None
    return isinstance(value, Tensor) and is_inexact(value)


def _trained_copy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    own = value.detach().clone()
    return own.requires_grad_().clone() if is_inexact(own) else own  # no leaf: it may be written


class _KeptByAutograd(Interpreter):
    """Runs a graph, and finds what autograd keeps of its state.

    Args:
        written: names of what the graph writes: the run has copies of these.

    Attributes:
        kept: the node whose gradient needs a value, its input that is this value, and the tensor
            of the state whose memory this is, with its version.
    """

    def __init__(self, module: GraphModule, written: set[str]) -> None:
        super().__init__(module)
        self._own: dict[str, Tensor] = {}
        for name in written:
            value = attrgetter(name)(module)
            self._own[name] = value.detach().clone().requires_grad_(value.requires_grad)
        self._by_memory = {x.untyped_storage()._cdata: x for x in self._own.values()}
        self._running: Node | None = None
        self.kept: list[tuple[Node, Node, int, Tensor]] = []

    def run_node(self, n: Node) -> Any:
        self._running = n
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        own = self._own.get(target)
        return super().get_attr(target, args, kwargs) if own is None else own

    def look_at(self, kept: Tensor) -> Tensor:
        """Note a tensor that autograd keeps; the hook that packs it."""
        node, memory = self._running, kept.untyped_storage()._cdata
        buffer = self._by_memory.get(memory)
        if node is None or buffer is None:
            return kept
        read = _use(self.module, node).read  # type: ignore[arg-type]
        for source in node.all_input_nodes:
            value = self.env.get(source)
            is_it = isinstance(value, Tensor) and value.untyped_storage()._cdata == memory
            if is_it and source in read:
                self.kept.append((node, source, buffer._version, buffer))
        return kept


def _copy(graph: torch.fx.Graph, source: Node, reader: Node) -> Node:
    with graph.inserting_before(reader):
        node = graph.call_function(aten.clone.default, (source,))
    node.meta = {k: v for k, v in reader.meta.items() if k in ("phase", "stack_trace")}
    fake = source.meta["val"]
    with fake.fake_mode, torch.no_grad():
        node.meta["val"] = fake.clone()
    return node
