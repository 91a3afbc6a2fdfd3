"""Where the code of a model stops gradients: `detach()`, `torch.no_grad()`.

A graph in core ATen ops says nothing of it. `torch.export` keeps a region without gradients as a
graph inside the graph; when that is taken apart, the region is gone and a `detach` is an alias. So

1. the exported graph runs once on the example with gradients recorded, and each value is asked
   whether it requires one;
2. where an op reads a value that requires none, it reads `stop_gradient` of it: an operator of our
   own, which no decomposition takes apart;
3. when the graph is in core ops, each of these is a `detach`, or is left out where nothing that
   it depends on can have a gradient.

Ops that write the value, or return a view of it, go on to read the value itself: a copy would lose
the write. A value that has a history and is written where none is recorded keeps the old one in
PyTorch; functional code cannot say that, so it is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from tinytorch.fx.capture.comparison import is_inexact
from tinytorch.fx.capture.real_run import RUN_EAGERLY, of_reason
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.diagnosis.reasons import Reason, calling_line, is_out_of_memory, line_of
from tinytorch.fx.semantics.effects import effects

aten = torch.ops.aten
REGIONS = (
    torch.ops.higher_order.wrap_with_set_grad_enabled,
    torch.ops.higher_order.wrap_with_autocast,
)
STOPS = (aten.detach.default, aten.detach_.default, *REGIONS)
WRITTEN = Reason(
    "a tensor that has a gradient is written where none is recorded: the gradient would be that of "
    "the value before",
    "write a copy that is made where none is recorded either (x = x.detach().clone()), or let the "
    "write be recorded",
)
HIDDEN = Reason(
    "torch.no_grad() or torch.enable_grad() inside torch.autocast: torch.export loses it",
    "enter autocast inside of no_grad, or write detach()",
)
FAILS = "the exported graph fails on the example while gradients are recorded"


@torch.library.custom_op("tinytorch::stop_gradient", mutates_args=())
def stop_gradient(x: Tensor) -> Tensor:
    """A copy of x without a gradient; it is in a graph only during decomposition."""
    return x.clone()


@stop_gradient.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


MARK = torch.ops.tinytorch.stop_gradient.default


def mark_stopped_gradients(exported: Any, inputs: Any) -> None:
    """Write into an exported graph, before its decomposition, where gradients stop.

    Args:
        exported: a `torch.export.ExportedProgram`, not decomposed.
        inputs: those that it was exported with.

    Raises:
        CaptureError: it cannot run with gradients recorded, or writes a value behind their back.
    """
    module = exported.graph_module
    if not any(n.target in STOPS for n in module.graph.nodes if n.op == "call_function"):
        return
    run = _Recorder(module)
    try:
        with torch.enable_grad():
            run.run(*_values(exported, inputs))
    except CaptureError:
        raise
    except Exception as error:  # a graph may fail in any way
        if is_out_of_memory(error):
            raise
        raise of_reason(CaptureError, FAILS, RUN_EAGERLY, error) from error
    _mark(run)


def detach_stopped_gradients(module: GraphModule) -> None:
    """Make a `detach` of each mark in a decomposed graph, where a gradient could come to it."""
    reached = _reached_by_gradients(module)
    detached: dict[Node, Node] = {}
    for node in module.graph.find_nodes(op="call_function", target=MARK):
        source = node.args[0]
        if source in reached:
            node.target = aten.detach.default
            source = detached.setdefault(source, node)
        if source is not node:
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
    module.recompile()


class RegionsSeen(TorchFunctionMode):
    """Refuses in a forward that is exported what `torch.export` does not show of its regions.

    Raises:
        CaptureError: recording is switched on or off inside autocast.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._set_grad_enabled and args[0] != torch.is_grad_enabled():
            depth = torch.autocast_increment_nesting() - 1
            torch.autocast_decrement_nesting()
            if depth:
                raise CaptureError.because(replace(HIDDEN, line=calling_line()))
        return func(*args, **(kwargs or {}))


def _values(exported: Any, inputs: Any) -> list[Any]:
    """What the flat graph takes: copies that require gradients, but for the buffers."""
    state = {**exported.constants, **exported.state_dict}
    given = iter(tree_leaves(inputs))
    trained = set(exported.graph_signature.inputs_to_parameters.values())
    values = []
    for spec in exported.graph_signature.input_specs:
        value = next(given) if spec.target is None else state[spec.target]
        if isinstance(value, Tensor):
            wanted = spec.target is None or (spec.target in trained and value.requires_grad)
            value = value.detach().clone()
            # the copy of a leaf may be written in place
            value = value.requires_grad_().clone() if wanted and is_inexact(value) else value
        values.append(value)
    return values


class _Recorder(torch.fx.Interpreter):
    """Runs a graph, and the regions in it, with gradients recorded.

    Attributes:
        without_gradient: of each node those inputs that required no gradient when it read them.
        regions: the same of the regions in it that have run.
        outer: of a region, that around it.
    """

    def __init__(self, module: GraphModule, outer: _Recorder | None = None) -> None:
        super().__init__(module)
        self.without_gradient: dict[Node, list[Node]] = {}
        self.regions: list[_Recorder] = []
        self.outer = outer

    def run_node(self, n: Node) -> Any:
        inputs = {each: self.env[each] for each in n.all_input_nodes}
        self.without_gradient[n] = [
            each
            for each, value in inputs.items()
            if isinstance(value, Tensor) and is_inexact(value) and not value.requires_grad
        ]
        self._check_writes(n)
        result = super().run_node(n)
        if torch.is_grad_enabled():
            return result
        return tree_map(lambda value: _without_history(value, inputs.values()), result)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in REGIONS:
            args = tree_map(self._recorded, args)
        return super().call_function(target, args, kwargs)

    def _recorded(self, argument: Any) -> Any:
        if not isinstance(argument, GraphModule):
            return argument
        region = _Recorder(argument, self)
        self.regions.append(region)
        return region.run

    def _check_writes(self, node: Node) -> None:
        for target in () if node.target in REGIONS else effects(node).writes:
            value = self.env[target]
            if torch.is_grad_enabled() and value.requires_grad:
                continue
            storage = value.untyped_storage()._cdata
            if any(x.untyped_storage()._cdata == storage for x in self._with_history()):
                raise CaptureError.because(replace(WRITTEN, line=line_of(node)))

    def _with_history(self) -> Iterator[Tensor]:
        """The values that are still read, here or around this region, and require gradients."""
        for value in self.env.values():
            if isinstance(value, Tensor) and value.requires_grad:
                yield value
        if self.outer is not None:
            yield from self.outer._with_history()


def _without_history(value: Any, inputs: Collection[Any]) -> Any:
    """A value of a region without gradients: PyTorch says of a view made there that it requires
    one, though none goes on from it. What was written in place is the input, and keeps its own."""
    if not isinstance(value, Tensor) or any(value is each for each in inputs):
        return value
    return value.detach()


def _mark(run: _Recorder) -> None:
    """Insert the marks. The names of the results in the signature follow, by a hook of export's.

    What goes out of a region may be written after it, and has marks where it is read.
    """
    module: Any = run.module
    graph = module.graph
    for node in graph.nodes:  # export forgets readers that nothing reads
        for each in node.all_input_nodes:
            each.users.setdefault(node)
    for node, values in run.without_gradient.items():
        if node.target in REGIONS or (node.op == "output" and run.outer is not None):
            continue
        found = effects(node)
        kept = () if node.op == "output" else {*found.writes, *found.views}
        for value in values:
            if value not in kept:
                with graph.inserting_before(node):
                    mark = graph.call_function(MARK, (value,))
                mark.meta = dict(value.meta)
                node.replace_input_with(value, mark)
    module.recompile()
    for region in run.regions:
        _mark(region)


def _reached_by_gradients(module: GraphModule) -> set[Node]:
    """The nodes that depend on an input or a trained parameter by numbers, and through no mark."""
    trained = {name for name, p in module.named_parameters(remove_duplicate=False)
               if p.requires_grad}  # fmt: skip
    reached: set[Node] = set()
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and not is_inexact(value):
            continue
        is_source = node.op == "placeholder" or node.target in trained
        inputs = () if node.target is MARK else node.all_input_nodes
        if is_source or any(each in reached for each in inputs):
            reached.add(node)
    return reached
