"""Reads products of batched matrices in a graph of either world.

The dimensions in front of those of the matrices may be merged into one, as PyTorch's trace of a
product has them. So what only divides those otherwise, or copies, is looked through: operands and
users of a node are those behind it.
"""

from __future__ import annotations

import math
from typing import Any

from tinytorch.graph.passes.algebra import INHERITED
from tinytorch.graph.passes.aliasing import Aliasing
from tinytorch.graph.passes.base import OptimizationPass
from tinytorch.graph.semantics import AnyGraph, AnyNode

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

#: Ops that may leave all matrices as they are, each in its place (`detach` where nothing is
#: differentiated any more).
PASSAGES = ("reshape", "expand", "clone", "detach")


class MatrixReader(OptimizationPass):
    """A pass that follows matrices through a graph."""

    def read(self, graph: AnyGraph) -> None:
        """Look up what is written in place, and whether the graph is differentiated any more."""
        self._memory = Aliasing(graph, self.semantics)
        self._is_closed = self.semantics.is_closed(graph)

    def call_of(self, node: AnyNode) -> Call | None:
        """The op of our table that a node computes: its name, operands and parameters."""
        return self.semantics.signature(node)

    def with_front(self, graph: AnyGraph, node: AnyNode, front: tuple[Any, ...]) -> AnyNode:
        """Matrices with these sizes in front of their own two."""
        old = self.semantics.meta(node).shape
        shape = (*front, *old[-2:])
        if tuple(old) == shape:
            return node
        new = self.semantics.call(graph, "reshape", (node,), {"shape": shape})
        inherit(new, node)
        return new

    def _is(self, value: Any, name: str) -> bool:
        s = self.semantics
        if not s.is_node(value) or value.op != "call_function":
            return False
        call = self.call_of(value)
        return call is not None and call[0] == name

    def _given(self, node: AnyNode) -> tuple[Any, ...]:
        call = self.call_of(node)
        assert call is not None
        return call[1]

    def _operands(self, node: AnyNode) -> tuple[Any, ...]:
        """What is given to a node, behind what only divides the dimensions in front."""
        return tuple(map(self._behind, self._given(node)))

    def _behind(self, value: Any) -> Any:
        while self._is_passage(value):
            value = self._given(value)[0]
        return value

    def _is_passage(self, value: Any) -> bool:
        """Whether a node gives the same matrices in the same order."""
        s = self.semantics
        call = self.call_of(value) if s.is_node(value) and value.op == "call_function" else None
        if call is None or call[0] not in PASSAGES or self._memory.touches_written(value):
            return False
        new, old = s.meta(value), s.meta(call[1][0])
        if new is None or old is None or (call[0] == "detach" and not self._is_closed):
            return False
        same = new.shape[-2:] == old.shape[-2:]
        return bool(same and math.prod(new.shape) == math.prod(old.shape))

    def _through(self, node: AnyNode) -> list[AnyNode]:
        """The nodes that give the same matrices as this one, in the same order."""
        found = [node]
        for each in found:  # it grows
            found += [n for n in each.users if self._is_passage(n)]
        return found[1:]

    def _users(self, node: AnyNode) -> list[AnyNode]:
        """Who uses a node, behind what only divides the dimensions in front."""
        passages = self._through(node)
        users = dict.fromkeys(n for each in (node, *passages) for n in each.users)
        return [n for n in users if n not in passages]

    def _only_user(self, node: AnyNode) -> AnyNode | None:
        users = self._users(node)
        return users[0] if len(users) == 1 else None

    def _parameter(self, node: AnyNode, name: str) -> Any:
        call = self.call_of(node)
        assert call is not None
        return call[2][name]

    def _other(self, node: AnyNode, name: str) -> Any:
        """The operand of this op; None if there is none."""
        return next((x for x in self._operands(node) if self._is(x, name)), None)

    def _scaled(self, node: Any) -> tuple[Any, float]:
        """What a node multiplies with a number, and that number; (None, 1.0) if it does not."""
        if not (self._is(node, "mul") or self._is(node, "div")):
            return None, 1.0
        a, b = self._operands(node)
        if self._is(node, "mul") and isinstance(a, (int, float)):
            a, b = b, a
        if not isinstance(b, (int, float)) or b == 0 or not math.isfinite(b):
            return None, 1.0
        return a, float(b) if self._is(node, "mul") else 1.0 / b

    def _are_transposed(self, a: AnyNode, b: AnyNode) -> bool:
        """Whether one is the other with its last two dimensions exchanged.

        Of heads that were split off, both are permutations of what was split.
        """
        for one, other in ((a, b), (b, a)):
            if self._is(one, "permute") and self._operands(one)[0] is other:
                dims = tuple(self._parameter(one, "dims"))
                if dims == transposed_dims(len(dims)):
                    return True
        (source, dims), (same, turned) = self._permuted(a), self._permuted(b)
        if source is not same or dims == turned:
            return False
        order = dims or range(len(turned))
        turned = turned or tuple(range(len(dims)))
        return (*order,) == (*turned[:-2], turned[-1], turned[-2])

    def _permuted(self, node: AnyNode) -> tuple[AnyNode, tuple[int, ...]]:
        """What a node is a permutation of, and which dimension of that each of its own is; of a
        node that is none, itself and ()."""
        dims: tuple[int, ...] = ()
        while self._is(node, "permute"):
            own = tuple(self._parameter(node, "dims"))
            dims = tuple(own[d] for d in dims) or own
            node = self._given(node)[0]
        return node, dims

    def constant(self, node: AnyNode) -> Any:
        """The value of a node that depends on no input; None if it does."""
        s = self.semantics
        if node.op == "get_attr":
            return s.constant_value(node)
        if node.op != "call_function" or not s.is_pure(node) or s.is_random(node):
            return None
        known = {a: self.constant(a) for a in node.all_input_nodes}
        if any(value is None for value in known.values()):
            return None
        args, kwargs = (s.map_arg(x, known.__getitem__) for x in (node.args, dict(node.kwargs)))
        return s.evaluate(node, args, kwargs)


def inherit(new: AnyNode, old: AnyNode) -> None:
    """Give a new node the phase and the line of the one that it replaces."""
    new.meta.update({k: v for k, v in old.meta.items() if k in INHERITED})


def transposed_dims(ndim: int) -> tuple[int, ...]:
    """The order of dimensions that exchanges the last two."""
    return (*range(ndim - 2), ndim - 1, ndim - 2)
