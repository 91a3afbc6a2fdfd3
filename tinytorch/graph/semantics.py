"""`Semantics`: everything that a pass may ask of an op beyond the edges of the graph.

A pass is written against the methods of Node and Graph that torch.fx has too, and this. TinyTorch's
answers are here and come from the op table; those for another world's graphs are another
subclass, and the passes run there unchanged.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinytorch import ops
from tinytorch.autograd import grad
from tinytorch.dispatch import apply
from tinytorch.dtypes import TensorMeta, meta_of_array
from tinytorch.graph.fused import fused_op
from tinytorch.graph.interpret import Interpreter
from tinytorch.graph.ir import GraphError, Node, map_arg
from tinytorch.graph.lint import result_meta
from tinytorch.graph.pytree import tree_flatten
from tinytorch.graph.storages import AnyNode as AnyNode, Storages
from tinytorch.op import OPS, Op
from tinytorch.state import grad_mode
from tinytorch.tensor import Tensor

AnyGraph = Any  # of tinytorch.graph or of torch.fx


class Cost(NamedTuple):
    """The cost of a node.

    Attributes:
        flops: floating-point operations; a multiply-add counts as two.
        bytes: read and written at the least; a view moves none.
    """

    flops: int
    bytes: int


class Semantics(ABC):
    """The properties of nodes and graphs that a pass may ask for.

    Attributes:
        node_type: the class of the nodes.
        random_state_bytes: what must be kept to run a random op again with the same result; nothing
            where its seed is an input.
    """

    node_type: type = Node
    random_state_bytes: int = 0

    # -- of a node ---------------------------------------------------------------------------------

    @abstractmethod
    def is_pure(self, node: AnyNode) -> bool:
        """Whether a node only computes its value, so that it may be erased when unused."""

    @abstractmethod
    def is_random(self, node: AnyNode) -> bool:
        """Whether equal arguments may give different values: never merge or fold two of them."""

    @abstractmethod
    def mutates(self, node: AnyNode) -> Sequence[AnyNode]:
        """The inputs that it writes in place."""

    @abstractmethod
    def aliases(self, node: AnyNode) -> Sequence[AnyNode]:
        """The inputs whose memory its value may share."""

    @abstractmethod
    def is_commutative(self, node: AnyNode) -> bool:
        """Whether its first two arguments may be exchanged."""

    @abstractmethod
    def cost(self, node: AnyNode) -> Cost:
        """FLOPs and bytes."""

    @abstractmethod
    def meta(self, node: AnyNode) -> Any:
        """Shape and dtype of its value: an object with shape, dtype, nbytes; None if unknown."""

    def known_meta(self, node: AnyNode) -> Any:
        """`meta`, where nothing can be done without it.

        Raises:
            GraphError: it is unknown.
        """
        meta = self.meta(node)
        if meta is None:
            raise GraphError(
                f"node {node.name} has no shape and dtype; write them into the graph first, for a "
                f"graph of tinytorch.graph by ShapeProp(graph).run(...) on inputs or their metas"
            )
        return meta

    @abstractmethod
    def op_name(self, node: AnyNode) -> str | None:
        """The name that TinyTorch's op table has for what it computes; None if it has none."""

    @abstractmethod
    def kind(self, node: AnyNode) -> str:
        """elementwise, reduction, movement, contraction, ...: the kinds of the op table."""

    @abstractmethod
    def evaluate(self, node: AnyNode, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The value of a call_function node on these arguments."""

    def replay(self, first: AnyNode, again: AnyNode) -> AnyNode:
        """Make a second run of a random op draw what the first one drew; returns the node for it.

        By default equal seeds see to that.
        """
        return again

    def user_line(self, node: AnyNode) -> str:
        """The user's line that made it; empty if it is not known."""
        return node.meta.get("stack_trace") or ""

    # -- of a graph --------------------------------------------------------------------------------

    @abstractmethod
    def call(
        self, graph: AnyGraph, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> AnyNode:
        """A new node that computes the op of this name, with its meta."""

    @abstractmethod
    def constant(self, graph: AnyGraph, value: Any) -> AnyNode:
        """A new get_attr node for a value that never changes."""

    @abstractmethod
    def constant_value(self, node: AnyNode) -> Any:
        """The value of a get_attr node that never changes; None if it may change."""

    @abstractmethod
    def fused(self, graph: AnyGraph) -> Any:
        """A target for one node that computes what this graph does from its placeholders."""

    @abstractmethod
    def run(self, graph: AnyGraph, inputs: Sequence[Any]) -> list[Any]:
        """The outputs as NumPy arrays, flat."""

    @abstractmethod
    def gradients(self, graph: AnyGraph, inputs: Sequence[Any], seed: int) -> list[Any]:
        """Gradients of the outputs, weighted at random, for each floating-point input."""

    @abstractmethod
    def sample(self, graph: AnyGraph, seed: int) -> list[Any]:
        """Values for the placeholders. Different seeds give different floats; positions stay."""

    def storages(self, graph: AnyGraph) -> Storages:
        """The memory that its values are in: by default that of the first input that they alias,
        and of their own where there is none."""
        found = Storages()
        for node in graph.nodes:
            if node.op == "output":
                found.held[node] = ()
            elif viewed := self.aliases(node):
                found.held[node] = found.held[viewed[0]]
            else:
                found.held[node] = (found.add(node, self.known_meta(node).nbytes),)
        return found

    def is_node(self, value: Any) -> bool:
        """Whether an argument is a node, not a number."""
        return isinstance(value, self.node_type)

    def signature(self, node: AnyNode) -> tuple[str, tuple[Any, ...], dict[str, Any]] | None:
        """The call of an op of the table that a node computes: name, operands and parameters."""
        name = self.op_name(node)
        return None if name is None else (name, tuple(node.args), dict(node.kwargs))

    def interchangeable(self, a: AnyNode, b: AnyNode) -> bool:
        """Whether one may replace the other, as far as shape and dtype go."""
        m, n = self.meta(a), self.meta(b)
        return m is not None and n is not None and (m.shape, m.dtype) == (n.shape, n.dtype)

    def region(self, node: AnyNode) -> Hashable:
        """The region of a node: equal nodes mean the same only within one: by default it is the
        whole graph."""
        return None

    def is_closed(self, graph: AnyGraph) -> bool:
        """Whether nobody differentiates its results: it has its own backward. By default no."""
        return False

    def map_arg(self, argument: Any, function: Callable[[AnyNode], Any]) -> Any:
        """The same nest of arguments, with `function(node)` in place of every node."""
        return map_arg(argument, function, self.node_type)

    def copy(self, graph: AnyGraph) -> AnyGraph:
        """A copy that can be changed without changing the graph."""
        return copy.deepcopy(graph)

    def key(self, value: Any) -> Hashable:
        """A key that is equal for arguments that mean the same. 2, 2.0 and True differ, as do 0.0
        and -0.0."""
        if isinstance(value, (tuple, list)):
            return (type(value), *map(self.key, value))
        if isinstance(value, dict):
            return (dict, *((k, self.key(v)) for k, v in sorted(value.items())))
        if isinstance(value, (bool, int, float, complex)):
            return (type(value), repr(value))
        return value  # type: ignore[no-any-return]


class TinyTorchSemantics(Semantics):
    """The answers of the op table."""

    def is_pure(self, node: AnyNode) -> bool:
        return node.op in ("call_function", "get_attr")

    def is_random(self, node: AnyNode) -> bool:
        return isinstance(node.target, Op) and node.target.random

    def mutates(self, node: AnyNode) -> Sequence[AnyNode]:
        return ()

    def aliases(self, node: AnyNode) -> Sequence[AnyNode]:
        if isinstance(node.target, Op) and node.target.view:
            return tuple(node.all_input_nodes)
        return ()

    def is_commutative(self, node: AnyNode) -> bool:
        return isinstance(node.target, Op) and node.target.commutative

    def cost(self, node: AnyNode) -> Cost:
        if node.op != "call_function":
            return Cost(0, 0)
        metas = [a.meta["tensor_meta"] for a in node.args if isinstance(a, Node)]
        shapes = [a.meta["tensor_meta"].shape if isinstance(a, Node) else () for a in node.args]
        out = node.meta["tensor_meta"]
        flops = node.target.flops(shapes, out.shape, node.kwargs)
        return Cost(flops, node.target.bytes_moved(metas, out))

    def meta(self, node: AnyNode) -> TensorMeta | None:
        return node.meta.get("tensor_meta")  # type: ignore[no-any-return]

    def op_name(self, node: AnyNode) -> str | None:
        return node.target.name if isinstance(node.target, Op) else None

    def kind(self, node: AnyNode) -> str:
        return node.target.kind if isinstance(node.target, Op) else node.op

    def evaluate(self, node: AnyNode, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return apply(node.target, *args, **kwargs)

    def call(
        self, graph: AnyGraph, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> AnyNode:
        node = graph.call_function(OPS[name], tuple(args), kwargs)
        node.meta["tensor_meta"] = result_meta(node)
        return node

    def constant(self, graph: AnyGraph, value: Any) -> AnyNode:
        name, number = "folded", 0
        while name in graph.constants:
            number += 1
            name = f"folded_{number}"
        array = np.array(value._data if isinstance(value, Tensor) else value)
        graph.constants[name] = array
        node = graph.get_attr(name)
        node.meta["tensor_meta"] = meta_of_array(array)
        return node

    def constant_value(self, node: AnyNode) -> Any:
        return Tensor.from_numpy(node.graph.constants[node.target])

    def fused(self, graph: AnyGraph) -> Any:
        return fused_op(graph)

    def run(self, graph: AnyGraph, inputs: Sequence[Any]) -> list[Any]:
        with grad_mode(False):
            leaves, _ = tree_flatten(Interpreter(graph).run(*map(Tensor.from_numpy, inputs)))
        return [np.array(v._data) if isinstance(v, Tensor) else v for v in leaves]

    def gradients(self, graph: AnyGraph, inputs: Sequence[Any], seed: int) -> list[Any]:
        tensors = [Tensor(x) for x in inputs]
        leaves = [t.requires_grad_() for t in tensors if t.dtype.is_floating_point]
        with grad_mode(True):
            return self._gradients_of(graph, tensors, leaves, seed)

    @staticmethod
    def _gradients_of(
        graph: AnyGraph, tensors: list[Tensor], leaves: list[Tensor], seed: int
    ) -> list[Any]:
        results, _ = tree_flatten(Interpreter(graph).run(*tensors))
        rng = np.random.default_rng(seed)
        weighted = [
            apply(ops.sum, y * Tensor(rng.standard_normal(y.shape), y.dtype),
                  dims=tuple(range(y.ndim)), keepdim=False)
            for y in results
            if isinstance(y, Tensor) and y.requires_grad
        ]  # fmt: skip
        if not weighted or not leaves:
            return []
        found = grad(weighted, leaves, allow_unused=True)
        return [None if g is None else np.array(g._data) for g in found]

    def sample(self, graph: AnyGraph, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        return [self._value(node, rng, seed) for node in graph.find_nodes(op="placeholder")]

    @staticmethod
    def _value(node: AnyNode, rng: np.random.Generator, seed: int) -> Any:
        """Values like the example's; without one, positive for even seeds, of any sign for odd."""
        meta, example = TINYTORCH.known_meta(node), node.meta.get("example")
        if not meta.dtype.is_floating_point:
            if example is not None:
                return example
            if any(TINYTORCH.is_random(user) for user in node.users):
                return rng.integers(-(2**63), 2**63, meta.shape)  # a seed
            return np.zeros(meta.shape, meta.dtype.dtype)  # zero is a valid index
        if seed == 0 and example is not None:
            return example
        values = rng.standard_normal(meta.shape)
        return np.asarray(np.abs(values) if seed % 2 == 0 else values, meta.dtype.dtype)


TINYTORCH = TinyTorchSemantics()
