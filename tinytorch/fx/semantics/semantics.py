"""What passes may ask of graphs of torch.fx: ATen graphs, and those of `symbolic_trace`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.fx
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tinytorch.fx.diagnosis.reasons import line_of
from tinytorch.fx.optimize.devices import devices_of, generators_kept, seed_generators
from tinytorch.fx.semantics.buffers import buffers_kept
from tinytorch.fx.semantics.costs import cost
from tinytorch.fx.semantics.effects import effects
from tinytorch.fx.semantics.op_names import COMMUTATIVE, build, signature
from tinytorch.fx.semantics.replay import replay
from tinytorch.fx.semantics.storages import find_storages
from tinytorch.graph.ir import GraphError
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.semantics import Cost, Semantics
from tinytorch.graph.storages import Storages

#: How tracers and `constant` call the tensors that belong to a graph and not to the model.
CONSTANTS = ("_tensor_constant", "_lifted_tensor_constant", "lifted_tensor_", "folded_")
SEED = 0  # of each run, so that dropout draws the same numbers in all of them


class TorchSemantics(Semantics):
    """The answers for torch.fx.

    Args:
        frozen: parameters and buffers do not change any more, so what is computed from them alone
            is constant. For inference.
    """

    node_type = Node
    random_state_bytes = 5056  # of the CPU's generator

    def __init__(self, frozen: bool = False) -> None:
        self.frozen = frozen

    # -- of a node ---------------------------------------------------------------------------------

    def is_pure(self, node: Node) -> bool:
        return effects(node).pure

    def is_random(self, node: Node) -> bool:
        return effects(node).random

    def mutates(self, node: Node) -> Sequence[Node]:
        return effects(node).writes

    def aliases(self, node: Node) -> Sequence[Node]:
        return effects(node).views

    def is_commutative(self, node: Node) -> bool:
        """The result must lie in memory alike, too, which the first operand decides in case."""
        if self.op_name(node) not in COMMUTATIVE:
            return False
        values = [self.meta(a) for a in node.args[:2] if isinstance(a, Node)]
        layouts = {None if v is None else (str(v.shape), str(v.stride())) for v in values}
        return len(layouts) == 1

    def region(self, node: Node) -> Hashable:
        """The node that last switched gradients on or off."""
        switches = node.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
        before = [n for n in switches if n < node]
        return before[-1] if before else None

    def is_closed(self, graph: torch.fx.Graph) -> bool:
        """A captured joint graph or step: its outputs are detached already."""
        return any(n.meta.get("phase", "forward") != "forward" for n in graph.nodes)

    def cost(self, node: Node) -> Cost:
        return cost(node)

    def meta(self, node: Node) -> Tensor | None:
        value = node.meta.get("val", node.meta.get("example_value"))
        return value if isinstance(value, Tensor) else None

    def interchangeable(self, a: Node, b: Node) -> bool:
        """Strides count too: what can be viewed depends on them."""
        m, n = self.meta(a), self.meta(b)
        return m is not None and n is not None and _described(m) == _described(n)

    def signature(self, node: Node) -> tuple[str, tuple[Any, ...], dict[str, Any]] | None:
        return signature(node)

    def op_name(self, node: Node) -> str | None:
        found = signature(node)
        return found.name if found is not None else None

    def kind(self, node: Node) -> str:
        target: Any = node.target
        if not isinstance(target, OpOverload):
            return "movement" if target is operator.getitem else node.op
        if target.overloadpacket in flop_registry:
            return "contraction"
        if torch.Tag.pointwise in target.tags:
            return "elementwise"
        if torch.Tag.reduction in target.tags:
            return "reduction"
        if effects(node).views:
            return "movement"
        if effects(node).random:
            return "random"
        return "creation" if not node.all_input_nodes else "other"

    def evaluate(self, node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target: Any = node.target
        with torch.no_grad():
            return target(*args, **kwargs)

    def replay(self, first: Node, again: Node) -> Node:
        """Replay a random op from the state that the generator had."""
        return replay(first, again)

    def user_line(self, node: Node) -> str:
        return str(line_of(node) or "")

    # -- of a graph --------------------------------------------------------------------------------

    def call(
        self, graph: torch.fx.Graph, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Node:
        target, operands = build(name, args, kwargs)
        values = torch.fx.node.map_arg(operands, lambda n: n.meta["val"])
        with _mode_of(graph), torch.no_grad():
            try:
                value = target(*values)
            except (RuntimeError, ValueError):  # strides that cannot be viewed in this shape
                if target is not torch.ops.aten.view.default:
                    raise
                target = torch.ops.aten.reshape.default
                value = target(*values)
        node = graph.call_function(target, tuple(operands))
        node.meta["val"] = value
        return node

    def constant(self, graph: torch.fx.Graph, value: Any) -> Node:
        owner = _owner(graph)
        number = 0
        while hasattr(owner, f"folded_{number}"):
            number += 1
        owner.register_buffer(f"folded_{number}", value)
        node = graph.get_attr(f"folded_{number}")
        node.meta["val"] = _mode_of(graph).from_tensor(value, static_shapes=True)
        return node

    def constant_value(self, node: Node) -> Any:
        """The constant value of a node; of parameters and buffers only if frozen; of constants
        written in the code always."""
        value, name = _attribute(node), str(node.target).rpartition(".")[2]
        is_constant = self.frozen or name.startswith(CONSTANTS)
        return value if isinstance(value, Tensor) and is_constant else None

    def fused(self, graph: torch.fx.Graph) -> Any:
        return FusedFunction(graph)

    def run(self, graph: torch.fx.Graph, inputs: Sequence[Any]) -> list[Any]:
        """Outputs, then the buffers that the graph writes, then the state of the generator."""
        with torch.no_grad(), untouched(graph) as changed:
            results = _execute(graph, [_own(x) for x in inputs])
            everything = [*tree_leaves(results), *changed(), torch.get_rng_state()]
            return [to_numpy(v) if isinstance(v, Tensor) else v for v in everything]

    def gradients(self, graph: torch.fx.Graph, inputs: Sequence[Any], seed: int) -> list[Any]:
        """The gradients of each floating-point input and each parameter; or only for these, where
        an op on the inputs has no gradient (it writes a view or into `out=`)."""
        try:
            return self._gradients(graph, inputs, seed, of_inputs=True)
        except RuntimeError:
            return self._gradients(graph, inputs, seed, of_inputs=False)

    def _gradients(
        self, graph: torch.fx.Graph, inputs: Sequence[Any], seed: int, of_inputs: bool
    ) -> list[Any]:
        tensors = [_own(x) for x in inputs]
        leaves = [
            t.requires_grad_()
            for t in tensors
            if of_inputs and isinstance(t, Tensor) and t.is_floating_point()
        ]
        if not self.frozen:
            leaves += [p for p in _owner(graph).parameters() if p.requires_grad]
        generator = torch.Generator().manual_seed(seed)
        with torch.enable_grad(), untouched(graph):
            given = [t * 1 if any(t is leaf for leaf in leaves) else t for t in tensors]
            results = tree_leaves(_execute(graph, given))
            sources = [y for y in results if isinstance(y, Tensor) and y.requires_grad]
            if not sources or not leaves:
                return []
            weights = [torch.randn(y.shape, generator=generator).to(y) for y in sources]
            found = torch.autograd.grad(sources, leaves, weights, allow_unused=True)
        return [None if g is None else to_numpy(g) for g in found]

    def sample(self, graph: torch.fx.Graph, seed: int) -> list[Any]:
        """The example for seed 0; others have other floats of the same signs and scale."""
        generator = torch.Generator().manual_seed(seed)
        return [_value(n, seed, generator) for n in graph.find_nodes(op="placeholder")]

    def storages(self, graph: torch.fx.Graph, inputs: Sequence[Any] | None = None) -> Storages:
        """The storages of a graph, by interpreting it on fake tensors.

        Args:
            inputs: like its inputs; by default what `node.meta["val"]` of the placeholders says.

        Raises:
            CaptureError: nothing is known of an input, or the memory of a value depends on an open
                dimension.
        """
        return find_storages(_owner(graph), graph, inputs)

    def map_arg(self, argument: Any, function: Callable[[Node], Any]) -> Any:
        return torch.fx.node.map_arg(argument, function)

    def copy(self, graph: torch.fx.Graph) -> torch.fx.Graph:
        """A copy with a module of its own, which shares parameters, buffers and submodules."""
        new = torch.fx.Graph()
        result = new.graph_copy(graph, {})
        new.output(result).meta = dict(graph.output_node().meta)
        new.set_codegen(graph._codegen)  # how the module is called
        owner = graph.owning_module
        module = torch.fx.GraphModule(owner if owner is not None else {}, new)
        if owner is not None:  # also what the graph does not use any more: gradients are by name
            for kind in ("_parameters", "_buffers", "_modules"):
                getattr(module, kind).update(getattr(owner, kind))
        return new

    def key(self, value: Any) -> Hashable:
        if isinstance(value, slice):
            return (slice, *map(self.key, (value.start, value.stop, value.step)))
        return super().key(value) if value.__hash__ is not None else id(value)


def results(graph: torch.fx.Graph) -> list[Any]:
    """The nodes that a captured graph returns."""
    returned: Any = graph.output_node().args[0]
    return list(returned)


def _described(tensor: Tensor) -> tuple[Any, ...]:
    # as text: to compare open sizes as numbers would fix them
    return str(tensor.shape), str(tensor.stride()), tensor.dtype, tensor.device


class FusedFunction:
    """A function that computes what a graph does from its placeholders: a target for one node."""

    is_pure = True

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.module = torch.fx.GraphModule({}, graph)
        self.__name__ = "fused"
        self.__module__ = __name__

    def __call__(self, *inputs: Any) -> Any:
        return self.module(*inputs)


def to_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values of a tensor; NumPy has no bfloat16, which becomes float32."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy().copy()


def _owner(graph: torch.fx.Graph) -> nn.Module:
    if graph.owning_module is None:
        raise GraphError(
            "the graph belongs to no module: make one, torch.fx.GraphModule(root, graph)"
        )
    return graph.owning_module


def _execute(graph: torch.fx.Graph, inputs: Sequence[Any]) -> Any:
    seed_generators(SEED, devices_of(_owner(graph)))
    return torch.fx.Interpreter(_owner(graph), graph=graph).run(*inputs, enable_io_processing=False)


@contextmanager
def untouched(graph: torch.fx.Graph) -> Iterator[Callable[[], list[Tensor]]]:
    """Restore buffers of the graph's module and the generators after the block.

    Yields:
        A function that gives the buffers that have changed since.
    """
    buffers = _written_buffers(graph)
    before = [b.detach().clone() for b in buffers]

    def changed() -> list[Tensor]:
        pairs = zip(buffers, before, strict=True)
        return [new for new, old in pairs if not torch.equal(new, old)]

    with generators_kept(devices_of(_owner(graph))), buffers_kept(buffers):
        yield changed


def _written_buffers(graph: torch.fx.Graph) -> list[Tensor]:
    """The buffers that a run may write; all, where a module is called."""
    effectful = [n for n in graph.nodes if n.op not in ("placeholder", "output")]
    effectful = [n for n in effectful if not effects(n).pure]
    if not effectful:
        return []
    if any(n.op == "call_module" for n in effectful):
        return list(_owner(graph).buffers())
    written = Aliasing(graph, TorchSemantics()).written
    names = {str(n.target) for n in graph.find_nodes(op="get_attr") if n in written}
    return [b for name, b in _owner(graph).named_buffers(remove_duplicate=False) if name in names]


def _own(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _attribute(node: Node) -> Any:
    return operator.attrgetter(str(node.target))(_owner(node.graph))


def _mode_of(graph: torch.fx.Graph) -> FakeTensorMode:
    """The mode of the fake values of a graph."""
    for node in graph.nodes:
        for value in tree_leaves(node.meta.get("val")):
            if isinstance(value, FakeTensor):
                return value.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)


def _value(node: Node, seed: int, generator: torch.Generator) -> Any:
    example, meta = node.meta.get("example"), node.meta.get("val")
    if isinstance(example, Tensor):
        return example if seed == 0 else _like(example, generator)
    if not isinstance(meta, Tensor):
        return example if example is not None else meta
    shape = [n if isinstance(n, int) else n.node.hint for n in meta.shape]
    if not meta.is_floating_point():  # zero is a valid index
        return torch.zeros(shape, dtype=meta.dtype, device=meta.device)
    values = torch.randn(shape, generator=generator)
    return (values.abs() if seed % 2 == 0 else values).to(meta.dtype).to(meta.device)


def _like(example: Tensor, generator: torch.Generator) -> Tensor:
    """Other floats of the same signs and scale: a variance stays one."""
    if not example.is_floating_point():
        return example
    noise = torch.randn(example.shape, generator=generator).to(example)
    # of a state that begins with zeros the values are small and positive
    return example * (0.1 * noise).exp() + (example == 0) * noise.abs() * 1e-3
